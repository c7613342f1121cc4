"""Encode many texts with any sentence-transformers model, by route if it has routes."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.encoding.chunks import Vectors
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.batching import BATCHING, ParallelCpuEncoder, Runtime
from sentence_experts.models.files.fingerprint import fingerprint_of
from sentence_experts.models.loading import LoadConfig, is_decoder, load
from sentence_experts.models.onnx_encoder import OnnxEncoder, open_minilm
from sentence_experts.models.pooling import pooling_of, settings_of
from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.models.sources import NAME, name_of, notes_of
from sentence_experts.models.torch_runtime import TorchRuntime
from sentence_experts.progress import Advance, unseen

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)

BATCH_SIZE = 32  # texts per batch by default, where batches are not cut by tokens


class BatchEncoder:
    """An encoder of many texts with one model, which it also names in results.

    Attributes:
        model: a `SentenceTransformer` or `OnnxEncoder`, as `sentence_experts.load` opens it.
        batch_size: number of texts per batch; by default, on a CPU, batches have a number of tokens and run
            side by side on all cores, elsewhere they have 32 texts.
    """

    def __init__(
        self,
        model: SentenceTransformer | OnnxEncoder,
        batch_size: int | None = None,
        name: str | None = None,
    ) -> None:
        """Prepare a model for many texts; `name` is by default the model's own (`name_of`)."""
        if batch_size is not None and (isinstance(model, OnnxEncoder) or hasattr(model, "check_alpha")):
            kind = "an ONNX graph" if isinstance(model, OnnxEncoder) else "an embedder"
            raise UsageError(f"`batch_size` has no effect here: the batches of {kind} are cut by tokens")
        if "encode" in vars(model):
            raise UsageError(
                "`encode` of the model was replaced in memory, and is not called in all cases: put what it "
                "does into a module of the model, or into a subclass"
            )
        self.model: Any = model
        self.batch_size, self._name = batch_size, name
        self._warned = False

    @classmethod
    def open(
        cls,
        source: Any,
        load_config: LoadConfig | None = None,
        batch_size: int | None = None,
        name: str | None = None,
    ) -> BatchEncoder:
        """Open a model to encode with, as `load` does; "minilm" on ONNX Runtime where that fits.

        One that is open already stays as it is.
        """
        if isinstance(source, BatchEncoder):
            return source
        load_config = LoadConfig.of(load_config)
        light = batch_size is None and takes_minilm(source, load_config)
        return cls(open_minilm(load_config) if light else load(source, load_config), batch_size, name)

    @cached_property
    def name(self) -> str:
        """The model's name in results."""
        return self._name or name_of(self.model)

    @property
    def pooling(self) -> str | None:
        """The pooling of token vectors: mean, last, cls, or sentence-transformers' own name."""
        return pooling_of(self.model)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything in the model that decides a vector."""
        return fingerprint_of(self.model)

    @property
    def config(self) -> Any:
        """The config of the transformer; None without one."""
        return self.model.config

    @property
    def known_routes(self) -> KnownRoutes:
        """The routes that texts can name, and the default."""
        model = self.model
        idle = getattr(model, "idle_routes", ())
        return KnownRoutes.of(self.name, model.prompts, model.default_prompt_name, self.config, idle)

    @property
    def routes(self) -> Mapping[str, str]:
        """Route name -> prompt text; empty prompts are left out."""
        return self.known_routes.prompts

    @property
    def has_experts(self) -> bool:
        """Whether the model routes between experts (and so cannot encode without a route)."""
        return bool(getattr(self.config, "experts", None) and getattr(self.config, "routes", None))

    @property
    def texts_at_once(self) -> int:
        """Number of texts per batch, where batches are not cut by tokens."""
        return self.batch_size or BATCH_SIZE

    @property
    def standard_batch(self) -> int | None:
        """Number of texts that have standard scores together; None where a vector is of its text alone."""
        scores = getattr(self.model, "standard", None)
        return None if scores is None else int(self.model.settings["standard_batch"])

    def cut_between_batches(self, size: int) -> int:
        """Return about this number of texts: as many as make whole batches of standard scores."""
        batch = self.standard_batch or 1
        return max(size - size % batch, batch)

    @property
    def takes_empty(self) -> bool:
        """Whether an empty text has a vector."""
        return bool(getattr(self.model, "takes_empty", True))

    def check_empty(self, name: str, texts: Sequence[str], first: int) -> None:
        """Refuse an empty text of the table `name`, behind the `first` ones, if the model cannot encode it.

        Raises:
            InputError: one is empty.
        """
        for number, text in enumerate(texts if not self.takes_empty else (), start=first + 1):
            if not text.strip():
                raise InputError(
                    f"{name}: text {number} is empty, and this model cannot encode empty texts: remove it"
                )

    @property
    def dimension(self) -> int:
        """The length of a vector."""
        return int(self.model.get_embedding_dimension() or self.encode([""]).shape[1])

    def encode(
        self,
        texts: Sequence[str],
        route: str | None = None,
        normalize: bool = False,
        advance: Advance = unseen,
    ) -> Vectors:
        """Return vectors of shape (texts, dimensions), float32, in the order of the texts.

        `route` None means no prompt at all (`known_routes.choose` gives the default route). An empty text has
        the zero vector where a decoder's tokenizer gives it no token. `advance` is called as texts are done.

        Raises:
            InputError: the model gives a vector that is not finite.
        """
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        if "" in texts and not route and self._empty_has_no_token:
            vectors: Vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
            if written := [row for row, text in enumerate(texts) if text]:
                vectors[written] = self.encode([texts[row] for row in written], route, normalize)
            advance(len(texts))
            return vectors
        # An empty prompt, because no name would mean the model's default one.
        prompt = (self.model.prompts[route] or "") if route else ""
        self.check_room(prompt)
        if prompt and not self._warned:
            self._warn_of_prompts(texts, route)
        if self._parallel_cpu is not None:
            vectors = self._parallel_cpu.encode(texts, prompt, normalize, advance)
        else:
            options: dict[str, Any] = {"batch_size": self.texts_at_once, "normalize_embeddings": normalize}
            encoded = self.model.encode(list(texts), prompt=prompt, show_progress_bar=False, **options)
            vectors = np.asarray(encoded, dtype=np.float32)
            advance(len(texts))
        if not (finite := np.isfinite(vectors).all(axis=1)).all():
            start = texts[int(np.argmin(finite))][:60]
            raise InputError(f"{self.name} gives numbers that are not finite for the text {start!r}...")
        return vectors

    def check_room(self, prompt: str) -> None:
        """Refuse a prompt that fills the model's length: all texts would have one vector.

        Raises:
            UsageError: it does.
        """
        longest, tokenizer = self.model.max_seq_length, getattr(self.model, "tokenizer", None)
        if not (prompt and longest and callable(tokenizer)) or len(prompt) < longest - 2:
            return
        if (tokens := len(tokenizer(prompt)["input_ids"])) >= longest:
            raise UsageError(f"`max_length={longest}`: no room for text beside the prompt's {tokens} tokens")

    def _warn_of_prompts(self, texts: Sequence[str], route: str | None) -> None:
        """Log, once, that a text begins with the prompt of a route: it is encoded as text all the same."""
        prompts = {prompt: name for name, prompt in self.routes.items()}
        begun = next((text for text in texts if text.startswith((*prompts,))), None)
        if begun is not None:
            own = next(prompt for prompt in prompts if begun.startswith(prompt))
            logger.warning(
                f"{self.name}: texts begin with {own!r}, the prompt of {prompts[own]!r}; they are encoded as "
                f"{route!r}, whose prompt stands in front of it"
            )
            self._warned = True

    @cached_property
    def _parallel_cpu(self) -> ParallelCpuEncoder | None:
        runtime = runtime_of(self.model) if self.batch_size is None else None
        return None if runtime is None else ParallelCpuEncoder(runtime)

    @cached_property
    def _empty_has_no_token(self) -> bool:
        decodes = isinstance(self.model, OnnxEncoder) or is_decoder(self.model)
        return decodes and not self.model.tokenizer("")["input_ids"]

    def cache_key(self, route: str | None) -> dict[str, Any]:
        """Return the cache key of a route's vectors: the settings that decide them, up to rounding."""
        settings = settings_of(self.model)
        del settings["default_prompt_name"]  # the route determines the prompt
        if settings["truncate_dim"] is None:  # of a route, the hash does not tell what the files say
            del settings["truncate_dim"]
        return {"fingerprint": fingerprint_of(self.model, route), "route": route, **settings}

    @property
    def rounding_settings(self) -> dict[str, Any]:
        """Settings on which rounding depends: the same for all parts of one file."""
        if isinstance(self.model, OnnxEncoder):
            return {"batches": BATCHING, "device": "cpu", "runtime": "onnx"}
        from sentence_experts.models.architectures.packed_forward import is_packed

        return {
            "batches": BATCHING if self._parallel_cpu else self.texts_at_once,
            "device": self.model.device.type,
            "packed": bool(is_packed(self.model)),
        }

    def settings(self) -> dict[str, Any]:
        """Return the description of this model in results, without paths of the machine."""
        return {
            "model": self.name,
            "fingerprint": self.fingerprint,
            "max_length": self.model.max_seq_length,
            "pooling": self.pooling,
            "routes": self.routes,
            **({"untrained": True} if notes_of(self.model).get("untrained") else {}),
        }


def check_own_vectors(encoder: BatchEncoder) -> None:
    """Check that a text has a vector whatever texts are encoded with it.

    Raises:
        UsageError: an embedder has standard scores of each batch, in which a single text is zero.
    """
    if encoder.standard_batch is not None:
        raise UsageError(
            f"{encoder.name} has standard scores of each batch (`standard`), so that a text's vector depends "
            "on its neighbours: search and servers need standard scores that were fitted, or none"
        )


def runtime_of(model: Any, device: str = "cpu") -> Runtime | None:
    """Return the runtime that takes a model's batches; None if only the `encode` of the model does."""
    if isinstance(model, OnnxEncoder):
        return model
    return TorchRuntime(model) if TorchRuntime.takes(model, device) else None


def takes_minilm(source: Any, config: LoadConfig) -> bool:
    """Return whether "minilm" is opened on ONNX Runtime: the same vectors, up to rounding, and no torch.

    It is where ONNX Runtime is installed and the settings ask for nothing else, on a machine without a GPU.
    """
    if source != NAME or Path(NAME).exists() or find_spec("onnxruntime") is None:
        return False
    asked = config.model_fields_set - {"max_length", "trust_remote_code", "packed"}
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    has_gpu = Path("/dev/nvidia0").exists() and not hidden
    on_cpu = config.device == "cpu" or (config.device is None and not has_gpu)
    return on_cpu and asked <= {"device"}


def cosines(first: Vectors, second: Vectors) -> NDArray[np.float64]:
    """Return row-wise cosine similarities, shape (rows,), in float64; 0 where a vector is zero."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    products = np.einsum("ij,ij->i", a, b)
    result: NDArray[np.float64] = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    return result
