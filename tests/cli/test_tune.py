"""`sentence-experts tune`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.command_line import run
from sentence_experts.training.config import TrainConfig

SPACE = "batch_size: {type: int, low: 4, high: 8}\nmax_steps: {type: int, low: 2, high: 4}\n"


def test_tune_writes_table_and_config(
    experts_model: Path, pairs_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    out = tmp_path / "search"
    arguments = (experts_model, "--pairs", pairs_folder, "--out", out, "--space", tmp_path / "space.yaml")
    # A setting that is given is not searched.
    given = ("--trials", 2, "--fraction", 0.7, "--batch-size", 6)
    status, said, error = run(capsys, "tune", *arguments, *given)
    assert status == 0, error
    shown = said.splitlines()
    assert shown[0].split() == ["trial", "max_steps", "steps", "best"]
    assert len([line for line in shown[1:3] if line.split()[0].isdecimal()]) == 2
    assert "were chosen on this set" in " ".join(shown)
    figures = {line.split()[0]: float(line.split()[-1]) for line in shown[1:3]}
    named, figure = re.search(r"best: trial (\d+), validation (\d\.\d+)", said).groups()  # type: ignore[union-attr]
    assert figures[named] == max(figures.values()) == pytest.approx(float(figure), abs=1e-4)
    assert (out / "trials" / f"{int(named):03}").is_dir()
    best = TrainConfig.read(out / "best.yaml")
    assert best.batch_size == 6
    assert best.max_steps in range(2, 5)
