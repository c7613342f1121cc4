"""Automatic routes: a wrapper around a model that chooses each text's route by its content.

A classifier reads the vector of the averaged model (`dense.average_experts`), which needs no route. So a text
costs two forward passes, and the averaged model takes as much memory as the base.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sentence_experts.compat.sentence_transformers import takes_sentences
from sentence_experts.compat.torch import take_state
from sentence_experts.errors import RouteError, UsageError
from sentence_experts.models.card import usage_card
from sentence_experts.models.dense import average_experts
from sentence_experts.models.encoder import ExpertEncoder, prepend
from sentence_experts.models.routes.known_routes import AUTO, AUTO_FOLDER, AUTO_PROMPT
from sentence_experts.models.routes.route_classifier import RouteClassifier, fit_classifier
from sentence_experts.models.sources import forget_origin
from sentence_experts.progress import announced
from sentence_experts.storage import write_text

logger = logging.getLogger(__name__)

_FALLBACK = "fallback_embeddings"


class AutoRoutedEncoder(ExpertEncoder):
    """A model with experts that also knows the route "auto".

    `encode(texts, prompt_name="auto")` chooses a route per text (by `classifier`); other routes work as
    before. A text whose most probable route is below the classifier's confidence gets the vector of the
    averaged model, or is an error.
    """

    def __init__(
        self, model: ExpertEncoder, classifier: RouteClassifier, averaged: Any | None = None
    ) -> None:
        """Wrap a model in automatic routes.

        Args:
            model: the model with experts; its modules are shared, not copied.
            classifier: fitted on vectors of the averaged model (`fit_auto_routes`).
            averaged: the averaged model; made from the experts when first needed if not given. Experts that
                are trained further need a new one, and a new classifier.
        """
        take_state(self, model)
        forget_origin(self)  # the model's files do not hold the classifier
        self.prompts = {**model.prompts, AUTO: AUTO_PROMPT}
        self.classifier = classifier
        # In a list, so that they do not count among the modules.
        self._inner: list[Any] = [model, averaged]
        self._low_confidence = self._chosen = 0

    def without_auto_routes(self) -> ExpertEncoder:
        """Return the model that the automatic routes wrap."""
        model: ExpertEncoder = self._inner[0]
        return model

    @property
    def averaged(self) -> Any:
        """The mean of all experts, a dense model on this model's device.

        Raises:
            UsageError: only some experts are in memory.
        """
        if self._inner[1] is None:
            self._inner[1] = average_experts(self.without_auto_routes())
        return self._inner[1].to(self.device)

    @property
    def fingerprint_parts(self) -> tuple[str, ...]:
        """Settings that a vector depends on besides the weights."""
        arrays = (self.classifier.weights, self.classifier.biases)
        settings = (self.classifier.routes, self.classifier.confidence, self.classifier.fallback)
        return (*(array.tobytes().hex() for array in arrays), repr(settings))

    def choose_route(self, texts: str | Sequence[str]) -> tuple[list[str], NDArray[np.float64]]:
        """Return the most probable route of each text, and the probabilities, (texts, routes)."""
        names, probabilities, _ = self._choose([texts] if isinstance(texts, str) else list(texts))
        return names, probabilities

    @takes_sentences
    def encode(self, inputs: Any, *args: Any, expert_ids: Any = None, **kwargs: Any) -> Any:
        """As `ExpertEncoder.encode`, also with `prompt_name="auto"`.

        Raises:
            RouteError: a text's route is below the confidence, and that is to be an error.
        """
        prompt_name = args[0] if args else kwargs.get("prompt_name")
        if prompt_name == AUTO and (expert_ids is not None or args[1:] or kwargs.get("prompt")):
            raise UsageError(f"prompt_name={AUTO!r} cannot be combined with expert_ids or a prompt")
        vectors = super().encode(inputs, *args, expert_ids=expert_ids, **kwargs)
        self.log_low_confidence()
        return vectors

    def preprocess(self, inputs: Any, prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """`ExpertEncoder.preprocess`, with a chosen route in the place of `AUTO_PROMPT`."""
        texts = list(inputs)
        if prompt == AUTO_PROMPT:
            texts, prompt = [prepend(AUTO_PROMPT, text) for text in texts], ""
        rows = [] if prompt else [row for row, text in enumerate(texts) if _is_auto(text)]
        fallback = torch.full((len(texts), self.get_embedding_dimension() or 0), torch.nan)
        if rows:
            plain = [_without_prompt(texts[row]) for row in rows]
            names, probabilities, vectors = self._choose(plain)
            unsure = probabilities.max(axis=1) < self.classifier.confidence
            if unsure.any() and self.classifier.fallback == "error":
                row = int(np.argmax(unsure))
                ranked = sorted(zip(probabilities[row], self.classifier.routes, strict=True), reverse=True)
                shares = ", ".join(f"{name} {share:.2f}" for share, name in ranked)
                raise RouteError(
                    f"the text {str(plain[row])[:60]!r}: no route reaches the confidence of "
                    f"{self.classifier.confidence:g}: {shares}; name its route, or train automatic routes "
                    "with another `confidence` or with `fallback=average`"
                )
            for row, text, name in zip(rows, plain, names, strict=True):
                texts[row] = prepend(self.prompts[name] or "", text)
            chosen = torch.tensor(rows)
            fallback[chosen[unsure]] = torch.as_tensor(vectors[unsure], dtype=torch.float32)
            self._low_confidence += int(unsure.sum())
            self._chosen += len(rows)
        features = super().preprocess(texts, prompt=prompt, **kwargs)
        return {**features, _FALLBACK: fallback} if features else features

    def forward(self, input: dict[str, Any], **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """`SentenceTransformer.forward`, with the averaged model's vectors where a text has no sure route."""
        fallback = input.pop(_FALLBACK, None)
        outputs: dict[str, Any] = super().forward(input, **kwargs)
        if fallback is not None:
            own = outputs["sentence_embedding"]
            given = fallback.to(own)
            outputs["sentence_embedding"] = torch.where(given.isnan(), own, given)
        return outputs

    def save(self, path: str, *args: Any, **kwargs: Any) -> None:
        """As `SentenceTransformer.save`, with the automatic routes."""
        self.without_auto_routes().save(path, *args, **kwargs)
        self.classifier.write(Path(path) / AUTO_FOLDER)
        if (card := Path(path) / "README.md").exists():
            write_text(card, usage_card(self))

    def log_low_confidence(self) -> None:
        """Log the number of texts since the last call that were below the confidence threshold, if any."""
        if self._low_confidence:
            logger.info(
                f"{self._low_confidence:,} of {self._chosen:,} texts: no route reached the confidence of "
                f"{self.classifier.confidence:g}; they were encoded with the average of all experts"
            )
        self._low_confidence = self._chosen = 0

    def _choose(self, texts: list[Any]) -> tuple[list[str], NDArray[np.float64], NDArray[Any]]:
        """Return the routes and probabilities of texts, and the vectors that they were read from."""
        routes = self.classifier.routes
        if not texts:
            return [], np.empty((0, len(routes))), np.empty((0, 0))
        vectors = self.averaged.encode(texts, show_progress_bar=False)
        probabilities = self.classifier.probabilities(vectors)
        return [routes[best] for best in probabilities.argmax(axis=1)], probabilities, vectors


def fit_auto_routes(
    model: ExpertEncoder,
    texts: Sequence[str],
    routes: Sequence[str],
    confidence: float = 0.5,
    fallback: str = "average",
) -> AutoRoutedEncoder:
    """Fit a classifier of routes on texts whose routes are known, and wrap the model in it.

    Args:
        model: a model with experts, left unchanged.
        texts: some hundred per route are enough.
        routes: the route of each text.
        confidence, fallback: as in `AutoRouteConfig`.
    """
    model = model.without_auto_routes()
    known = [route.name for route in model.routes]
    if AUTO in model.prompts:
        raise UsageError(f"the model already has a route that is called {AUTO!r}")
    if unknown := sorted(set(routes) - set(known)):
        raise UsageError(
            f"texts of {unknown[0]!r}, which is not a route; routes: {', '.join(known) or 'none'}"
        )
    if missing := [name for name in known if name not in set(routes)]:
        raise UsageError(f"no text of route {missing[0]!r}: it could never be chosen")
    averaged = average_experts(model)
    with announced(f"encoding {len(texts):,} texts with the averaged model"):
        vectors = averaged.encode(list(texts), show_progress_bar=False)
    classifier = fit_classifier(vectors, routes, confidence, fallback)
    return AutoRoutedEncoder(model, classifier, averaged)


def _is_auto(text: Any) -> bool:
    first = text[0] if isinstance(text, tuple | list) and text else text
    return isinstance(first, str) and first.startswith(AUTO_PROMPT)


def _without_prompt(text: Any) -> Any:
    if isinstance(text, str):
        return text.removeprefix(AUTO_PROMPT)
    return (text[0].removeprefix(AUTO_PROMPT), *text[1:])
