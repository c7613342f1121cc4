"""A small tasks folder with every kind that mteb measures, and tiny encoders with and without routes."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.task_samples import make_task_model, make_tasks_folder


@pytest.fixture(scope="session")
def tasks_folder(tmp_path_factory) -> Path:
    return make_tasks_folder(tmp_path_factory.mktemp("task-rows"))


@pytest.fixture(scope="session")
def task_model(tmp_path_factory, plain_model) -> Path:
    return make_task_model(tmp_path_factory.mktemp("task-models") / "mote", plain_model)
