"""Models in 8 bits, and what encodes with the folder that `quantize` writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sentence_experts import InputError, UsageError, load, quantize
from sentence_experts.encoding.encoder import BatchEncoder

TEXTS = [f"rice and maize grow {'in the rain ' * (n % 9)}{n}" for n in range(80)]


@pytest.fixture(scope="module")
def eight(experts_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "eight"
    quantized = quantize(experts_model, TEXTS, folder)
    assert quantized.texts == 20
    assert quantized.min_cosine > 0.9
    return folder


def test_8_bit_vectors_are_close(experts_model: Path, eight: Path) -> None:
    models = (BatchEncoder(load(each, device="cpu")) for each in (experts_model, eight))
    whole, small = (each.encode(TEXTS, "crops") for each in models)
    assert not np.array_equal(whole, small)
    assert np.abs(whole - small).max() < 0.2 * np.abs(whole).max()


def test_float32_restores_full_precision(experts_model: Path, eight: Path) -> None:
    small, full = (BatchEncoder(load(eight, device="cpu", dtype=dtype)) for dtype in (None, "float32"))
    whole = BatchEncoder(load(experts_model, device="cpu"))
    texts = ["rice in the rain", "maize"]
    assert np.array_equal(full.encode(texts, "crops"), whole.encode(texts, "crops"))
    assert not np.array_equal(small.encode(texts, "crops"), whole.encode(texts, "crops"))
    assert small.vector_settings("crops") != full.vector_settings("crops")


def test_bfloat16_is_refused_for_8_bit_model(eight: Path) -> None:
    with pytest.raises(UsageError, match="8 bits, not in bfloat16; `dtype=float32` gives full precision"):
        load(eight, device="cpu", dtype="bfloat16")


def test_errors(experts_model: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").touch()
    with pytest.raises(UsageError, match="at least 32 are needed"):
        quantize(experts_model, ["one", "two"], tmp_path / "new")
    with pytest.raises(UsageError, match="holds other files"):
        quantize(experts_model, TEXTS, tmp_path / "there")
    with pytest.raises(InputError, match="no such file"):
        quantize(experts_model, tmp_path / "none.txt", tmp_path / "new")
    assert not (tmp_path / "new").exists()
