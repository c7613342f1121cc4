"""Texts to vectors, with any sentence-transformers or transformers model, routed where it has routes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.encoding.parallel_cpu import Cores, batching
from sentence_experts.errors import InputError, RouteError
from sentence_experts.models.decoders import is_decoder
from sentence_experts.models.export import int8
from sentence_experts.models.layers.packed_forward import can_pack, use_packing
from sentence_experts.models.loading import load_model, load_quietly, pooling_of, to_dtype
from sentence_experts.models.minilm import model_folder
from sentence_experts.models.routing.route_classifier import AUTO, has_auto_route
from sentence_experts.models.storage.fingerprint import model_fingerprint
from sentence_experts.moee.folder import is_embedder
from sentence_experts.storage import sha256_text

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)

Vectors = NDArray[np.float32]
BATCH_SIZE = 32  # where batches are of so many texts and none says how many


class Encoder:
    """A loaded model with what is needed to use and to name it.

    Attributes:
        model: the sentence-transformers model.
        name: the folder's base name, or the hub id.
        fingerprint: a hash of the model's files (`models.fingerprint`), and of how it computes in 8 bits.
        pooling: how token vectors become one: mean, last, cls, or sentence-transformers' name.
        routes: route name -> prompt text; empty prompts are left out. "auto" is among them where the model
            chooses routes by itself.
        packed: whether padding is left out, where the model can.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        name: str,
        fingerprint: str,
        batch_size: int | None = None,
        packed: bool = True,
    ) -> None:
        self.model = model
        self.name = name
        self.fingerprint = fingerprint
        self.batch_size = batch_size
        self.packed = packed
        self.routes = {route: prompt for route, prompt in (model.prompts or {}).items() if prompt}
        self._auto_routes: Any = None if AUTO in self.routes else getattr(model, "auto_routes", None)
        if self._auto_routes is not None:
            self.routes[AUTO] = "(chosen from the text)"
        self._unsure = self._routed_by_choice = 0
        self.pooling = pooling_of(model)

    @classmethod
    def open(
        cls,
        source: str,
        device: str | None = None,
        batch_size: int | None = None,
        pooling: str | None = None,
        only_route: str | None = None,
        max_length: int | None = None,
        packed: bool = True,
        dtype: str | None = None,
    ) -> Encoder:
        """Load a model folder, a hub id, or "minilm" (the packaged all-MiniLM-L6-v2).

        `pooling` (mean, last, cls) takes the place of the model's own; `models.loading.load_model` says what
        a plain transformers model gets. With `only_route`, no other route's expert is loaded. `max_length`
        cuts texts to so many tokens where the model would read more. `batch_size` None lets a CPU's cores
        take batches of so many tokens (`cores`); a number makes batches of so many texts. `packed` False
        computes the padding too (`models.use_packing`). `dtype` is what to compute in; vectors stay float32.
        Without it, a folder that is calibrated for 8 bits computes in them on a CPU (`models.int8`).

        Raises:
            UsageError: an unknown pooling or `dtype`, `only_route` for a model whose learned routers choose,
                or a `dtype` of 16 bits for one that is calibrated for 8.
            RouteError: the model does not have `only_route`.
            InputError: there is no such folder, or it holds no model that can be loaded.
        """
        name = source_name(source)
        source = model_folder(source)
        model = None if pooling else _load_as_ours(source, device, only_route)
        model = model or load_model(source, device, pooling)
        if max_length is not None:
            model.max_seq_length = min(max_length, model.max_seq_length or max_length)
        if dtype is not None:
            to_dtype(model, dtype)
        if can_pack(model):
            use_packing(model, packed)
        fingerprint = model_fingerprint(source, model)
        if dtype != "float32" and int8.apply_kept(model, Path(source)):
            fingerprint = sha256_text(fingerprint, int8.ARITHMETIC)
        return cls(model, name, fingerprint, batch_size, packed)

    @property
    def has_experts(self) -> bool:
        """Whether the model routes between experts (and so cannot encode without a route)."""
        config = getattr(getattr(self.model[0], "auto_model", None), "config", None)
        return bool(getattr(config, "experts", None)) and bool(getattr(config, "routes", None))

    @property
    def texts_at_once(self) -> int:
        """Texts of a batch, where batches are of so many texts."""
        return self.batch_size or BATCH_SIZE

    @property
    def takes_empty(self) -> bool:
        """Whether an empty text has a vector."""
        return bool(getattr(self.model, "takes_empty", True))

    @property
    def dimension(self) -> int:
        """The length of a vector."""
        return int(self.model.get_embedding_dimension() or self.encode([""]).shape[1])

    @property
    def default_route(self) -> str | None:
        """The route taken when none is named."""
        default = self.model.default_prompt_name
        return default if default in self.routes else None

    def chosen_route(self, route: str | None) -> str | None:
        """The route that `route` means for this model: None only for a model without routes.

        Raises:
            RouteError: the model has routes and none is named or set as default, or it does not know `route`.
        """
        known = ", ".join(sorted(self.routes)) or self._no_routes
        if route is None:
            if self.routes and self.default_route is None:
                raise RouteError(f"{self.name} needs a route; its routes: {known}")
            return self.default_route
        if route not in self.routes:
            raise RouteError(f"{self.name} has no route {route!r}; its routes: {known}")
        return route

    def encode(self, texts: Sequence[str], route: str | None = None, normalize: bool = False) -> Vectors:
        """Vectors of shape (texts, dimensions), float32, in the order of the texts.

        `route` None means no prompt at all; call `chosen_route` first for the default. An empty text has the
        zero vector where a decoder's tokenizer gives it no token.

        Raises:
            InputError: the model gives a vector that is not finite.
        """
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        if "" in texts and not route and self._empty_has_no_token:
            vectors: Vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
            if written := [row for row, text in enumerate(texts) if text]:
                vectors[written] = self.encode([texts[row] for row in written], route, normalize)
            return vectors
        vectors = np.asarray(self._encode(texts, route, normalize), dtype=np.float32)
        bad = ~np.isfinite(vectors).all(axis=1)
        if bad.any():
            start = texts[int(np.argmax(bad))][:60]
            raise InputError(f"{self.name} gives numbers that are not finite for the text {start!r}...")
        return vectors

    def _encode(self, texts: Sequence[str], route: str | None, normalize: bool) -> Any:
        # An empty prompt, because no name would mean the model's default one.
        prompt = self.routes[route] if route else ""
        chooses = route == AUTO and self._auto_routes is not None
        if self._cores is not None and not chooses:
            return self._cores.encode(texts, prompt, normalize)
        options: dict[str, Any] = {
            "batch_size": self.texts_at_once,
            "normalize_embeddings": normalize,
            "show_progress_bar": False,
            "convert_to_numpy": True,
        }
        if chooses:
            encoded, unsure = self._auto_routes.encode(self.model, texts, **options)
            self._unsure += unsure
            self._routed_by_choice += len(texts)
            return encoded
        return self.model.encode(list(texts), prompt=prompt, **options)

    @cached_property
    def _cores(self) -> Cores | None:
        return Cores(self.model) if self.batch_size is None and Cores.takes(self.model) else None

    def say_unsure(self) -> None:
        """Say of how many texts since the last time no automatic route was found, if of any."""
        if self._unsure:
            logger.info(self._auto_routes.said_of(self._unsure, self._routed_by_choice))
        self._unsure = self._routed_by_choice = 0

    def vector_settings(self, route: str | None) -> dict[str, Any]:
        """What decides a text's vector, but for the last bits: what vectors are kept under."""
        return {
            "fingerprint": self.fingerprint,
            "route": route,
            "pooling": self.pooling,
            "max_length": self.model.max_seq_length,
            "number_type": str(self.model.dtype),
        }

    def exact_settings(self, route: str | None) -> dict[str, Any]:
        """Everything about the model that decides a vector to the last bit: what parts are kept under."""
        machine = {
            "batches": batching() if self._cores else self.texts_at_once,
            "packed": self.packed,
            "device": self.model.device.type,
        }
        return self.vector_settings(route) | machine

    def settings(self) -> dict[str, Any]:
        """What names this model in a result: no machine paths."""
        return {
            "model": self.name,
            "fingerprint": self.fingerprint,
            "max_length": self.model.max_seq_length,
            "pooling": self.pooling,
            "routes": self.routes,
        }

    @property
    def _no_routes(self) -> str:
        config = getattr(getattr(self.model[0], "auto_model", None), "config", None)
        return (
            "none"
            if not getattr(config, "experts", None)
            else "none, its blocks choose experts by themselves"
        )

    @cached_property
    def _empty_has_no_token(self) -> bool:
        return is_decoder(self.model) and not self.model.tokenizer("")["input_ids"]


def _load_as_ours(source: str, device: str | None, only_route: str | None) -> SentenceTransformer | None:
    """The model, for what a stock `SentenceTransformer` cannot do: choose routes by itself, load one only,
    read a language model's routers."""
    if is_embedder(source):
        from sentence_experts.moee.embedder import MoeEmbedder

        return MoeEmbedder.open(source, device)
    if only_route is None and not has_auto_route(source):
        return None
    from sentence_experts.models.checkpoint import load

    load_quietly()
    return load(source, device, None if only_route is None else [only_route])


def source_name(source: str) -> str:
    """What a model is called that nobody named: the folder's base name, or the hub id."""
    return Path(source).resolve().name if Path(source).is_dir() else source


def cosines(first: Vectors, second: Vectors) -> NDArray[np.float64]:
    """Row-wise cosine similarity, shape (rows,), in float64; 0 where a vector is zero."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    products = np.einsum("ij,ij->i", a, b)
    result: NDArray[np.float64] = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    return result
