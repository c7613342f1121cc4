"""`train` takes pairs, tasks or both; every setting is a flag."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.samples import TOPICS, make_pairs_folder, make_tiny_encoder
from sentence_experts.cli.main import main
from sentence_experts.training.config import TrainConfig


def run(capsys: pytest.CaptureFixture[str], *arguments: object, verb: str = "train") -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([verb, *map(str, arguments)])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give --pairs, --tasks or both"),
        (("--tasks", "t", "--batches", "domain"), "--batches: Input should be 'auto'"),
        (("--tasks", "t", "--temperature", "0"), "--temperature: Input should be greater than 0"),
        (("--pairs", "p", "--warmup", "0.2", "--warmup-steps", "3"), "--warmup and --warmup-steps"),
        (("--pairs", "p", "--temperatures", "copd=0"), "--temperatures: give at least one route"),
    ],
)
def test_wrong_flags_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, _, error = run(capsys, "m", "--out", "x", *arguments)
    assert code == 2
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_every_setting_is_a_flag(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    monkeypatch.setenv("TERMINAL_WIDTH", "2000")
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for name in TrainConfig.model_fields:
        assert f"--{name.replace('_', '-')}" in out


def test_folder_without_training_data(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, error = run(capsys, "minilm", "--out", tmp_path / "run", "--pairs", tmp_path)
    assert code == 1
    assert "no pairs here" in error


def test_best_figure_and_folder_are_printed(
    capsys: pytest.CaptureFixture[str], minilm: str, tmp_path: Path
) -> None:
    model = make_tiny_encoder(tmp_path / "model", minilm, experts=tuple(TOPICS))
    pairs = make_pairs_folder(tmp_path / "pairs", pairs=16)
    short = ("--max-steps", 1, "--batch-size", 4, "--temperatures", "crops=0.1")
    code, out, _ = run(capsys, model, "--pairs", pairs, "--out", tmp_path / "run", *short)
    assert code == 0
    assert re.search(r"validation 0\.\d+ at step [01] of 1", out)
    assert f"model: {tmp_path / 'run' / 'model'}" in out.replace("\n", "")


def test_fit_prints_recall_and_what_was_chosen(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, minilm: str
) -> None:
    model, table = make_tiny_encoder(tmp_path / "plain", minilm), tmp_path / "table.csv"
    rows = (f"{['rain', 'crop', 'star'][n % 3]} {n},{n % 3}" for n in range(90))
    table.write_text("\n".join(["text,topic", *rows]))
    given = (model, table, "--by", "topic", "--steps", "1", "--out", tmp_path / "out")
    status, out, error = run(capsys, *given, verb="fit")
    assert status == 0, error
    assert "recall@10" in out
    assert re.search(r"chosen for heads: topic: (not trained|1 steps at 0\.00)", out)
