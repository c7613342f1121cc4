"""Texts to vectors, with any sentence-transformers or transformers model, routed where it has routes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.encoding.fingerprint import model_fingerprint
from sentence_experts.errors import InputError, RouteError
from sentence_experts.models.loading import load_model
from sentence_experts.models.minilm import model_folder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Vectors = NDArray[np.float32]


class Encoder:
    """A loaded model with what is needed to use and to name it.

    Attributes:
        model: the sentence-transformers model.
        name: the folder's base name, or the hub id.
        fingerprint: a hash of the model's files (`encoding.fingerprint`).
        routes: route name -> prompt text; empty prompts are left out.
    """

    def __init__(self, model: SentenceTransformer, name: str, fingerprint: str, batch_size: int = 32) -> None:
        self.model = model
        self.name = name
        self.fingerprint = fingerprint
        self.batch_size = batch_size
        self.routes = {route: prompt for route, prompt in (model.prompts or {}).items() if prompt}

    @classmethod
    def open(cls, source: str, device: str | None = None, batch_size: int = 32) -> Encoder:
        """Load a model folder, a hub id, or "minilm" (the packaged all-MiniLM-L6-v2).

        A plain transformers model gets mean pooling.

        Raises:
            InputError: there is no such folder, or it holds no model that can be loaded.
        """
        name = Path(source).resolve().name if Path(source).is_dir() else source
        source = model_folder(source)
        model = load_model(source, device)
        return cls(model, name, model_fingerprint(source, model), batch_size)

    @property
    def has_experts(self) -> bool:
        """Whether the model routes between experts (and so cannot encode without a route)."""
        config = getattr(getattr(self.model[0], "auto_model", None), "config", None)
        return bool(getattr(config, "experts", None)) and bool(getattr(config, "routes", None))

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
        known = ", ".join(sorted(self.routes)) or "none"
        if route is None:
            if self.routes and self.default_route is None:
                raise RouteError(f"{self.name} needs a route; its routes: {known}")
            return self.default_route
        if route not in self.routes:
            raise RouteError(f"{self.name} has no route {route!r}; its routes: {known}")
        return route

    def encode(self, texts: Sequence[str], route: str | None = None, normalize: bool = False) -> Vectors:
        """Vectors of shape (texts, dimensions), float32, in the order of the texts.

        `route` None means no prompt at all; call `chosen_route` first for the default.

        Raises:
            InputError: the model gives a vector that is not finite.
        """
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        vectors: Vectors = np.asarray(
            self.model.encode(
                list(texts),
                # An empty prompt, because no name would mean the model's default one.
                prompt=self.routes[route] if route else "",
                batch_size=self.batch_size,
                normalize_embeddings=normalize,
                show_progress_bar=False,
                convert_to_numpy=True,
            ),
            dtype=np.float32,
        )
        bad = ~np.isfinite(vectors).all(axis=1)
        if bad.any():
            start = texts[int(np.argmax(bad))][:60]
            raise InputError(f"{self.name} gives numbers that are not finite for the text {start!r}...")
        return vectors

    def exact_settings(self, route: str | None) -> dict[str, Any]:
        """Everything about the model that decides a vector to the last bit: what parts are kept under."""
        return {
            "fingerprint": self.fingerprint,
            "route": route,
            "max_length": self.model.max_seq_length,
            "batch_size": self.batch_size,
            "device": self.model.device.type,
            "number_type": str(self.model.dtype),
        }

    def settings(self) -> dict[str, Any]:
        """What names this model in a result: no machine paths."""
        return {
            "model": self.name,
            "fingerprint": self.fingerprint,
            "max_length": self.model.max_seq_length,
            "routes": self.routes,
        }


def cosines(first: Vectors, second: Vectors) -> NDArray[np.float64]:
    """Row-wise cosine similarity, shape (rows,), in float64; 0 where a vector is zero."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    products = np.einsum("ij,ij->i", a, b)
    result: NDArray[np.float64] = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    return result
