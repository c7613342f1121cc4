"""Tiny random encoders, with and without experts."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.samples import make_tiny_encoder
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.models.loading import load

EXPERTS = ("crops", "neuro")


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Tiny models are slower with more threads, far slower on a busy machine."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def plain_model(tmp_path_factory, minilm) -> Path:
    return make_tiny_encoder(tmp_path_factory.mktemp("models") / "plain", minilm)


@pytest.fixture(scope="session")
def experts_model(tmp_path_factory, minilm) -> Path:
    return make_tiny_encoder(tmp_path_factory.mktemp("models") / "experts", minilm, EXPERTS)


@pytest.fixture(scope="session")
def plain(plain_model) -> BatchEncoder:
    return BatchEncoder(load(plain_model, device="cpu"), batch_size=4)


@pytest.fixture(scope="session")
def experts(experts_model) -> BatchEncoder:
    return BatchEncoder(load(experts_model, device="cpu"), batch_size=4)
