"""Before training, every route gives the base model's vectors."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import sentence_experts
from sentence_experts.models.architectures.families import family_of
from sentence_experts.models.layers.weight_names import base_name

CHOICES = list(itertools.product(("all", "alternate", [0, 3]), (False, True), ("token", "prefix")))
PREFIXES = {"query": "search query: ", "document": "search document: ", "class": "classification: "}


# Every norm and route is in one of these.
QUICK = (("all", True, "token"), ("alternate", False, "prefix"))


@pytest.mark.parametrize(
    ("layers", "expert_norms", "route"),
    [pytest.param(*each, marks=() if each in QUICK else pytest.mark.slow) for each in CHOICES],
)
def test_every_route_gives_the_base_vectors(
    base: SentenceTransformer, layers: object, expert_norms: bool, route: str, texts: list[str]
) -> None:
    encoder = sentence_experts.extend(
        base,
        list(PREFIXES),
        layers=layers,
        route=route,
        expert_norms=expert_norms,
        **({"prefixes": PREFIXES} if route == "prefix" else {}),
    )
    for name in PREFIXES:
        prompt = PREFIXES[name] if route == "prefix" else ""
        expected = base.encode(texts, prompt=prompt)
        assert np.abs(encoder.encode(texts, prompt_name=name) - expected).max() <= 1e-6
        in_text = [encoder.prompts[name] + text for text in texts]
        assert np.abs(encoder.encode(in_text) - expected).max() <= 1e-6


def test_token_embeddings_equal_the_base(base: SentenceTransformer, texts: list[str]) -> None:
    """Pooling and normalisation would hide a swapped position."""
    encoder = sentence_experts.extend(base, ["copd", "cvd"])
    ours = encoder.encode(texts, prompt_name="cvd", output_value="token_embeddings")
    for mine, theirs in zip(ours, base.encode(texts, output_value="token_embeddings"), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


@pytest.mark.parametrize("expert_norms", [False, True])
def test_weights_are_the_base_weights_bit_for_bit(base: SentenceTransformer, expert_norms: bool) -> None:
    encoder = sentence_experts.extend(base, ["copd", "cvd", "skin cancer"], expert_norms=expert_norms)
    family = family_of(encoder[0].auto_model.config.model_type)
    ours, theirs = encoder[0].auto_model.state_dict(), base[0].auto_model.state_dict()
    assert {base_name(family, key) for key in ours} == set(theirs)
    cls = base.tokenizer.cls_token_id
    new = [route.token_ids[0] for route in encoder.routes]
    for key, weight in ours.items():
        expected = theirs[base_name(family, key)]
        if weight.shape[0] > expected.shape[0] or "tok_embeddings" in key or "word_embeddings" in key:
            kept = [row for row in range(expected.shape[0]) if row not in new]
            assert torch.equal(weight[kept], expected[kept])
            assert all(torch.equal(weight[row], expected[cls]) for row in new)
        else:
            assert torch.equal(weight, expected), key
    expert_weights = [key for key in ours if ".experts." in key]
    assert any("norm" in key for key in expert_weights) == expert_norms


def test_base_is_left_unchanged(base: SentenceTransformer, texts: list[str]) -> None:
    before = {key: value.clone() for key, value in base[0].auto_model.state_dict().items()}
    vocabulary, vectors = len(base.tokenizer), base.encode(texts)
    encoder = sentence_experts.extend(base, ["copd", "cvd"])
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.zero_()
    assert all(torch.equal(before[key], value) for key, value in base[0].auto_model.state_dict().items())
    assert len(base.tokenizer) == vocabulary
    assert np.array_equal(base.encode(texts), vectors)


def test_plain_checkpoint_gets_mean_pooling(
    family: str, plain_folders: dict[str, Path], texts: list[str]
) -> None:
    encoder = sentence_experts.extend(str(plain_folders[family]), ["copd", "cvd"])
    plain = SentenceTransformer(str(plain_folders[family]), device="cpu")
    assert np.abs(encoder.encode(texts, prompt_name="copd", device="cpu") - plain.encode(texts)).max() <= 1e-6
    assert encoder[1].pooling_mode == "mean"


def test_pooler_is_kept_where_the_base_has_one(bases: dict[str, SentenceTransformer]) -> None:
    base = bases["bert"]
    encoder = sentence_experts.extend(base, ["copd", "cvd"])
    ours = encoder[0].auto_model(**encoder.tokenize(["[CVD]heart", "[COPD]lungs"]))
    theirs = base[0].auto_model(**base.tokenize(["heart", "lungs"]))
    assert torch.allclose(ours.pooler_output, theirs.pooler_output, atol=1e-6)


@pytest.mark.slow
@pytest.mark.realdata
def test_minilm_gives_its_own_vectors(minilm: str, texts: list[str]) -> None:
    base = SentenceTransformer(minilm, device="cpu")
    encoder = sentence_experts.extend(base, ["copd", "cvd"], layers="alternate", expert_norms=True)
    assert encoder.max_seq_length == base.max_seq_length == 256
    texts = [*texts, "over long " * 400]
    for name in ("copd", "cvd"):
        assert np.abs(encoder.encode(texts, prompt_name=name) - base.encode(texts)).max() <= 1e-6
