"""`sentence-experts tune`."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.samples import TOPICS, make_pairs_folder, make_tiny_encoder
from sentence_experts.cli.main import main
from sentence_experts.training.config import TrainConfig

SPACE = "batch_size: {type: int, low: 4, high: 8}\nmax_steps: {type: int, low: 2, high: 4}\n"


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["tune", *map(str, arguments)])
    return int(stop.value.code or 0)


def test_tune_writes_table_and_config(
    minilm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make_tiny_encoder(tmp_path / "model", minilm, experts=tuple(TOPICS))
    pairs = make_pairs_folder(tmp_path / "pairs", pairs=32)
    (tmp_path / "space.yaml").write_text(SPACE)
    out = tmp_path / "search"
    arguments = (model, "--pairs", pairs, "--out", out, "--space", tmp_path / "space.yaml")
    # A setting that is given is not searched.
    assert run(*arguments, "--trials", 2, "--fraction", 0.5, "--batch-size", 6) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["trial", "max_steps", "steps", "best"]
    assert len([line for line in shown[1:3] if line.split()[0].isdecimal()]) == 2
    assert "were chosen on this set" in " ".join(shown)
    best = TrainConfig.read(out / "best.yaml")
    assert best.batch_size == 6
    assert best.max_steps in range(2, 5)


@pytest.mark.parametrize(
    ("space", "more", "code", "message"),
    [
        ("batch: {type: int, low: 4, high: 8}", (), 1, "batch: no such setting"),
        ("batch_size: {type: int, low: 4, high: 8}", ("--batch-size", 6), 2, "nothing to search"),
    ],
)
def test_bad_search_space(
    minilm: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    space: str,
    more: tuple,
    code: int,
    message: str,
) -> None:
    (tmp_path / "space.yaml").write_text(space)
    arguments = (
        minilm,
        "--pairs",
        make_pairs_folder(tmp_path / "pairs"),
        "--out",
        tmp_path / "out",
        "--space",
        tmp_path / "space.yaml",
    )
    assert run(*arguments, *more) == code
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
