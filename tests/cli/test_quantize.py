"""`sentence-experts quantize`, and what encodes with the folder that it writes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from helpers.fresh_process import run_fresh
from helpers.samples import make_tiny_encoder
from sentence_experts.cli.main import main
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.models.loading import load

PROGRAM = "from sentence_experts.cli.main import main; main()"


@pytest.fixture(scope="module")
def model(tmp_path_factory, minilm) -> Path:
    return make_tiny_encoder(tmp_path_factory.mktemp("models") / "experts", minilm, ("crops", "neuro"))


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("texts") / "texts.txt"
    file.write_text("".join(f"rice and maize grow {'in the rain ' * (n % 9)}{n}\n" for n in range(80)))
    return file


@pytest.fixture(scope="module")
def made(model, texts, tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("made") / "eight"
    return folder, run_fresh(PROGRAM, "quantize", model, "--texts", texts, "--out", folder)


def test_8_bit_vectors_are_close(model, texts, made, tmp_path):
    eight, done = made
    assert done.returncode == 0, done.stderr
    found = re.search(r"on 20 other texts: mean (0\.\d+|1\.0+), minimum (0\.\d+|1\.0+)", done.stdout)
    assert found, done.stdout
    assert float(found[2]) > 0.9
    assert "deprecated" not in done.stderr
    vectors = {}
    for name, folder in (("whole", model), ("eight", eight)):
        out = tmp_path / f"{name}.npy"
        arguments = ["--input", texts, "--route", "crops", "--out", out, "--device", "cpu"]
        with pytest.raises(SystemExit) as end:
            main(["encode", *map(str, (folder, *arguments))])
        assert end.value.code == 0
        vectors[name] = np.load(out)
    assert not np.array_equal(vectors["whole"], vectors["eight"])
    assert np.abs(vectors["whole"] - vectors["eight"]).max() < 0.2 * np.abs(vectors["whole"]).max()


def test_float32_restores_full_precision(model, made):
    eight, full = (BatchEncoder(load(made[0], device="cpu", dtype=dtype)) for dtype in (None, "float32"))
    whole = BatchEncoder(load(model, device="cpu"))
    texts = ["rice in the rain", "maize"]
    assert np.array_equal(full.encode(texts, "crops"), whole.encode(texts, "crops"))
    assert not np.array_equal(eight.encode(texts, "crops"), whole.encode(texts, "crops"))
    assert eight.vector_settings("crops") != full.vector_settings("crops")


def test_bfloat16_is_refused_for_8_bit_model(made, texts, tmp_path, capsys):
    arguments = ["--input", texts, "--route", "crops", "--device", "cpu", "--dtype", "bfloat16"]
    with pytest.raises(SystemExit) as end:
        main(["encode", *map(str, (made[0], *arguments, "--out", tmp_path / "v.npy"))])
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
    assert "8 bits, not in bfloat16; --dtype float32 gives full precision" in line
    assert not (tmp_path / "v.npy").exists()


def test_errors_are_one_line(model, texts, tmp_path, capsys):
    few = tmp_path / "few.txt"
    few.write_text("one\ntwo\n")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").touch()
    for arguments, status, said in (
        (("--texts", few, "--out", tmp_path / "new"), 2, "at least 32 are needed"),
        (("--texts", texts, "--out", tmp_path / "there"), 2, "holds other files"),
        (("--texts", tmp_path / "none.txt", "--out", tmp_path / "new"), 1, "no such file"),
    ):
        with pytest.raises(SystemExit) as end:
            main(["quantize", str(model), *map(str, arguments)])
        assert end.value.code == status
        (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
        assert said in line
    assert not (tmp_path / "new").exists()
