"""The benchmark of a GPU: its measuring code runs on a CPU, and without a GPU it says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import gpu
from helpers.samples import make_tiny_encoder


@pytest.mark.slow
def test_every_table_is_measured(minilm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "WORDS", {"titles": 3, "abstracts": 6})
    base = str(make_tiny_encoder(tmp_path / "base", minilm))
    sizes = gpu.Sizes(texts=4, batch_size=4, experts=(2,), turns=2, rounds=1)
    found = dict(gpu.measure(base, tmp_path, "cpu", sizes))
    assert {name: len(rows) for name, rows in found.items()} == {
        "encode": 2 * len({(row["model"], row["way"]) for row in found["encode"]}),
        "mixed": 4,
        "paging": 3,
        "training": 6,
    }
    encoded = {(row["model"], row["way"], row["texts"]): row for row in found["encode"]}
    assert {model for model, _, _ in encoded} == {gpu.DENSE, "experts"}
    assert encoded[gpu.DENSE, gpu.PEER, "titles"]["ratio"] == 1
    assert all(row["min_cosine"] > 0.98 for row in found["encode"])
    text = gpu.as_text(found, "a processor", sizes)
    assert all(f"{name.capitalize()}:" in text for name in found)


def test_without_a_gpu_it_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["gpu.py"])
    assert gpu.main() == 2
    assert capsys.readouterr().err == f"{gpu.NO_GPU}\n"
