"""A small pairs folder, and tiny random encoders with and without experts for its domains."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.samples import TOPICS, make_pairs_folder, make_tiny_encoder


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Tiny models are slower with more threads, far slower on a busy machine."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def pairs_folder(tmp_path_factory) -> Path:
    return make_pairs_folder(tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="session")
def plain_model(tmp_path_factory, minilm) -> Path:
    return make_tiny_encoder(tmp_path_factory.mktemp("models") / "plain", minilm)


@pytest.fixture(scope="session")
def experts_model(tmp_path_factory, minilm) -> Path:
    """Experts named like the domains of `pairs_folder`."""
    return make_tiny_encoder(tmp_path_factory.mktemp("models") / "experts", minilm, tuple(TOPICS))
