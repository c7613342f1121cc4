"""What every protocol needs: vectors of texts, from one of the models, through the shared batches."""

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
from sentence_experts.serve.batcher import Batcher, Lane, Observer, Piece, Reservation
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

_Untokenized = tuple[list[str], asyncio.Future[list[Piece]]]  # the texts of a request


@dataclass
class Embedded:
    """The answer for the texts of one request.

    Attributes:
        served: the model that gave it.
        vectors: (texts, dimensions), float32.
        tokens: number of tokens of each text.
        routes: the route of each text; None where the model has none, or the average of all experts took the
            place of a route.
        confidences: the probability of each route that the text decided; None where the request named it.
    """

    served: ServedModel
    vectors: NDArray[np.float32]
    tokens: list[int]
    routes: list[str | None]
    confidences: list[float | None]

    def finished(self, dimensions: int | None, normalize: bool) -> NDArray[np.float32]:
        """The vectors cut to a length, and scaled to length 1 if they are cut or should be."""
        vectors = self.vectors
        if dimensions not in (None, self.served.dimension):
            vectors, normalize = vectors[:, :dimensions], True
        if normalize:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors


@dataclass
class _Found:
    """What is known of each text so far."""

    vectors: list[Any]
    tokens: list[int]
    routes: list[str | None]
    confidences: list[float | None]


class EmbeddingEngine:
    """The models, the batches that they share, and the figures about both."""

    def __init__(self, models: Models, config: ServeConfig) -> None:
        """Prepare to serve models on the threads that the settings allow."""
        import torch

        self.models, self.config = models, config
        self.metrics = Metrics()
        self.draining = False
        self._beside = ThreadPoolExecutor(1, "tokenize")  # long texts wait for each other only
        self._waiting: dict[tuple[Lane, str | None], list[_Untokenized]] = {}
        on_cpu = all(served.model.device.type == "cpu" for served in models)
        self.batcher = Batcher(
            config.workers or (torch.get_num_threads() if on_cpu else 1),
            config.batch_tokens or (CPU_TOKENS if on_cpu else DEVICE_TOKENS),
            config.queue_tokens,
            initializer=lambda: torch.set_num_threads(1),
            observer=Observer(self.metrics.batch, self.metrics.wait.observe),
        )
        self.metrics.follow(self.batcher)

    async def embed(
        self, served: ServedModel, texts: Sequence[str], routes: Sequence[str | None], field: str = "input"
    ) -> Embedded:
        """The vectors of texts, each by its route (AUTO: by the route that the text decides).

        `field` is where the request has them, for messages.

        Raises:
            RequestError: 413 or 429, the queue cannot take them; 422, a text that the model cannot encode.
        """
        if not served.encoder.takes_empty and (
            empty := [n for n, text in enumerate(texts) if not text.strip()]
        ):
            raise RequestError(
                422, "is empty, and this model cannot encode empty texts", f"{field}.{empty[0]}"
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
        state = _Found([None] * count, [0] * count, list(routes), [None] * count)
        if automatic := [number for number, route in enumerate(routes) if route == AUTO]:
            await self._choose(served, texts, automatic, state, place, field)
        rest = [number for number, vector in enumerate(state.vectors) if vector is None]
        pieces: dict[int, Piece] = {}
        for route in dict.fromkeys(state.routes[number] for number in rest):
            numbers = [number for number in rest if state.routes[number] == route]
            of_route = await self._tokenize(served.lane, [texts[n] for n in numbers], served.prompt(route))
            pieces.update(zip(numbers, of_route, strict=True))
        place.change(sum(piece.tokens for piece in pieces.values()))
        vectors = await self.batcher.encode([pieces[number] for number in rest], place)
        for number, vector in zip(rest, vectors, strict=True):
            state.vectors[number], state.tokens[number] = vector, pieces[number].tokens
        return Embedded(served, np.stack(state.vectors), state.tokens, state.routes, state.confidences)

    async def _tokenize(self, lane: Lane, texts: list[str], prompt: str | None) -> list[Piece]:
        characters = sum(map(len, texts))
        if characters <= IN_LOOP:
            return await self._tokenize_together(lane, texts, prompt)
        if characters <= BESIDE:
            return await asyncio.to_thread(lane.tokenize, texts, prompt)
        return await asyncio.get_running_loop().run_in_executor(
            self._beside, lane.tokenize, texts, prompt, True
        )

    async def _tokenize_together(self, lane: Lane, texts: list[str], prompt: str | None) -> list[Piece]:
        """Tokenize in one call with what other requests bring now: it takes a third of the time of many."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(TOGETHER if self.batcher.busy else 0, self._tokenize_waiting)
        pieces: asyncio.Future[list[Piece]] = loop.create_future()
        self._waiting.setdefault((lane, prompt), []).append((texts, pieces))
        return await pieces

    def _tokenize_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for (lane, prompt), requests in waiting.items():
            if staying := [each for each in requests if not each[1].done()]:  # their clients have not left
                _tokenize_requests(lane, prompt, staying)

    async def _choose(
        self,
        served: ServedModel,
        texts: Sequence[str],
        numbers: Sequence[int],
        state: _Found,
        place: Reservation,
        field: str,
    ) -> None:
        """Choose routes for the texts with these numbers, as `AutoRoutedEncoder` does."""
        assert served.averaged is not None
        pieces = await self._tokenize(served.averaged, [texts[number] for number in numbers], "")
        vectors = await self.batcher.encode(pieces, place)
        probabilities = served.classifier.probabilities(np.stack(vectors))
        for number, piece, vector, row in zip(numbers, pieces, vectors, probabilities, strict=True):
            best = int(row.argmax())
            state.confidences[number] = float(row[best])
            state.routes[number] = served.classifier.routes[best]
            if row[best] >= served.classifier.confidence:
                continue
            if served.classifier.fallback == "error":
                raise RequestError(422, _unsure(served, row), f"{field}.{number}")
            state.routes[number] = None
            state.vectors[number], state.tokens[number] = vector, piece.tokens

    def close(self) -> None:
        """End the threads."""
        self.batcher.close()
        self._beside.shutdown(wait=False, cancel_futures=True)


def _tokenize_requests(lane: Lane, prompt: str | None, requests: list[_Untokenized]) -> None:
    """Tokenize the texts of some requests in one call."""
    try:
        tokenized = iter(lane.tokenize([text for texts, _ in requests for text in texts], prompt))
        for texts, pieces in requests:
            pieces.set_result(list(islice(tokenized, len(texts))))
    except Exception as error:
        if len(requests) == 1:
            requests[0][1].set_exception(error)
            return
        for request in requests:  # one request's text must not fail another's
            _tokenize_requests(lane, prompt, [request])


def _unsure(served: ServedModel, row: NDArray[np.float64]) -> str:
    ranked = sorted(zip(row, served.classifier.routes, strict=True), reverse=True)
    shares = ", ".join(f"{name} {share:.2f}" for share, name in ranked)
    wanted = f"the confidence of {served.classifier.confidence:g}"
    return f"no route reaches {wanted} ({shares}): name its route"
