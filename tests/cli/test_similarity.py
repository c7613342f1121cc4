"""`sentence-experts similarity` on tiny models with domain tokens."""

from __future__ import annotations

import json

import pytest

from helpers.command_line import run
from helpers.samples import make_tiny_encoder

ROUTES = ("crops", "neuro", "heart")


@pytest.fixture(scope="module")
def models(tmp_path_factory, minilm):
    """The same experts twice, of other random weights."""
    import torch

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models")
    return [
        make_tiny_encoder(folder / name, minilm, ROUTES, seed) for seed, name in enumerate(("one", "two"))
    ]


@pytest.fixture
def texts(tmp_path):
    file = tmp_path / "texts.jsonl"
    lines = [{"id": n, "abstract": f"study {n} of {'rice ' * (n % 5)} and light"} for n in range(30)]
    file.write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"id": 30, "abstract": ""}]))
    return file


def test_similarity_of_two_models(models, texts, tmp_path, capsys):
    out = tmp_path / "out"
    common = ["--texts", texts, "--column", "abstract", "--sample", 20, "--out", out, "--device", "cpu"]
    status, shown, err = run(capsys, "similarity", models[0], "--against", models[1], *common)
    assert status == 0, err
    assert "1 empty texts left out" in err
    assert all(pair in shown for pair in ("crops neuro", "heart neuro"))
    found = json.loads((out / "similarity.json").read_text())
    assert found["texts"] == {
        "file": "texts.jsonl",
        "read": 31,
        "used": 20,
        "seed": 0,
        "empty": 1,
        "repeated": 0,
    }
    assert [row["routes"] for row in found["pairs"]] == [
        ["crops", "heart"],
        ["crops", "neuro"],
        ["heart", "neuro"],
    ]
    assert all(0 <= row["welch_less"]["p_value"] <= row["welch_less"]["p_holm"] for row in found["pairs"])
    assert list(found["pairs"][0]["models"]) == ["one", "two"]
    assert (out / "similarity.png").read_bytes()[:4] == b"\x89PNG"
    before = (out / "similarity.json").read_bytes()
    assert run(capsys, "similarity", models[0], "--against", models[1], *common)[0] == 0
    assert (out / "similarity.json").read_bytes() == before
    status, shown, _ = run(capsys, "similarity", models[0], *common, "--routes", "heart,crops", "--overwrite")
    assert status == 0
    assert json.loads((out / "similarity.json").read_text())["pairs"][0]["routes"] == ["heart", "crops"]
