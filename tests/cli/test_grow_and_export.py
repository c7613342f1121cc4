"""`sentence-experts add-route`, `drop-route` and `export`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from helpers.command_line import run


def test_add_and_drop_expert(
    experts_model: Path, pairs_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, base = experts_model, experts_model.with_name(f"{experts_model.name}-plain")
    grown, dropped = tmp_path / "grown", tmp_path / "dropped"
    options = ["--seed-from", "base", "--base", base]
    status, out, error = run(capsys, "add-route", model, "marine", *options, "--out", grown)
    assert status == 0, error
    assert "[MARINE]" in out
    status, out, _ = run(capsys, "drop-route", grown, "crops", "--out", dropped)
    assert (status, "[CROPS]" in out) == (0, False)


def test_export_route(experts_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = experts_model
    status, out, error = run(capsys, "export", model, "--route", "crops", "--out", tmp_path / "dense")
    assert status == 0, error
    assert "a bert of " in out
    texts = ["rice", "", "[CROPS] typed"]
    expected = SentenceTransformer(str(model), device="cpu").encode(texts, prompt_name="crops")
    found = SentenceTransformer(str(tmp_path / "dense"), device="cpu").encode(texts)
    assert np.abs(found - expected).max() <= 1e-6
    again = run(capsys, "export", model, "--average", "--out", tmp_path / "dense")
    assert (again[0], "--overwrite" in again[2]) == (2, True)
    options = ["--average", "--out", tmp_path / "dense", "--overwrite"]
    assert run(capsys, "export", model, *options)[0] == 0
