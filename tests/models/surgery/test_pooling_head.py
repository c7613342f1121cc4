"""Pooling and heads: computed by hand from the tokens, and loaded by stock sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from torch import Tensor

import sentence_experts
from sentence_experts.errors import InputError
from sentence_experts.models.files.saving import save
from sentence_experts.models.surgery.pooling_head import describe_modules

NAMES = ["copd", "cvd"]
ROUTED = ["[COPD]the heart pumps blood", "[CVD]lungs", "[CVD]", "[COPD]plants crops and roots " * 3]


def tokens_and_mask(encoder: SentenceTransformer) -> tuple[Tensor, Tensor]:
    features = encoder.preprocess(ROUTED)
    with torch.no_grad():
        return encoder[0](features)["token_embeddings"], features["attention_mask"][:, :, None]


def dense(module: torch.nn.Module, vectors: Tensor) -> Tensor:
    return vectors @ module.linear.weight.T + module.linear.bias


def unit(vectors: Tensor) -> np.ndarray:
    return (vectors / vectors.norm(dim=1, keepdim=True)).detach().numpy()


def test_mean_and_cls_pooling_by_hand(base: SentenceTransformer) -> None:
    mean = sentence_experts.extend(base, NAMES, pooling="mean")
    hidden, mask = tokens_and_mask(mean)
    assert np.allclose(mean.encode(ROUTED), unit((hidden * mask).sum(1) / mask.sum(1)), atol=1e-6)
    cls = sentence_experts.extend(base, NAMES, pooling="cls")
    assert np.allclose(cls.encode(ROUTED), unit(hidden[:, 0]), atol=1e-6)
    assert describe_modules(cls) == "cls pooling, Normalize"


def test_pooler_by_hand_and_normalize_last(base: SentenceTransformer) -> None:
    encoder = sentence_experts.extend(base, NAMES, pooling="pooler")
    hidden, _ = tokens_and_mask(encoder)
    assert np.allclose(encoder.encode(ROUTED), unit(torch.tanh(dense(encoder[2], hidden[:, 0]))), atol=1e-6)
    assert describe_modules(encoder) == "cls pooling, Dense (Tanh), Normalize"


def test_vectors_with_and_without_length_1(base: SentenceTransformer) -> None:
    free = sentence_experts.extend(base, NAMES, normalize=False)
    assert describe_modules(free) == "mean pooling"
    lengths = np.linalg.norm(free.encode(ROUTED), axis=1)
    assert np.abs(lengths - 1).min() > 0.01
    unit_again = sentence_experts.extend(base, NAMES, normalize=True)
    assert describe_modules(unit_again) == "mean pooling, Normalize"
    assert np.allclose(unit_again.encode(ROUTED), free.encode(ROUTED) / lengths[:, None], atol=1e-6)
    plain = SentenceTransformer(modules=list(base)[:2], device="cpu")
    assert describe_modules(sentence_experts.extend(plain, NAMES)) == "mean pooling"
    again = sentence_experts.extend(plain, NAMES, normalize=True)
    assert describe_modules(again) == "mean pooling, Normalize"


def test_a_trained_pooler_of_the_base_is_used(
    bases: dict[str, SentenceTransformer], capsys: pytest.CaptureFixture[str]
) -> None:
    base = bases["bert"]
    encoder = sentence_experts.extend(base, NAMES, pooling="pooler")
    theirs = base[0].auto_model.pooler.dense
    assert torch.equal(encoder[2].linear.weight, theirs.weight)
    assert torch.equal(encoder[2].linear.bias, theirs.bias)
    assert "pooler" not in capsys.readouterr().err
    output = base[0].auto_model(**base.preprocess(["lungs"])).pooler_output
    assert np.allclose(encoder.encode(["[CVD]lungs"]), unit(output), atol=1e-6)


def test_a_pooler_that_was_never_trained_begins_from_the_seed(
    base_folders: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    base = SentenceTransformer(str(base_folders["bert"]), device="cpu")
    with torch.no_grad():
        base[0].auto_model.pooler.dense.bias.zero_()  # as transformers makes it for a checkpoint without one
    for one in (base, str(base_folders["modernbert"])):
        first, again, other = (
            sentence_experts.extend(one, NAMES, pooling="pooler", seed=seed)[2].linear.weight
            for seed in (0, 0, 1)
        )
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert "no trained pooler" in " ".join(capsys.readouterr().err.split())
    assert not torch.equal(first, base[0].auto_model.pooler.dense.weight)


@pytest.mark.parametrize("pooling", [None, "pooler"])
def test_tanh_head_by_hand(
    base: SentenceTransformer, pooling: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "sentence_experts")
    encoder = sentence_experts.extend(base, NAMES, pooling=pooling, head="tanh", seed=3)
    assert "random weights (seed 3)" in caplog.text
    hidden, mask = tokens_and_mask(encoder)
    *_, norm, first, second, last = encoder
    assert type(last) is Normalize
    with torch.no_grad():
        norm.norm.weight.copy_(torch.linspace(0.5, 1.5, 32))
        norm.norm.bias.copy_(torch.linspace(-1, 1, 32))
    vectors = (hidden * mask).sum(1) / mask.sum(1)
    if pooling == "pooler":
        vectors = torch.tanh(dense(encoder[2], hidden[:, 0]))
    spread = vectors.var(dim=1, unbiased=False, keepdim=True)
    normed = (vectors - vectors.mean(dim=1, keepdim=True)) / (spread + 1e-5).sqrt()
    normed = normed * norm.norm.weight + norm.norm.bias
    expected = dense(second, torch.tanh(dense(first, normed)))
    assert np.allclose(encoder.encode(ROUTED), unit(expected), atol=1e-5)


@pytest.mark.parametrize("router", ["route", "learned"])
def test_stock_sentence_transformers_loads_it(
    base: SentenceTransformer, scatter: Callable[..., SentenceTransformer], router: str, tmp_path: Path
) -> None:
    encoder = scatter(sentence_experts.extend(base, NAMES, pooling="pooler", head="tanh", router=router))
    save(encoder, tmp_path / "model")
    stock = SentenceTransformer(str(tmp_path / "model"), device="cpu", trust_remote_code=False)
    assert type(stock) is SentenceTransformer
    assert describe_modules(stock) == describe_modules(encoder)
    assert np.array_equal(stock.encode(ROUTED), encoder.encode(ROUTED))


def test_a_head_goes_behind_modules_of_the_base(base_folders: dict[str, Path]) -> None:
    loaded = SentenceTransformer(str(base_folders["bert"]), device="cpu")
    without = SentenceTransformer(modules=[loaded[0], Pooling(32, "mean")], device="cpu")
    assert describe_modules(sentence_experts.extend(without, NAMES, head="tanh")) == (
        "mean pooling, LayerNorm, Dense (Tanh), Dense (Identity)"
    )
    both = SentenceTransformer(modules=[loaded[0], Pooling(32, ("mean", "cls"))], device="cpu")
    assert sentence_experts.extend(both, NAMES, head="tanh").encode("[CVD]x").shape == (64,)
    assert sentence_experts.extend(both, NAMES, pooling="cls").encode("[CVD]x").shape == (32,)
    headed = sentence_experts.extend(both, NAMES, head="tanh")
    fixed = SentenceTransformer(modules=[loaded[0], headed[1], *list(headed)[2:]], device="cpu")
    with pytest.raises(InputError, match="pooling's size"):
        sentence_experts.extend(fixed, NAMES, pooling="cls")
    with pytest.raises(InputError, match="no pooling"):
        sentence_experts.extend(SentenceTransformer(modules=[loaded[0]], device="cpu"), NAMES, pooling="cls")
