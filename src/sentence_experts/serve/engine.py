"""Vectors of texts for every protocol, from one of the models, through the shared batches."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.errors import SentenceExpertsError
from sentence_experts.models.pooling import unit
from sentence_experts.retrieval.search_routes import parse_weights
from sentence_experts.serve.batcher import Batcher, QueuedText, Vector
from sentence_experts.serve.config import ServeConfig
from sentence_experts.serve.errors import RequestError
from sentence_experts.serve.metrics import Metrics
from sentence_experts.serve.models import Models, ServedModel

logger = logging.getLogger(__name__)

CPU_TOKENS, DEVICE_TOKENS = 512, 16_384  # default numbers of tokens per batch
CHARACTERS_PER_TOKEN = 4  # estimate; the exact number is known when a text's batch runs


@dataclass
class Embedded:
    """The answer for the texts of one request.

    Attributes:
        served: model that gave the answer.
        vectors: float32 vector of each text.
        tokens: number of tokens of each text.
        routes: route of each text; None where the model has none.
    """

    served: ServedModel
    vectors: list[Any]
    tokens: list[int]
    routes: list[str | None]

    def by(self, served: ServedModel) -> Embedded:
        """Return the answer if this model gave it; vectors of its successor do not fit the papers' vectors.

        Raises:
            RequestError: it was replaced meanwhile.
        """
        if self.served is not served:
            reason = f"{served.name} was replaced, and the papers are not encoded by the new model yet"
            raise RequestError(503, reason, retry_after=10)
        return self

    def finished(self, dimensions: int | None, normalize: bool | None) -> NDArray[np.float32]:
        """Return vectors, (texts, dimensions), cut to `dimensions`.

        They have length 1 if `normalize`; where that is None, if the model normalizes vectors, or
        they are of a blend or a taught route.
        """
        vectors: NDArray[np.float32] = np.stack(self.vectors)
        if dimensions not in (None, self.served.dimension):
            vectors = vectors[:, :dimensions]
            if normalize is None:
                known = (None, *self.served.known.prompts)
                units = np.array([self.served.normalizes or each not in known for each in self.routes])
                return np.where(units[:, None], unit(vectors), vectors)
        if normalize:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors


class EmbeddingEngine:
    """The models, the batches that they share, and the figures about both."""

    def __init__(self, models: Models, config: ServeConfig) -> None:
        """Prepare to serve models on the threads that the settings allow."""
        self.models, self.config = models, config
        self.metrics = Metrics()
        self.draining = False
        on_cpu = all(served.model.device.type == "cpu" for served in models)
        runtimes = [served.runtime for served in models if served.runtime is not None]
        cores = max((runtime.cores for runtime in runtimes), default=1)
        self._threads = ExitStack()
        begins = [self._threads.enter_context(runtime.one_core_each()) for runtime in runtimes]
        self.batcher = Batcher(
            config.workers or (cores if on_cpu else 1),
            config.batch_tokens or (CPU_TOKENS if on_cpu else DEVICE_TOKENS),
            config.queue_tokens,
            initializer=lambda: [begin() for begin in begins],
            on_batch=self.metrics.batch,
            on_wait=self.metrics.wait.observe,
        )
        self.metrics.queue.set_function(lambda: self.batcher.tokens)

    async def embed(
        self, served: ServedModel, texts: Sequence[str], routes: Sequence[str | None], field: str = "input"
    ) -> Embedded:
        """Encode texts, each by its route; `field` is where the request has them, for messages."""
        for number, text in enumerate(() if served.encoder.takes_empty else texts):
            if not text.strip():
                raise RequestError(
                    422, "is empty, and this model cannot encode empty texts", f"{field}.{number}"
                )
        while True:
            try:
                embedded = await self._embed(served, texts, routes)
                break
            except SentenceExpertsError as error:
                newer = await self.models.replaced(served)
                if newer is None:
                    logger.warning(f"{served.name}: {error}")
                    raise RequestError(500, "the model could not encode these texts") from error
                # The model's folder was replaced, and an expert that waited there is gone.
                routes = [route and newer.find_route(route, "route") for route in routes]
                served = newer
        known = served.known.prompts  # clients choose the names of blends, and figures are per name
        names = [each if each is None or each in known else "blend" for each in embedded.routes]
        self.metrics.count_texts(served.name, names, embedded.tokens)
        return embedded

    async def _embed(
        self, served: ServedModel, texts: Sequence[str], routes: Sequence[str | None]
    ) -> Embedded:
        embedded = Embedded(served, [], [], list(routes))
        shares = [shares_of(served, route) for route in routes]
        longest = served.max_length or 1 << 20
        queued = [
            QueuedText(
                served.text_encoder,
                text,
                served.prompt(route),
                min(len(text) // CHARACTERS_PER_TOKEN + 3, longest),
            )
            for text, weights in zip(texts, shares, strict=True)
            for route in weights
        ]
        results = iter(await self.batcher.encode(queued))
        for route, weights in zip(routes, shares, strict=True):
            vectors, tokens = zip(*islice(results, len(weights)), strict=True)
            embedded.tokens.append(sum(tokens))
            blended = route not in weights
            embedded.vectors.append(_blend(vectors, list(weights.values())) if blended else vectors[0])
        return embedded

    def close(self) -> None:
        """End the threads."""
        self.batcher.close()
        self._threads.close()


def shares_of(served: ServedModel, route: str | None) -> dict[str | None, float]:
    """Return the weight of each route that a name means: one route, or a blend."""
    if route is None or route in served.known.prompts:
        return {route: 1.0}
    return {name: weight for name, weight in parse_weights(route).items() if weight}


def _blend(vectors: Sequence[Vector], weights: Sequence[float]) -> Vector:
    """Return the vector of a blend, of length 1: the weighted sum of its routes' unit vectors.

    Its cosines hold those across routes too, so they are near the scores of a search by the blend; only
    vectors of all routes side by side, which are longer, would have the same.
    """
    mixed: Vector = np.array([weights], np.float32) @ unit(np.stack(vectors))
    blended: Vector = unit(mixed)[0]
    return blended
