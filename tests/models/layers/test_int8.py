"""Blocks in 8 bits: near the vectors of full precision, and still each text's own."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from torch import nn

import sentence_experts
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.layers import int8
from sentence_experts.models.layers.int8 import Int8Linear, apply, apply_saved, calibrate

WORDS = ["the", "heart", "pumps", "blood", "lungs", "vessels", "carry", "it", "in", "light", "of", "air"]
TEXTS = [" ".join(WORDS[(row * 5 + step) % 12] for step in range(2 + row % 17)) for row in range(60)]


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return (one * other).sum(axis=1) / lengths


def test_a_layer_is_near_the_one_in_full_precision() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(16, 8)
    given = torch.randn(3, 5, 16)
    low, high = given.min().item(), given.max().item()
    expected = linear(given)
    found = Int8Linear(linear, None, low, high)(given)
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < 0.05
    assert (found - expected).abs().max() > 0


def test_two_products_fit_into_16_bits() -> None:
    linear = nn.Linear(32, 4, bias=False)
    linear.weight.data.copy_(torch.tensor([[1.0], [-1.0], [0.5], [0.0]]).expand(4, 32))
    layer = Int8Linear(linear, None, 0.0, 3.0)
    assert 2 * int(layer.weight.int().abs().max()) * int8.MAX_INPUT < 2**15
    found = layer(torch.full((5, 32), 3.0))
    assert torch.allclose(found, torch.tensor([96.0, -96.0, 48.0, 0.0]).expand(5, 4), atol=1e-3)


def test_smoothing_makes_up_for_one_large_channel() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(16, 8)
    given = torch.randn(200, 16)
    given[:, 3] *= 100
    expected = linear(given)
    smooth = int8._smoothing(given.abs().amax(dim=0), linear.weight)
    plain = Int8Linear(linear, None, given.min().item(), given.max().item())
    divided = given / smooth
    smoothed = Int8Linear(linear, smooth, divided.min().item(), divided.max().item())
    errors = [(layer(given) - expected).abs().mean().item() for layer in (smoothed, plain)]
    assert errors[0] < errors[1] / 2


def test_a_dense_encoder_stays_near(base: SentenceTransformer) -> None:
    eight = apply(copy.deepcopy(base), calibrate(base, TEXTS[:40]))
    found, expected = eight.encode(TEXTS[40:]), base.encode(TEXTS[40:])
    assert cosines(found, expected).min() > 0.99
    assert not np.array_equal(found, expected)
    alone = np.stack([eight.encode(text) for text in TEXTS[40:]])
    assert np.abs(found - alone).max() < 1e-5


def test_every_layer_of_the_blocks_and_no_other(base: SentenceTransformer) -> None:
    linear = [name for name, one in base.named_modules() if isinstance(one, nn.Linear)]
    names = {name for name, _ in int8.block_layers(base)}
    assert names == {name for name in linear if ".layer." in name or ".layers." in name}
    eight = apply(copy.deepcopy(base), calibrate(base, TEXTS))
    assert {name for name, one in eight.named_modules() if isinstance(one, Int8Linear)} == names


def test_each_expert_has_its_own(base: SentenceTransformer, scatter: Callable[..., Any]) -> None:
    encoder = scatter(sentence_experts.extend(base, ["a", "b"]))
    routed = ["[A]" + text for text in TEXTS] + ["[B]" + text for text in TEXTS]
    expected = encoder.encode(routed, prompt="")
    eight = apply(copy.deepcopy(encoder), calibrate(encoder, routed))
    assert cosines(eight.encode(routed, prompt=""), expected).min() > 0.98
    with pytest.raises(UsageError, match=r"no calibration text went through .*experts\.1.*every route"):
        calibrate(encoder, routed[: len(TEXTS)])


@pytest.mark.parametrize("family", ["bert"], indirect=True)
def test_a_saved_calibration_gives_the_same_vectors(base: SentenceTransformer, tmp_path: Path) -> None:
    found = calibrate(base, TEXTS)
    assert {"range", "smooth"} >= {name.rpartition(".")[2] for name in found}
    int8.write(found, tmp_path)
    again = copy.deepcopy(base)
    assert apply_saved(again, tmp_path)
    assert np.array_equal(again.encode(TEXTS), apply(copy.deepcopy(base), found).encode(TEXTS))
    assert not apply_saved(copy.deepcopy(base), tmp_path / "nothing")
    save_file({"0.other.layer.1.range": torch.zeros(2)}, tmp_path / int8.FILE)
    with pytest.raises(InputError, match=r"missing: 0.model.*not of this model: 0.other.layer.1;"):
        apply_saved(copy.deepcopy(base), tmp_path)
    first = min(found)
    save_file({**found, first: found[first][:1]}, tmp_path / int8.FILE)
    with pytest.raises(InputError, match=rf"int8.safetensors: of another model: {first} "):
        apply_saved(copy.deepcopy(base), tmp_path)
    (tmp_path / int8.FILE).write_bytes(b"no")
    with pytest.raises(InputError, match="cannot be read"):
        apply_saved(copy.deepcopy(base), tmp_path)


@pytest.mark.parametrize("family", ["bert"], indirect=True)
def test_where_a_calibrated_model_stays_in_full_precision(
    base: SentenceTransformer, tmp_path: Path, monkeypatch, capsys
) -> None:
    int8.write(calibrate(base, TEXTS), tmp_path)
    with pytest.raises(UsageError, match=r"8 bits, not in bfloat16; `dtype=float32`"):
        apply_saved(copy.deepcopy(base).to(torch.bfloat16), tmp_path)
    monkeypatch.setattr(int8, "can_multiply_int8", lambda: False)
    other = copy.deepcopy(base)
    assert not apply_saved(other, tmp_path)
    assert "need ONNX Runtime" in capsys.readouterr().err
    assert np.array_equal(other.encode(TEXTS), base.encode(TEXTS))
    assert not apply_saved(copy.deepcopy(base).to("meta"), tmp_path)
    assert "on meta it computes" in capsys.readouterr().err


@pytest.mark.parametrize("family", ["bert"], indirect=True)
def test_copies_and_pickles_give_the_same_vectors(base: SentenceTransformer) -> None:
    eight = apply(copy.deepcopy(base), calibrate(base, TEXTS))
    for again in (copy.deepcopy(eight), pickle.loads(pickle.dumps(eight))):
        assert np.array_equal(again.encode(TEXTS), eight.encode(TEXTS))


@pytest.mark.parametrize("family", ["bert"], indirect=True)
def test_too_few_texts(base: SentenceTransformer) -> None:
    with pytest.raises(UsageError, match="3 texts to calibrate on; at least 32"):
        calibrate(base, TEXTS[:3])


@pytest.mark.realdata
def test_minilm_keeps_its_cosines(minilm: str, real_data: Path) -> None:
    from sentence_experts.evaluation.moee.rated_pairs import RatedPairs

    pairs = RatedPairs.read(real_data / "eval" / "sts16.jsonl.gz")
    texts = list(dict.fromkeys(pairs.first))
    whole = SentenceTransformer(minilm, device="cpu")
    eight = apply(copy.deepcopy(whole), calibrate(whole, texts[:256]))
    found = cosines(eight.encode(texts[256:512]), whole.encode(texts[256:512]))
    assert found.mean() > 0.995
