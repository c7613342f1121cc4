"""`sentence-experts add-route`, `drop-route`, `compare` and `export`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from helpers.command_line import run
from helpers.samples import TOPICS, make_pairs_folder, make_tiny_encoder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    return make_tiny_encoder(tmp_path_factory.mktemp("models") / "experts", minilm, tuple(TOPICS))


def test_add_compare_and_drop_expert(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = make_pairs_folder(tmp_path / "pairs")
    base = model.with_name(f"{model.name}-plain")
    grown, dropped = tmp_path / "grown", tmp_path / "dropped"
    options = ["--seed-from", "base", "--base", base]
    status, out, error = run(capsys, "add-route", model, "marine", *options, "--out", grown)
    assert status == 0, error
    assert "[MARINE]" in out
    status, out, error = run(capsys, "compare", model, grown, "--pairs", pairs)
    assert status == 0, error
    assert "2 of 2 routes are bit-equal" in out
    assert "only after: marine" in out
    assert out.count("+0.0000") == 4
    status, out, _ = run(capsys, "drop-route", grown, "crops", "--out", dropped)
    assert (status, "[CROPS]" in out) == (0, False)
    _, out, _ = run(capsys, "compare", grown, dropped)
    assert "only before: crops" in out
    assert "2 of 2" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["add-route", "a", "--seed-from", "b"], "choose average, base, or an expert"),
        (["add-route", "a", "--seed-from", "base"], "give --base"),
        (["add-route", "crops"], "a route 'crops' already"),
        (["drop-expert", "a"], "no route or expert 'a'"),
    ],
)
def test_usage_errors_of_add_and_drop(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    status, _, error = run(capsys, options[0], model, *options[1:], "--out", tmp_path / "out")
    assert (status, message in error) == (2, True), error
    assert not (tmp_path / "out").exists()


def test_export_route(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, error = run(capsys, "export", model, "--route", "crops", "--out", tmp_path / "dense")
    assert status == 0, error
    assert "a bert of " in out
    texts = ["rice", "", "[CROPS] typed"]
    expected = SentenceTransformer(str(model), device="cpu").encode(texts, prompt_name="crops")
    found = SentenceTransformer(str(tmp_path / "dense"), device="cpu").encode(texts)
    assert np.abs(found - expected).max() <= 1e-6
    again = run(capsys, "export", model, "--average", "--out", tmp_path / "dense")
    assert (again[0], "--overwrite" in again[2]) == (2, True)
    options = ["--average", "--weights", "crops=1", "--out", tmp_path / "dense", "--overwrite"]
    assert run(capsys, "export", model, *options)[0] == 0
    only_crops = SentenceTransformer(str(tmp_path / "dense"), device="cpu").encode(texts)
    assert np.abs(only_crops - expected).max() <= 1e-6


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        ([], 2, "give one of --route, --average and --all-routes"),
        (["--route", "crops", "--average"], 2, "give one of"),
        (["--route", "crops", "--weights", "crops=1"], 2, "for --average"),
        (["--average", "--weights", "crops"], 2, "EXPERT=NUMBER"),
        (["--average", "--weights", "marine=1"], 2, "not an expert"),
        (["--route", "marine"], 1, "its routes: crops"),
    ],
)
def test_usage_errors_of_export(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    status: int,
    message: str,
) -> None:
    found, _, error = run(capsys, "export", model, *options, "--out", tmp_path / "out")
    assert (found, message in error) == (status, True), error
    assert not (tmp_path / "out").exists()
