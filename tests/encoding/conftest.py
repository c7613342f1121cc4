"""Tiny random encoders, with and without experts."""

from __future__ import annotations

import pytest

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.models.loading import load


@pytest.fixture(scope="session")
def plain(plain_model) -> BatchEncoder:
    return BatchEncoder(load(plain_model, device="cpu"), batch_size=4)


@pytest.fixture(scope="session")
def experts(experts_model) -> BatchEncoder:
    return BatchEncoder(load(experts_model, device="cpu"), batch_size=4)
