"""`sentence-experts tasks`, and `extend --tasks` on what it wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.small_tasks import task_content, write_rows, write_task_file
from sentence_experts.cli.main import main
from sentence_experts.tasks.dataset import Tasks


def _run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    return write_task_file(tmp_path, task_content(tmp_path))


SHARES = ("--fractions", "0.6,0.2,0.2")


def test_table_shows_datasets_and_problems(
    task_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(tmp_path / "train.jsonl", "a", encoding="utf-8") as file:
        file.write('{"text": "", "label": "glad"}\n')
    assert _run("tasks", task_file, "--out", tmp_path / "out", *SHARES, "--max-eval", 5) == 0
    shown = capsys.readouterr().out
    for name in ("retrieval/plants", "classification/moods", "clustering/posts", "sts/small"):
        assert name in shown
    assert "classification/moods: set aside 1: text: empty text" in shown
    assert "route clustering: texts begin with 'clustering: ', with the expert of document" in shown
    assert Tasks.open(tmp_path / "out").counts["sts"]["small"] == {"test": 5}


def test_negatives_are_no_rows_that_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"anchor": f"q{n}", "positive": f"d{n}", "negative": "d0" if n % 2 else "d1", "split": split}
        for n, split in enumerate(["test"] * 2 + ["train"] * 20 + ["dev"] * 4)
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    write_task_file(tmp_path, {"search": {"kind": "retrieval", "datasets": {"d": {"file": "rows.jsonl"}}}})
    assert _run("tasks", tmp_path / "tasks.yaml", "--out", tmp_path / "out") == 0
    shown = capsys.readouterr().out
    assert re.search(r"search/d +(│ +)?20 +(│ +)?4 +(│ +)?2 +(│ +)?- +(│ +)?0\b", shown), shown
    assert "removed 24: negatives seen in evaluation" in shown


def test_errors_are_one_line(task_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("tasks", task_file, "--out", tmp_path / "out", "--fractions", "0.5,0.6") == 2
    assert "--fractions: give three shares" in capsys.readouterr().err
    write_rows(tmp_path / "sts.jsonl", [{"a": "x"}])
    assert _run("tasks", task_file, "--out", tmp_path / "out", *SHARES) == 1
    shown = capsys.readouterr().err.strip()
    assert shown.startswith("error: tasks.sts.datasets.small:")
    assert "lacks the columns b, score; it has: a" in shown
    assert "\n" not in shown


def test_extend_shows_which_routes_share_an_expert(
    task_file: Path, plain_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("extend", plain_model, "--tasks", task_file, "--out", tmp_path / "a") == 0
    assert "expert 1: clustering, which shares the expert of document" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prefixes", "a=b: "], "a task file has its own under instructions:"),
        (["--route", "none", "--router", "learned"], "leave out --route none"),
    ],
)
def test_options_that_conflict_with_tasks(
    task_file: Path, tmp_path: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("extend", "minilm", "--tasks", task_file, "--out", tmp_path / "m", *options) == 2
    assert message in capsys.readouterr().err
