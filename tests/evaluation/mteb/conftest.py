"""A small tasks folder with every kind that mteb measures, and tiny encoders with and without routes."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.samples import make_tiny_encoder
from helpers.task_samples import make_task_model, make_tasks_folder


@pytest.fixture(scope="session")
def tasks_folder(tmp_path_factory) -> Path:
    return make_tasks_folder(tmp_path_factory.mktemp("task-rows"))


@pytest.fixture(scope="session")
def dense_model(tmp_path_factory, minilm) -> Path:
    return make_tiny_encoder(tmp_path_factory.mktemp("task-models") / "dense", minilm)


@pytest.fixture(scope="session")
def task_model(tmp_path_factory, dense_model) -> Path:
    return make_task_model(tmp_path_factory.mktemp("task-models") / "mote", dense_model)
