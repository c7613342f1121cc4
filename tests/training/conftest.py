"""A small pairs dataset and a small tasks folder, with small encoders that have experts for them."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from helpers.samples import make_pairs_folder
from helpers.small_training_tasks import make_task_encoder, make_tasks_folder
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.tasks.dataset import Tasks
from sentence_experts.training.validation import Validator


@pytest.fixture
def last_step_is_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean that chooses the best step rises: a tiny model may be at its best before training."""
    measure, times = Validator.__call__, count()

    def rising(validator: Validator, *args: Any, **kwargs: Any) -> dict[str, float]:
        return {**measure(validator, *args, **kwargs), "validation_mean": float(next(times))}

    monkeypatch.setattr(Validator, "__call__", rising)


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    return Pairs.open(make_pairs_folder(tmp_path_factory.mktemp("pairs"), pairs=32))


@pytest.fixture(scope="session")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Tasks:
    return make_tasks_folder(tmp_path_factory.mktemp("tasks") / "tasks")


@pytest.fixture(scope="session")
def task_experts(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    return make_task_encoder(tmp_path_factory.mktemp("tiny") / "experts", minilm)
