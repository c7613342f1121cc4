"""Small models and pairs that the verbs read."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.samples import TOPICS, make_pairs_folder, make_tiny_encoder


@pytest.fixture(scope="session")
def plain_model(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    return make_tiny_encoder(tmp_path_factory.mktemp("models") / "plain", minilm)


@pytest.fixture(scope="session")
def experts_model(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    return make_tiny_encoder(tmp_path_factory.mktemp("models") / "experts", minilm, tuple(TOPICS))


@pytest.fixture(scope="session")
def pairs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pairs_folder(tmp_path_factory.mktemp("pairs"))
