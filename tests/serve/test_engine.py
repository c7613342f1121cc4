"""Requests that come at once are tokenized in one call, and affect each other in nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from sentence_experts.models.loading import LoadConfig
from sentence_experts.serve.batcher import QueuedText
from sentence_experts.serve.config import ServeConfig
from sentence_experts.serve.engine import IN_LOOP, EmbeddingEngine
from sentence_experts.serve.models import Models, ServedModel

TEXTS = [f"a text about {word}" for word in ("rice", "wheat", "sleep")]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The texts of each call of the tokenizer, which refuses "poison"."""
    from sentence_experts.serve.text_encoders import MixedEncoder

    real, calls = MixedEncoder.tokenize, list[list[str]]()

    def tokenize(
        self: Any, texts: Sequence[str], prompt: str | None, beside: bool = False
    ) -> list[QueuedText]:
        calls.append(list(texts))
        if "poison" in texts:
            raise ValueError("poison")
        return real(self, texts, prompt, beside)

    monkeypatch.setattr(MixedEncoder, "tokenize", tokenize)
    return calls


def run(
    plain: SentenceTransformer, work: Callable[[EmbeddingEngine, ServedModel], Coroutine[Any, Any, Any]]
) -> Any:
    async def with_engine() -> Any:
        engine = EmbeddingEngine(Models({"m": plain}, LoadConfig()), ServeConfig())
        try:
            return await asyncio.wait_for(work(engine, engine.models.first), 60)
        finally:
            await asyncio.to_thread(engine.close)

    return asyncio.run(with_engine())


async def ask(engine: EmbeddingEngine, served: ServedModel, *requests: Sequence[str]) -> list[Any]:
    asked = [engine.embed(served, texts, [None] * len(texts)) for texts in requests]
    return await asyncio.gather(*asked, return_exceptions=True)


def test_requests_that_come_together_are_tokenized_in_one_call(
    plain: SentenceTransformer, calls: list[list[str]]
) -> None:
    requests = [TEXTS[:1], TEXTS[1:], ["x " * IN_LOOP]]
    found = run(plain, lambda engine, served: ask(engine, served, *requests))
    assert sorted(calls, key=len) == [requests[2], TEXTS]
    for texts, embedded in zip(requests, found, strict=True):
        np.testing.assert_allclose(embedded.vectors, plain.encode(texts), atol=1e-6)
        assert embedded.tokens == [int(plain.preprocess([text])["attention_mask"].sum()) for text in texts]


def test_a_text_that_cannot_be_tokenized_fails_its_own_request_only(
    plain: SentenceTransformer, calls: list[list[str]]
) -> None:
    first, bad, last = run(
        plain, lambda engine, served: ask(engine, served, TEXTS[:1], ["poison", "b"], TEXTS[2:])
    )
    assert isinstance(bad, ValueError)
    np.testing.assert_allclose(first.vectors, plain.encode(TEXTS[:1]), atol=1e-6)
    np.testing.assert_allclose(last.vectors, plain.encode(TEXTS[2:]), atol=1e-6)


def test_texts_of_a_client_that_left_are_not_tokenized(
    plain: SentenceTransformer, calls: list[list[str]]
) -> None:
    async def work(engine: EmbeddingEngine, served: ServedModel) -> Any:
        tasks = [asyncio.create_task(engine.embed(served, [text], [None])) for text in TEXTS]
        while not engine.batcher.tokens:
            await asyncio.sleep(0)
        tasks[0].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    left, *stayed = run(plain, work)
    assert isinstance(left, asyncio.CancelledError)
    assert calls == [TEXTS[1:]]
    np.testing.assert_allclose(
        np.stack([each.vectors[0] for each in stayed]), plain.encode(TEXTS[1:]), atol=1e-6
    )
