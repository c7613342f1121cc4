"""`train` takes pairs or tasks, and refuses the flags of the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentence_experts.cli.main import main
from sentence_experts.training.config import RunConfig, TrainConfig
from sentence_experts.training.task_config import TaskConfig


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["train", "--model", "m", "--out", "x", *[str(argument) for argument in arguments]])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give --pairs or --tasks"),
        (("--pairs", "p", "--tasks", "t"), "not both"),
        (("--tasks", "t", "--swap"), "--swap: means nothing with --tasks, only with --pairs"),
        (("--pairs", "p", "--curriculum", "static"), "--curriculum: means nothing with --pairs"),
        (
            ("--tasks", "t", "--batches", "mixed"),
            "--batches: Input should be 'homogeneous' or 'heterogeneous'",
        ),
        (("--pairs", "p", "--batches", "homogeneous"), "--batches: Input should be 'mixed' or 'domain'"),
        (("--tasks", "t", "--temperature", "0"), "--temperature: Input should be greater than 0"),
    ],
)
def test_wrong_flags_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, _, error = run(capsys, *arguments)
    assert code == 2
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_every_setting_of_both_is_a_flag_that_says_whose_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    monkeypatch.setenv("TERMINAL_WIDTH", "2000")
    code, out, _ = run(capsys, "--help")
    assert code == 0
    lines = {word: line for line in out.splitlines() for word in line.split() if word.startswith("--")}
    for settings, source in ((TrainConfig, "With --pairs: "), (TaskConfig, "With --tasks: ")):
        for name in settings.model_fields:
            assert (source in lines[flag(name)]) == (name not in RunConfig.model_fields), name


def test_a_folder_that_holds_no_tasks_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, error = run(capsys, "--tasks", tmp_path)
    assert code == 1
    assert "no task datasets here" in error
