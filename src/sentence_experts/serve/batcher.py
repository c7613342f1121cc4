"""Texts of all requests in shared batches, with a limited number of tokens each.

Requests take turns by tokens (start-time fair queueing): each text is given a turn with the tokens that its
request had before it, so a request of a thousand texts does not hold up those that come after it. Short and
long texts go in their own batches, since all texts of a batch end together.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sentence_experts.serve.errors import RequestError

SHORT = 128  # maximum number of tokens of a short text; longer texts do not share a batch with it
RESERVED_SECONDS = 5.0  # time after a short text in which texts longer than a batch leave a worker free
# Clients that were answered together come back at about the same time. A small batch waits for as many texts
# as the last one had, at most this share of the time that it took: fewer tokens cost nearly as much as these.
LINGER, BUSY_TOKENS = 0.15, 128
RATE_WEIGHT = 0.1  # weight of the newest batch in the running mean of tokens per second

Vector = NDArray[np.float32]


class TextEncoder(Protocol):
    """An encoder of batches; one per model."""

    padded: bool

    def encode(self, texts: Sequence[QueuedText]) -> list[tuple[Vector, int]]:
        """Return the vector and the number of tokens of each text."""


@dataclass(eq=False, slots=True)
class QueuedText:
    """A text to encode.

    Attributes:
        encoder: encoder of the text.
        text: text to encode.
        prompt: prompt in front of the text, or the name of its route.
        tokens: approximate number of tokens.
    """

    encoder: TextEncoder
    text: str
    prompt: str | None
    tokens: int


@dataclass(eq=False, slots=True)
class _Job:
    """The texts of one request, and the results of those that are done."""

    results: list[Any]
    left: int
    tokens: int
    done: asyncio.Future[list[tuple[Vector, int]]]


class _Entry(NamedTuple):
    """A text in the queue; entries are ordered by their turns, and by their numbers, which are unique."""

    turn: int
    number: int
    text: QueuedText
    job: _Job
    place: int  # index in the job


@dataclass
class Batcher:
    """An encoder of the texts of many requests on a few threads.

    Every method belongs to the event loop, except for what runs in the workers.

    Attributes:
        workers: number of batches at a time.
        batch_tokens: maximum number of tokens per batch; a longer text gets its own.
        queue_tokens: maximum number of tokens in accepted requests.
        initializer: function called in every thread when it begins.
        on_batch: function called with the numbers of texts, tokens and requests of a batch.
        on_wait: function called with the seconds that a request waited for its vectors.
    """

    workers: int
    batch_tokens: int
    queue_tokens: int
    initializer: Callable[[], Any] = lambda: None
    on_batch: Callable[[int, int, int], None] = lambda texts, tokens, requests: None
    on_wait: Callable[[float], None] = lambda seconds: None

    def __post_init__(self) -> None:
        self.tokens = 0  # number of tokens in accepted requests that are not encoded yet
        self.rate = 0.0  # tokens per second
        self._queues: dict[Hashable, list[_Entry]] = {}
        self._clock = self._count = self._running = 0
        self._short_seen = -RESERVED_SECONDS
        self._scheduled = False
        self._expected, self._linger_until = 0, 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._pool = ThreadPoolExecutor(self.workers, "encode", self.initializer)

    async def encode(self, texts: Sequence[QueuedText]) -> list[tuple[Vector, int]]:
        """Return the vector and number of tokens of each text of a request.

        The texts leave the queue if the caller is cancelled.

        Raises:
            RequestError: there are too many tokens in the request, or waiting.
        """
        if not texts:
            return []
        loop, started = asyncio.get_running_loop(), time.monotonic()
        tokens = sum(text.tokens for text in texts)
        self._check_room(tokens)
        job = _Job([None] * len(texts), len(texts), tokens, loop.create_future())
        self.tokens += tokens
        turn = self._clock
        for index, text in enumerate(texts):
            turn += text.tokens
            self._count += 1
            if short := text.tokens <= SHORT:
                self._short_seen = started
            waiting = self._queues.setdefault((id(text.encoder), short), [])
            heapq.heappush(waiting, _Entry(turn, self._count, text, job, index))
        if not self._scheduled:  # batches form after all requests that are ready now have been read
            self._scheduled = True
            loop.call_soon(self._dispatch)
        try:
            return await job.done
        finally:
            job.done.cancel()  # no effect on one that is done
            self.tokens -= job.tokens
            self.on_wait(time.monotonic() - started)

    def _check_room(self, tokens: int) -> None:
        if tokens > self.queue_tokens:
            raise RequestError(
                413,
                f"about {tokens:,} tokens in one request; at most {self.queue_tokens:,} are taken: split it",
            )
        if self.tokens + tokens > self.queue_tokens:
            seconds = self.tokens / self.rate if self.rate else 1.0
            raise RequestError(
                429, f"{self.tokens:,} tokens wait to be encoded; try again later", None, min(seconds, 60.0)
            )

    def close(self) -> None:
        """End the threads, once the running batches are done."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _dispatch(self) -> None:
        """Begin batches while workers are free."""
        self._scheduled = False
        if (rest := self._linger()) > 0:
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(rest, self._after_linger)
            return
        while self._running < self.workers and (batch := self._next_batch()):
            self._running += 1
            running = asyncio.get_running_loop().run_in_executor(self._pool, _encode, batch)
            running.add_done_callback(lambda done, batch=batch: self._deliver(batch, done))  # type: ignore[misc]

    def _after_linger(self) -> None:
        self._linger_until, self._timer = 0.0, None
        self._dispatch()

    def _linger(self) -> float:
        """Return how many seconds to wait for more texts."""
        rest = self._linger_until - time.monotonic()
        if rest <= 0 or not self._queues:
            return 0.0
        waiting = [
            entry.text.tokens for entries in self._queues.values() for entry in entries[: self._expected]
        ]
        return rest if len(waiting) < self._expected and sum(waiting) < BUSY_TOKENS else 0.0

    def _next_batch(self) -> list[_Entry]:
        """Return the texts of one batch, fairest first; none if nothing may begin now."""
        last_worker = self.workers > 1 and self._running == self.workers - 1
        reserve = last_worker and time.monotonic() - self._short_seen < RESERVED_SECONDS
        best: list[_Entry] = []
        for key, waiting in list(self._queues.items()):
            while waiting and waiting[0].job.done.done():  # its client has left
                heapq.heappop(waiting)
            if not waiting:
                del self._queues[key]
            elif not (reserve and waiting[0].text.tokens > self.batch_tokens):
                best = waiting if not best or waiting[0] < best[0] else best
        batch: list[_Entry] = []
        tokens = longest = 0
        while best:
            text = best[0].text
            longest = max(longest, text.tokens)
            tokens = longest * (len(batch) + 1) if text.encoder.padded else tokens + text.tokens
            if batch and tokens > self.batch_tokens:
                break
            batch.append(heapq.heappop(best))
            while best and best[0].job.done.done():
                heapq.heappop(best)
        if batch:
            self._clock = max(self._clock, batch[0].turn)
        return batch

    def _deliver(self, batch: list[_Entry], done: asyncio.Future[tuple[list[Any], float]]) -> None:
        """Give the requests their results."""
        self._running -= 1
        results, seconds = done.result()
        about = sum(entry.text.tokens for entry in batch)
        rate = about / max(seconds, 1e-6) * self.workers
        self.rate = rate if not self.rate else (1 - RATE_WEIGHT) * self.rate + RATE_WEIGHT * rate
        requests = len({id(entry.job) for entry in batch})
        tokens = sum(result[1] for result in results if not isinstance(result, Exception))
        self.on_batch(len(batch), tokens, requests)
        if requests > 1:
            self._expected, self._linger_until = len(batch), time.monotonic() + LINGER * seconds
        for entry, result in zip(batch, results, strict=True):
            job = entry.job
            if job.done.done():
                continue
            if isinstance(result, Exception):
                job.done.set_exception(result)
                continue
            job.results[entry.place] = result
            job.left -= 1
            job.tokens -= entry.text.tokens
            self.tokens -= entry.text.tokens
            if not job.left:
                job.done.set_result(job.results)
        self._dispatch()


def _encode(batch: Sequence[_Entry]) -> tuple[list[tuple[Vector, int] | Exception], float]:
    """Return the result of each text of a batch, or the error of its request's texts; and the seconds."""
    started = time.perf_counter()
    results: list[tuple[Vector, int] | Exception]
    try:
        results = [*batch[0].text.encoder.encode([entry.text for entry in batch])]
    except Exception as error:
        results = [error] * len(batch)
        jobs = {id(entry.job) for entry in batch}
        for job in jobs if len(jobs) > 1 else ():  # one request's text must not fail another's
            numbers = [number for number, entry in enumerate(batch) if id(entry.job) == job]
            for number, result in zip(numbers, _encode([batch[n] for n in numbers])[0], strict=True):
                results[number] = result
    return results, time.perf_counter() - started
