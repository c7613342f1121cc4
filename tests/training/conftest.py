"""A small pairs dataset and a small encoder with an expert for each of its domains."""

from __future__ import annotations

from pathlib import Path

import pytest

from samples import TOPICS, make_pairs_folder, make_tiny_encoder
from sentence_experts.pairs.dataset import PairsFolder


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> PairsFolder:
    return PairsFolder.open(make_pairs_folder(tmp_path_factory.mktemp("pairs"), pairs=32))


@pytest.fixture(scope="session")
def tiny_experts(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    return make_tiny_encoder(tmp_path_factory.mktemp("tiny") / "experts", minilm, experts=tuple(TOPICS))
