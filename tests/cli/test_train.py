"""`train` takes pairs, tasks or both; every setting is a flag."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.command_line import run
from sentence_experts.training.config import TrainConfig


def test_every_setting_is_a_flag(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    monkeypatch.setenv("TERMINAL_WIDTH", "2000")
    code, out, _ = run(capsys, "train", "--help")
    assert code == 0
    for name in TrainConfig.model_fields:
        assert f"--{name.replace('_', '-')}" in out


def test_best_figure_and_folder_are_printed(
    capsys: pytest.CaptureFixture[str], experts_model: Path, pairs_folder: Path, tmp_path: Path
) -> None:
    short = ("--max-steps", 1, "--batch-size", 4, "--temperatures", "crops=0.1")
    code, out, _ = run(
        capsys, "train", experts_model, "--pairs", pairs_folder, "--out", tmp_path / "run", *short
    )
    assert code == 0
    assert re.search(r"validation 0\.\d+ at step [01] of 1", out)
    assert f"model: {tmp_path / 'run' / 'model'}" in out.replace("\n", "")


def test_fit_prints_recall_and_what_was_chosen(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, plain_model: Path
) -> None:
    table = tmp_path / "table.csv"
    rows = (f"{['rain', 'crop', 'star'][n % 3]} {n},{n % 3}" for n in range(90))
    table.write_text("\n".join(["text,topic", *rows]))
    given = (plain_model, table, "--by", "topic", "--steps", "1", "--out", tmp_path / "out")
    status, out, error = run(capsys, "fit", *given)
    assert status == 0, error
    assert "recall@10" in out
    assert re.search(r"chosen for heads: topic: (no steps|1 steps at 0\.00)", out)
