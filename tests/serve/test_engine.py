"""Requests that come at once share batches, and affect each other in nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from sentence_experts.models.loading import LoadConfig
from sentence_experts.serve.config import ServeConfig
from sentence_experts.serve.engine import EmbeddingEngine
from sentence_experts.serve.models import Models
from sentence_experts.serve.text_encoders import MixedEncoder

TEXTS = [f"a text about {word}" for word in ("rice", "wheat", "sleep")]


def ask(model: SentenceTransformer, *requests: Sequence[str]) -> list[Any]:
    """Return the answers to requests that come at once."""

    async def answers() -> list[Any]:
        engine = EmbeddingEngine(Models({"m": model}, LoadConfig()), ServeConfig(workers=1))
        served = engine.models.first
        asked = [engine.embed(served, texts, [None] * len(texts)) for texts in requests]
        try:
            return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 60)
        finally:
            await asyncio.to_thread(engine.close)

    return asyncio.run(answers())


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The texts of each batch, which cannot be encoded with "poison" among them."""
    real, batches = MixedEncoder.encode, list[list[str]]()

    def encode(self: Any, texts: Any) -> Any:
        batches.append([each.text for each in texts])
        if "poison" in batches[-1]:
            raise ValueError("poison")
        return real(self, texts)

    monkeypatch.setattr(MixedEncoder, "encode", encode)
    return batches


def test_requests_that_come_together_share_a_batch(
    plain: SentenceTransformer, batches: list[list[str]]
) -> None:
    requests = [TEXTS[:1], TEXTS[1:], ["x " * 2000]]
    answers = ask(plain, *requests)
    assert sorted(map(sorted, batches)) == [sorted(TEXTS), requests[2]]
    for texts, embedded in zip(requests, answers, strict=True):
        np.testing.assert_allclose(embedded.vectors, plain.encode(texts), atol=1e-6)
        assert embedded.tokens == [int(plain.preprocess([text])["attention_mask"].sum()) for text in texts]


def test_a_text_that_cannot_be_encoded_fails_its_own_request_only(
    plain: SentenceTransformer, batches: list[list[str]]
) -> None:
    first, bad, last = ask(plain, TEXTS[:1], ["poison", "b"], TEXTS[2:])
    assert isinstance(bad, ValueError)
    np.testing.assert_allclose(first.vectors, plain.encode(TEXTS[:1]), atol=1e-6)
    np.testing.assert_allclose(last.vectors, plain.encode(TEXTS[2:]), atol=1e-6)
