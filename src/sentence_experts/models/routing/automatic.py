"""Encoding with automatic routes: each text takes the route that the stored classifier chooses for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from sentence_experts.errors import RouteError, UsageError
from sentence_experts.models.routing.route_classifier import AUTO, RouteClassifier, fit_classifier
from sentence_experts.models.surgery.merge import average_experts
from sentence_experts.progress import progress

if TYPE_CHECKING:
    from sentence_experts.models.encoder import ExpertEncoder

TEXTS_AT_ONCE = 512
# Options of `encode` for several processes, which hold the model with experts and not the averaged one.
OF_PROCESSES = ("pool", "chunk_size")


class AutoRoutes:
    """A classifier, and the averaged model whose vectors it reads.

    The averaged model takes as much memory as the base. It is made from the experts when first needed, once:
    experts that are trained further want a classifier of their own.
    """

    def __init__(self, classifier: RouteClassifier, averaged: SentenceTransformer | None = None) -> None:
        self.classifier = classifier
        self._averaged = averaged

    def choose(
        self, encoder: ExpertEncoder, texts: Sequence[Any], batch_size: int = 32
    ) -> tuple[list[str], NDArray[np.float64]]:
        """The most probable route of each text, and the probabilities of all, (texts, routes)."""
        if not texts:
            return [], np.empty((0, len(self.classifier.routes)))
        vectors = self.averaged(encoder).encode(list(texts), batch_size=batch_size, show_progress_bar=False)
        probabilities = self.classifier.probabilities(vectors)
        return [self.classifier.routes[best] for best in probabilities.argmax(axis=1)], probabilities

    def encode(self, encoder: ExpertEncoder, texts: Sequence[Any], **options: Any) -> tuple[Any, int]:
        """What `encoder.encode` gives, each text by its own route; and how many no route was found for.

        Raises:
            RouteError: a text's best route is below the confidence, and that is to be an error.
        """
        if not texts:
            return encoder.encode([], prompt="", **options), 0
        names, probabilities = self.choose(encoder, texts, options.get("batch_size", 32))
        sure = probabilities.max(axis=1) >= self.classifier.confidence
        if not sure.all() and self.classifier.otherwise == "error":
            raise self._unsure(texts, probabilities, int(np.argmin(sure)))
        vectors: list[Any] = [None] * len(texts)
        for name in dict.fromkeys(names):
            rows = [row for row, chosen in enumerate(names) if sure[row] and chosen == name]
            if rows:
                encoded = encoder.encode([texts[row] for row in rows], prompt_name=name, **options)
                _put(vectors, rows, encoded)
        if rows := np.flatnonzero(~sure).tolist():
            kept = {key: value for key, value in options.items() if key not in OF_PROCESSES}
            _put(vectors, rows, self.averaged(encoder).encode([texts[row] for row in rows], **kept))
        return _together(vectors, bool(options.get("convert_to_tensor"))), len(rows)

    def said_of(self, unsure: int, texts: int) -> str:
        """How many texts no route was found for."""
        return (
            f"{unsure:,} of {texts:,} texts: no route reached the confidence of "
            f"{self.classifier.confidence:g}; they were encoded with the average of all experts"
        )

    def averaged(self, encoder: ExpertEncoder) -> SentenceTransformer:
        """The mean of all experts, on the encoder's device."""
        if self._averaged is None:
            self._averaged = average_experts(encoder)
        return self._averaged.to(encoder.device)

    def _unsure(self, texts: Sequence[Any], probabilities: NDArray[np.float64], row: int) -> RouteError:
        ranked = sorted(zip(probabilities[row], self.classifier.routes, strict=True), reverse=True)
        shares = ", ".join(f"{name} {share:.2f}" for share, name in ranked)
        return RouteError(
            f"text {row} ({str(texts[row])[:60]!r}): no route reaches the confidence of "
            f"{self.classifier.confidence:g}: {shares}; name its route, or train automatic routes with "
            "another --confidence or with --otherwise average"
        )


def fit_auto_routes(
    encoder: ExpertEncoder,
    texts: Sequence[str],
    routes: Sequence[str],
    confidence: float = 0.5,
    otherwise: str = "average",
) -> AutoRoutes:
    """Fit a classifier of routes on texts whose routes are known; set it as `encoder.auto_routes`.

    Raises:
        UsageError: a route that the model does not have, a route without texts, a route that is called
            "auto", or fewer than two.
    """
    known = [route.name for route in encoder.routes]
    if AUTO in encoder.prompts:
        raise UsageError(f"the model has a route that is called {AUTO!r}, so the name is taken")
    if unknown := sorted(set(routes) - set(known)):
        raise UsageError(f"texts of {unknown[0]!r}, which is no route; routes: {', '.join(known) or 'none'}")
    if missing := [name for name in known if name not in set(routes)]:
        raise UsageError(f"no text of route {missing[0]!r}: it could never be chosen")
    averaged = average_experts(encoder)
    vectors = []
    with progress("encoding with the averaged model", len(texts)) as advance:
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            part = list(texts[start : start + TEXTS_AT_ONCE])
            vectors.append(averaged.encode(part, show_progress_bar=False))
            advance(len(part))
    classifier = fit_classifier(np.concatenate(vectors), routes, confidence, otherwise)
    fitted = AutoRoutes(classifier, averaged)
    encoder.auto_routes = fitted  # type: ignore[assignment]  # an attribute of ExpertEncoder, made of this class
    return fitted


def _together(vectors: list[Any], as_tensor: bool) -> Any:
    """Vectors of single texts as `encode` gives them: one array, one tensor, or a list of other things."""
    if as_tensor and isinstance(vectors[0], torch.Tensor):
        return torch.stack(vectors)
    return np.stack(vectors) if isinstance(vectors[0], np.ndarray) else vectors


def _put(vectors: list[Any], rows: Sequence[int], encoded: Any) -> None:
    for row, vector in zip(rows, encoded, strict=True):
        vectors[row] = vector
