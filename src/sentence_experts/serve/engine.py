"""Vectors of texts for every protocol, from one of the models, through the shared batches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.errors import SentenceExpertsError
from sentence_experts.models.routes.known_routes import AUTO
from sentence_experts.serve.batcher import Batcher, QueuedText, Reservation, TextEncoder
from sentence_experts.serve.config import ServeConfig
from sentence_experts.serve.errors import RequestError
from sentence_experts.serve.metrics import Metrics
from sentence_experts.serve.models import Models, ServedModel
from sentence_experts.serve.routing import check_routes

logger = logging.getLogger(__name__)

IN_LOOP = 2_000  # characters; fewer are tokenized in the event loop, sooner than a thread would begin
TOGETHER = 0.002  # seconds that they may wait for those of other requests while all workers are busy
BESIDE = 50_000  # characters; more are tokenized beside the others
CPU_TOKENS, DEVICE_TOKENS = 512, 16_384  # per batch by default

_Untokenized = tuple[list[str], asyncio.Future[list[QueuedText]]]  # the texts of a request


@dataclass
class Embedded:
    """The answer for the texts of one request.

    Attributes:
        served: the model that gave it.
        vectors: one of float32 per text.
        tokens: number of tokens of each text.
        routes: the route of each text; None where the model has none, or the average of all experts took the
            place of a route.
        confidences: the probability of each route that the text decided; None where the request named it.
    """

    served: ServedModel
    vectors: list[Any]
    tokens: list[int]
    routes: list[str | None]
    confidences: list[float | None]

    def finished(self, dimensions: int | None, normalize: bool) -> NDArray[np.float32]:
        """Return (texts, dimensions), cut to a length; scaled to length 1 if they are cut or should be."""
        vectors: NDArray[np.float32] = np.stack(self.vectors)
        if dimensions not in (None, self.served.dimension):
            vectors, normalize = vectors[:, :dimensions], True
        if normalize:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors


class EmbeddingEngine:
    """The models, the batches that they share, and the figures about both."""

    def __init__(self, models: Models, config: ServeConfig) -> None:
        """Prepare to serve models on the threads that the settings allow."""
        import torch

        self.models, self.config = models, config
        self.metrics = Metrics()
        self.draining = False
        self._beside = ThreadPoolExecutor(1, "tokenize")  # long texts wait for each other only
        self._waiting: dict[tuple[TextEncoder, str | None], list[_Untokenized]] = {}
        on_cpu = all(served.model.device.type == "cpu" for served in models)
        self.batcher = Batcher(
            config.workers or (torch.get_num_threads() if on_cpu else 1),
            config.batch_tokens or (CPU_TOKENS if on_cpu else DEVICE_TOKENS),
            config.queue_tokens,
            initializer=lambda: torch.set_num_threads(1),
            on_batch=self.metrics.batch,
            on_wait=self.metrics.wait.observe,
        )
        self.metrics.queue.set_function(lambda: self.batcher.tokens)

    async def embed(
        self, served: ServedModel, texts: Sequence[str], routes: Sequence[str | None], field: str = "input"
    ) -> Embedded:
        """Encode texts, each by its route (AUTO: by the route that the text decides).

        `field` is where the request has them, for messages.
        """
        for number, text in enumerate(() if served.encoder.takes_empty else texts):
            if not text.strip():
                raise RequestError(
                    422, "is empty, and this model cannot encode empty texts", f"{field}.{number}"
                )
        longest = served.max_length or 1 << 20
        about = sum(min(len(text) // 3 + 3, longest) for text in texts)
        with self.batcher.reserve(about) as place:
            try:
                embedded = await self._embed(served, texts, routes, place, field)
            except SentenceExpertsError as error:
                newer = await self.models.replaced(served)
                if newer is None:
                    logger.warning(f"{served.name}: {error}")
                    raise RequestError(500, "the model could not encode these texts") from error
                # Its folder was replaced, and an expert that waited there is gone.
                check_routes(newer, routes)
                embedded = await self._embed(newer, texts, routes, place, field)
        self.metrics.count_texts(served.name, embedded.routes, embedded.tokens)
        return embedded

    async def _embed(
        self,
        served: ServedModel,
        texts: Sequence[str],
        routes: Sequence[str | None],
        place: Reservation,
        field: str,
    ) -> Embedded:
        count = len(texts)
        embedded = Embedded(served, [None] * count, [0] * count, list(routes), [None] * count)
        if automatic := [number for number, route in enumerate(routes) if route == AUTO]:
            await self._choose(texts, automatic, embedded, place, field)
        rest = [number for number, vector in enumerate(embedded.vectors) if vector is None]
        queued: dict[int, QueuedText] = {}
        for route in dict.fromkeys(embedded.routes[number] for number in rest):
            numbers = [number for number in rest if embedded.routes[number] == route]
            of_route = await self._tokenize(
                served.text_encoder, [texts[n] for n in numbers], served.prompt(route)
            )
            queued.update(zip(numbers, of_route, strict=True))
        place.change(sum(text.tokens for text in queued.values()))
        vectors = await self.batcher.encode([queued[number] for number in rest], place)
        for number, vector in zip(rest, vectors, strict=True):
            embedded.vectors[number], embedded.tokens[number] = vector, queued[number].tokens
        return embedded

    async def _tokenize(self, encoder: TextEncoder, texts: list[str], prompt: str | None) -> list[QueuedText]:
        characters = sum(map(len, texts))
        if characters <= IN_LOOP:
            return await self._tokenize_together(encoder, texts, prompt)
        if characters <= BESIDE:
            return await asyncio.to_thread(encoder.tokenize, texts, prompt)
        return await asyncio.get_running_loop().run_in_executor(
            self._beside, encoder.tokenize, texts, prompt, True
        )

    async def _tokenize_together(
        self, encoder: TextEncoder, texts: list[str], prompt: str | None
    ) -> list[QueuedText]:
        """Tokenize in one call with what other requests bring now: it takes a third of the time of many."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(TOGETHER if self.batcher.busy else 0, self._tokenize_waiting)
        queued: asyncio.Future[list[QueuedText]] = loop.create_future()
        self._waiting.setdefault((encoder, prompt), []).append((texts, queued))
        return await queued

    def _tokenize_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for (encoder, prompt), requests in waiting.items():
            if staying := [each for each in requests if not each[1].done()]:  # their clients have not left
                _tokenize_requests(encoder, prompt, staying)

    async def _choose(
        self,
        texts: Sequence[str],
        numbers: Sequence[int],
        embedded: Embedded,
        place: Reservation,
        field: str,
    ) -> None:
        """Choose routes for the texts with these numbers, as `AutoRoutedEncoder` does."""
        served = embedded.served
        assert served.averaged is not None
        queued = await self._tokenize(served.averaged, [texts[number] for number in numbers], "")
        vectors = await self.batcher.encode(queued, place)
        probabilities = served.classifier.probabilities(np.stack(vectors))
        for number, one, vector, row in zip(numbers, queued, vectors, probabilities, strict=True):
            best = int(row.argmax())
            embedded.confidences[number] = float(row[best])
            embedded.routes[number] = served.classifier.routes[best]
            if row[best] >= served.classifier.confidence:
                continue
            if served.classifier.fallback == "error":
                raise RequestError(422, _unsure(served, row), f"{field}.{number}")
            embedded.routes[number] = None
            embedded.vectors[number], embedded.tokens[number] = vector, one.tokens

    def close(self) -> None:
        """End the threads."""
        self.batcher.close()
        self._beside.shutdown(wait=False, cancel_futures=True)


def _tokenize_requests(encoder: TextEncoder, prompt: str | None, requests: list[_Untokenized]) -> None:
    """Tokenize the texts of some requests in one call."""
    try:
        tokenized = iter(encoder.tokenize([text for texts, _ in requests for text in texts], prompt))
        for texts, queued in requests:
            queued.set_result(list(islice(tokenized, len(texts))))
    except Exception as error:
        if len(requests) == 1:
            requests[0][1].set_exception(error)
            return
        for request in requests:  # one request's text must not fail another's
            _tokenize_requests(encoder, prompt, [request])


def _unsure(served: ServedModel, row: NDArray[np.float64]) -> str:
    ranked = sorted(zip(row, served.classifier.routes, strict=True), reverse=True)
    shares = ", ".join(f"{name} {share:.2f}" for share, name in ranked)
    wanted = f"the confidence of {served.classifier.confidence:g}"
    return f"no route reaches {wanted} ({shares}): name its route"
