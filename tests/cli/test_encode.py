from __future__ import annotations

import shutil

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from helpers.command_line import run


@pytest.fixture
def texts(tmp_path):
    file = tmp_path / "texts.csv"
    file.write_text("id,abstract\np1,Rice in drought\np2,\np3,Wheat rust\n")
    return file


def test_encode_csv(experts_model, texts, tmp_path, capsys):
    out = tmp_path / "v.npy"
    options = ["--input", texts, "--column", "abstract", "--route", "crops", "--out", out]
    status, said, _ = run(capsys, "encode", experts_model, *options)
    assert status == 0
    assert said.strip() == f"{out}: 3 texts, 1 of them empty, 32 dimensions"
    stock = SentenceTransformer(str(experts_model), device="cpu")
    expected = stock.encode(["Rice in drought", "", "Wheat rust"], prompt_name="crops")
    assert np.abs(np.load(out) - expected).max() < 1e-6


def test_a_training_run_is_named_before_its_routes(experts_model, texts, tmp_path, capsys):
    run_folder = tmp_path / "run"
    shutil.copytree(experts_model, run_folder / "model")
    (run_folder / "run.json").write_text("{}")
    options = ("--input", texts, "--column", "abstract", "--route", "crops", "--out", tmp_path / "v.npy")
    status, _, error = run(capsys, "encode", run_folder, *options)
    assert (status, f"its model is {run_folder / 'model'}" in " ".join(error.split())) == (1, True), error
    shutil.rmtree(run_folder / "model")
    status, _, error = run(capsys, "encode", run_folder, *options)
    assert (status, "no model in this folder" in error) == (1, True), error
