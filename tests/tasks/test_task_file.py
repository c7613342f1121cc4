"""The task file: what is filled in, which routes and experts there are, and one line for each mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.small_tasks import write_task_file
from sentence_experts.errors import InputError
from sentence_experts.tasks.task_file import TaskFile

FILE = {"file": "rows.jsonl"}


def _read(folder: Path, tasks: dict[str, Any]) -> TaskFile:
    return TaskFile.read(write_task_file(folder, tasks))


def _task(kind: str = "classification", **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "datasets": {"one": FILE}, **fields}


def test_what_is_left_out_is_as_published(tmp_path: Path) -> None:
    names = ("retrieval", "classification", "clustering")
    hierarchy = _read(tmp_path, {name: _task(name) for name in names})
    assert hierarchy.instructions() == {
        "query": "search query: ",
        "document": "search document: ",
        "classification": "classification: ",
        "clustering": "clustering: ",
    }
    training = {task.name: (task.batches, task.temperature) for task in hierarchy.trainable()}
    assert training == {
        "retrieval": ("homogeneous", 0.03),
        "classification": ("heterogeneous", 0.03),
        "clustering": ("heterogeneous", 0.06),
    }
    assert hierarchy.tasks["retrieval"].anchor_route == "query"
    assert hierarchy.tasks["retrieval"].positive_route == "document"


def test_a_fifth_task_is_a_block_of_its_own(tmp_path: Path) -> None:
    tasks = {"retrieval": _task("retrieval"), "titles": _task("pairs", temperature=0.1, weight=2)}
    hierarchy = _read(tmp_path, tasks)
    assert hierarchy.instructions()["titles"] == "titles: "
    assert hierarchy.tasks["titles"].temperature == 0.1
    assert hierarchy.tasks["titles"].weight == 2


def test_routes_share_experts(tmp_path: Path) -> None:
    shared = _task("clustering", experts={"clustering": "document"})
    hierarchy = _read(tmp_path, {"retrieval": _task("retrieval"), "clustering": shared})
    assert hierarchy.experts() == {"query": "query", "document": "document", "clustering": "document"}


def test_measured_tasks_add_no_routes_unless_they_say_so(tmp_path: Path) -> None:
    tasks = {"classification": _task(), "sts": _task("sts")}
    assert list(_read(tmp_path, tasks).instructions()) == ["classification"]
    tasks["sts"]["instructions"] = {"sts": "similarity: "}
    assert list(_read(tmp_path, tasks).instructions()) == ["classification", "sts"]


WRONG = {
    "kind": ({"a": _task("ranking")}, "tasks.a.kind: there is no kind 'ranking'; known kinds: retrieval"),
    "key of a task": (
        {"a": _task(temprature=1)},
        "tasks.a.temprature: no such setting; did you mean temperature?",
    ),
    "key of a dataset": (
        {"a": _task(datasets={"one": {**FILE, "colour": "x"}})},
        "tasks.a.datasets.one.colour: no such setting; known: file, files",
    ),
    "column of another kind": (
        {"a": _task("retrieval", datasets={"one": {**FILE, "score": "x"}})},
        "datasets.one: score: rows of kind retrieval have anchor, positive, negative, label, no score",
    ),
    "no place": ({"a": _task(datasets={"one": {"text": "x"}})}, "one of file, files, corpus, hub (got none)"),
    "two places": ({"a": _task(datasets={"one": {**FILE, "hub": "x"}})}, "(got file and hub)"),
    "splits of a file": (
        {"a": _task(datasets={"one": {**FILE, "splits": {"test": "x"}}})},
        "splits: is for a hub dataset, and has no effect on a file",
    ),
    "two instructions": (
        {"a": _task(instructions={"r": "x: "}), "b": _task(instructions={"r": "y: "})},
        "b.instructions: route 'r' has two instructions, 'x: ' and 'y: '",
    ),
    "two routes": (
        {"a": _task(instructions={"r": "x: "}), "b": _task(instructions={"s": "x: "})},
        "routes 'r' and 's' have the same instruction 'x: '",
    ),
    "empty instruction": ({"a": _task(instructions={"r": " "})}, "the instruction of route 'r' is empty"),
    "expert of no route": (
        {"a": _task(experts={"a": "document"})},
        "a.experts: a: document: there is no route 'document'; the routes are a",
    ),
    "expert of a sharing route": (
        {"a": _task(experts={"a": "b"}), "b": _task(experts={"b": "c"}), "c": _task()},
        "a.experts: a: b: 'a' or 'b' already uses the expert of 'c'",
    ),
    "measured under a route that is not there": (
        {"c": _task(), "s": _task("sts")},
        "under the route 'classification'",
    ),
    "training split of a measured kind": (
        {"c": _task(), "sts": _task("sts", datasets={"one": {"files": {"train": "x.jsonl"}}})},
        "kind sts is only measured",
    ),
    "no dataset": ({"a": _task(datasets={})}, "tasks.a.datasets: "),
    "name": ({"a/b": _task()}, "task and dataset name 'a/b': use letters"),
    "temperature": ({"a": _task(temperature=0)}, "tasks.a.temperature: Input should be greater than 0"),
}


def test_a_file_of_test_sets_alone_needs_no_trained_task(tmp_path: Path) -> None:
    found = TaskFile.read(write_task_file(tmp_path, {"s": _task("sts"), "r": _task("reranking")}))
    assert found.tasks["s"].instructions == {"classification": "classification: "}
    assert list(found.tasks["r"].instructions) == ["query", "document"]


@pytest.mark.parametrize("mistake", WRONG)
def test_one_line_for_each_mistake(tmp_path: Path, mistake: str) -> None:
    tasks, message = WRONG[mistake]
    with pytest.raises(InputError) as error:
        _read(tmp_path, tasks)
    assert message in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "tasks.yaml"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "cannot be read as a task file"),
        ("- 1", "begins with 'tasks:'"),
    ],
)
def test_files_that_are_no_task_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "tasks.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        TaskFile.read(tmp_path / "tasks.yaml")
