from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.command_line import run
from helpers.samples import make_tiny_encoder
from helpers.task_samples import make_task_model, make_tasks_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory, minilm) -> Path:
    folder = tmp_path_factory.mktemp("evaluate-tasks")
    make_tasks_folder(folder)
    make_task_model(folder / "mote", make_tiny_encoder(folder / "dense", minilm))
    return folder


def test_evaluate_tasks_folder(folder, tmp_path, capsys):
    arguments = [
        "evaluate",
        folder / "mote",
        folder / "dense",
        "--tasks",
        folder / "tasks",
        "--out",
        tmp_path,
    ]
    arguments += [
        "--only",
        "sts",
        "--only",
        "retrieval",
        "--device",
        "cpu",
        "--name",
        f"EM={folder / 'dense'}",
    ]
    status, out, err = run(capsys, *arguments, "--route-map", "mote:retrieval.papers.query=document")
    assert status == 0, err
    for part in (
        "By type of task",
        "Retrieval (1)",
        "sts.papers",
        "Spearman",
        "Average over datasets (2)",
        "EM",
    ):
        assert part in out
    found = json.loads((tmp_path / "tasks.json").read_text())
    routes = found["models"][0]["runs"][0]["settings"]["route_of_task"]
    assert routes["retrieval.papers"] == {"query": "document", "document": "document"}
    assert "| sts.papers | Spearman |" in (tmp_path / "tasks.md").read_text()


def test_unavailable_hub_tasks_fail_at_the_end(folder, tmp_path, capsys):
    status, out, err = run(capsys, "evaluate", folder / "mote", "--mteb", "STSBenchmark", "--out", tmp_path)
    assert status == 1
    assert "STSBenchmark: left out, its data cannot be loaded" in err
    assert err.splitlines()[-1].startswith("error: 1 tasks were not measured")
    assert "Not measured, and not part of any average: STSBenchmark." in out
