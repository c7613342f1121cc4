"""Batches of texts of many requests: order, limits, and what one request can do to another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_experts.serve.batcher import SHORT, Batcher, QueuedText
from sentence_experts.serve.errors import RequestError


class Recorder:
    """Notes its batches; texts are numbers, and their vectors hold them. It waits until `go` is set."""

    padded = False

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.go = threading.Event()
        self.go.set()

    def encode(self, texts: Sequence[QueuedText]) -> list[Any]:
        self.batches.append([text.text for text in texts])
        assert self.go.wait(30)
        if any(text.text == "poison" for text in texts):
            raise ValueError("poison")
        return [(np.array([text.text], dtype=object), text.tokens) for text in texts]

    def texts(self, *texts: Any, tokens: int = 10) -> list[QueuedText]:
        return [QueuedText(self, text, None, tokens) for text in texts]


def run(work: Callable[[Batcher], Coroutine[Any, Any, Any]], **limits: int) -> Any:
    async def with_batcher() -> Any:
        queue = Batcher(**{"workers": 1, "batch_tokens": 100, "queue_tokens": 10_000, **limits})
        try:
            return await work(queue)
        finally:
            await asyncio.to_thread(queue.close)

    return asyncio.run(with_batcher())


async def encode(queue: Batcher, texts: list[QueuedText]) -> list[Any]:
    return [vector for vector, _ in await queue.encode(texts)]


@contextmanager
def busy(recorder: Recorder) -> Iterator[None]:
    """Let the running batch wait."""
    recorder.go.clear()
    try:
        yield
    finally:
        recorder.go.set()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.integers(1, 300), min_size=1, max_size=6), min_size=1, max_size=6), st.integers(1, 3)
)
def test_every_text_gets_its_own_vector_and_batches_keep_the_limit(
    requests: list[list[int]], workers: int
) -> None:
    recorder = Recorder()
    texts = [[(number, place) for place in range(len(lengths))] for number, lengths in enumerate(requests)]
    lengths = {text: requests[text[0]][text[1]] for each in texts for text in each}

    async def work(queue: Batcher) -> list[Any]:
        queued = [[QueuedText(recorder, text, None, lengths[text]) for text in each] for each in texts]
        found = await asyncio.gather(*(encode(queue, each) for each in queued))
        assert queue.tokens == 0
        return found

    found = run(work, workers=workers)
    assert [
        [tuple(vector.ravel()) if vector.ndim > 1 else vector[0] for vector in vectors] for vectors in found
    ] == texts
    for batch in recorder.batches:
        assert len(batch) == 1 or sum(lengths[text] for text in batch) <= 100
        assert len({lengths[text] <= SHORT for text in batch}) == 1
    assert sorted(text for batch in recorder.batches for text in batch) == sorted(lengths)


def test_a_large_request_does_not_hold_up_a_small_one() -> None:
    recorder = Recorder()

    async def work(queue: Batcher) -> int:
        with busy(recorder):
            large = asyncio.create_task(encode(queue, recorder.texts(*range(100))))
            await until(lambda: bool(recorder.batches))
            small = asyncio.create_task(encode(queue, recorder.texts("small")))
            await asyncio.sleep(0.01)
        await small
        began = len(recorder.batches)
        await large
        return began

    assert run(work) <= 3
    assert len(recorder.batches) >= 10


def test_texts_longer_than_a_batch_leave_a_worker_to_short_ones() -> None:
    recorder = Recorder()

    async def work(queue: Batcher) -> None:
        with busy(recorder):
            await_short = asyncio.create_task(encode(queue, recorder.texts("first")))
            await until(lambda: bool(recorder.batches))
        await await_short
        with busy(recorder):
            long = asyncio.create_task(encode(queue, recorder.texts("long", "long", tokens=5000)))
            await until(lambda: ["long"] in recorder.batches)
            short = asyncio.create_task(encode(queue, recorder.texts("short")))
            await until(lambda: ["short"] in recorder.batches)
            assert recorder.batches.count(["long"]) == 1
        await asyncio.gather(long, short)

    run(work, workers=2, queue_tokens=20_000)


def test_texts_of_a_client_that_left_are_not_encoded() -> None:
    recorder = Recorder()

    async def work(queue: Batcher) -> None:
        with busy(recorder):
            running = asyncio.create_task(encode(queue, recorder.texts("running")))
            await until(lambda: bool(recorder.batches))
            left = asyncio.create_task(encode(queue, recorder.texts(*["left"] * 50)))
            stayed = asyncio.create_task(encode(queue, recorder.texts("stayed")))
            await until(lambda: queue.tokens == 520)
            left.cancel()
            await until(lambda: queue.tokens == 20)
        await asyncio.gather(running, stayed)
        assert queue.tokens == 0

    run(work)
    assert [text for batch in recorder.batches for text in batch] == ["running", "stayed"]


def test_a_full_queue_says_when_to_come_again() -> None:
    recorder = Recorder()

    async def work(queue: Batcher) -> None:
        with busy(recorder):
            first = asyncio.create_task(encode(queue, recorder.texts(*range(90))))
            await until(lambda: bool(recorder.batches))
            with pytest.raises(RequestError, match="900 tokens wait") as refused:
                await encode(queue, recorder.texts(*range(20)))
            assert refused.value.status == 429
            assert int(refused.value.headers["Retry-After"]) >= 1
            with pytest.raises(RequestError, match="at most 1,000 are taken: split it") as too_large:
                await encode(queue, recorder.texts(*range(200)))
            assert too_large.value.status == 413
        await first
        await encode(queue, recorder.texts(*range(20)))

    run(work, queue_tokens=1000)


def test_a_text_that_cannot_be_encoded_fails_its_own_request_only() -> None:
    recorder = Recorder()

    async def work(queue: Batcher) -> list[Any]:
        asked = [encode(queue, recorder.texts(*texts)) for texts in ([1, 2], ["poison", 3], [4])]
        return await asyncio.gather(*asked, return_exceptions=True)

    good, bad, other = run(work)
    assert isinstance(bad, ValueError)
    assert [vector[0] for vector in [*good, *other]] == [1, 2, 4]


def test_clients_that_come_back_one_by_one_share_a_batch_again() -> None:
    recorder = Recorder()

    async def work(queue: Batcher) -> None:
        with busy(recorder):
            first = [asyncio.create_task(encode(queue, recorder.texts(number))) for number in range(3)]
            await until(lambda: bool(recorder.batches))
            await asyncio.sleep(0.5)  # of which a share is waited for them
        await asyncio.gather(*first)
        again = []
        for number in range(3):
            again.append(asyncio.create_task(encode(queue, recorder.texts(number))))
            await asyncio.sleep(0.001)
        await asyncio.gather(*again)
        alone = asyncio.create_task(encode(queue, recorder.texts("alone")))  # nobody else comes
        await alone

    run(work)
    assert recorder.batches == [[0, 1, 2], [0, 1, 2], ["alone"]]
