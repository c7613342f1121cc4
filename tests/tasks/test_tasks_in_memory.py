"""Task datasets of tables, and compiled without a folder."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from helpers.small_tasks import moods, questions
from sentence_experts.errors import InputError, UsageError
from sentence_experts.tasks.compile import compile_tasks
from sentence_experts.tasks.dataset import Tasks
from sentence_experts.tasks.split import SPLITS

SEARCH = {
    "kind": "retrieval",
    "datasets": {
        "plants": {"table": pd.DataFrame(questions(120)), "anchor": "question", "positive": "passage"}
    },
}
MOODS = {"kind": "classification", "datasets": {"moods": pd.DataFrame(moods(60))}}


def test_tables_compile_and_save(tmp_path: Path) -> None:
    tasks = compile_tasks({"search": SEARCH, "mood": MOODS}, fractions=[0.4, 0.3, 0.3])
    assert tasks.path is None
    assert repr(tasks).startswith("Tasks(search (train: ")
    saved = tasks.save(tmp_path / "tasks")
    assert saved.fingerprint() == tasks.fingerprint()
    assert saved.task_file == tasks.task_file
    for split in SPLITS:
        assert saved.pairs("search", "plants", split).equals(tasks.pairs("search", "plants", split))
        assert saved.texts("mood", "moods", split).equals(tasks.texts("mood", "moods", split))
    assert set(saved.to_pandas()["task"]) == {"search", "mood"}
    assert tasks.save(tmp_path / "tasks").fingerprint() == tasks.fingerprint()
    other = compile_tasks({"search": SEARCH}, fractions=[0.4, 0.3, 0.3])
    with pytest.raises(UsageError, match="made with another content"):
        other.save(tmp_path / "tasks")
    assert other.save(tmp_path / "tasks", overwrite=True).fingerprint() == other.fingerprint()
    saved = tasks.save(tmp_path / "tasks", overwrite=True)
    again = saved.save(tmp_path / "again")
    assert again.fingerprint() == saved.fingerprint()
    assert Tasks.of(tasks) is tasks


def test_split_column_of_a_table_is_kept() -> None:
    frame = pd.DataFrame(moods(60)).assign(split=["train"] * 40 + ["test"] * 20)
    tasks = compile_tasks({"tasks": {"mood": {"kind": "classification", "datasets": {"moods": frame}}}})
    assert tasks.texts("mood", "moods", "test").num_rows == 20


def test_table_without_a_column_is_refused() -> None:
    frame = pd.DataFrame(moods(60)).drop(columns="label")
    with pytest.raises(InputError, match=r"tasks\.mood\.datasets\.moods: the table lacks the column label"):
        compile_tasks({"mood": {"kind": "classification", "datasets": {"moods": frame}}})
