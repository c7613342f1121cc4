"""A small pairs dataset and a small tasks folder, with small encoders that have experts for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.samples import TOPICS, make_pairs_folder, make_tiny_encoder
from helpers.small_training_tasks import make_task_encoder, make_tasks_folder
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.tasks.dataset import Tasks


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    return Pairs.open(make_pairs_folder(tmp_path_factory.mktemp("pairs"), pairs=32))


@pytest.fixture(scope="session")
def tiny_experts(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    return make_tiny_encoder(tmp_path_factory.mktemp("tiny") / "experts", minilm, experts=tuple(TOPICS))


@pytest.fixture(scope="session")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Tasks:
    return make_tasks_folder(tmp_path_factory.mktemp("tasks") / "tasks")


@pytest.fixture(scope="session")
def task_experts(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    return make_task_encoder(tmp_path_factory.mktemp("tiny") / "experts", minilm)
