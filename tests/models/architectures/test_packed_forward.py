"""Leaving the padding out changes nothing: the packed path against the padded one."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from transformers import RobertaConfig, RobertaModel

import sentence_experts
from helpers.features import features_of
from sentence_experts.models.architectures.packed_forward import use_packing
from sentence_experts.models.layers import packing
from sentence_experts.models.layers.packing import Packing, equal_runs

WORDS = ["the", "heart", "pumps", "blood", "lungs", "vessels", "carry", "it", "in", "light", "of", "air"]
ROUTES = ["[COPD]", "[CVD]", "[SKIN_CANCER]"]
CLOSE = 1e-6
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]


def random_texts(seed: int, count: int = 24) -> list[str]:
    """Texts of 0 to 80 words: empty, of one token, equal and other lengths, longer than the models read."""
    drawn = random.Random(seed)
    texts = [
        " ".join(drawn.choices(WORDS, k=drawn.choice([0, 1, 1, 2, 5, 5, 9, 30, 80]))) for _ in range(count)
    ]
    return ["", "lungs", *texts]


def routed(texts: list[str], routes: list[str], seed: int) -> list[str]:
    drawn = random.Random(seed)
    return [drawn.choice(routes) + text for text in texts]


def both_ways(encoder: SentenceTransformer, texts: list[str]) -> tuple[Tensor, Tensor]:
    plain = use_packing(copy.deepcopy(encoder), packed=False)
    ours = use_packing(copy.deepcopy(encoder))
    given = {"convert_to_tensor": True, "batch_size": 7}
    return ours.encode(texts, **given), plain.encode(texts, **given)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dense_encoder_gives_the_same_vectors(base: SentenceTransformer, seed: int) -> None:
    ours, plain = both_ways(base, random_texts(seed))
    assert torch.allclose(ours, plain, atol=CLOSE, rtol=0)


@pytest.mark.parametrize("routes", [ROUTES, ROUTES[1:2]], ids=["mixed", "single"])
@pytest.mark.parametrize("seed", SEEDS)
def test_experts_give_the_same_vectors(mixed: SentenceTransformer, routes: list[str], seed: int) -> None:
    ours, plain = both_ways(mixed, routed(random_texts(seed), routes, seed))
    assert torch.allclose(ours, plain, atol=CLOSE, rtol=0)


@pytest.mark.parametrize("router", ["learned", "token"])
def test_routers_choose_the_same_experts(base: SentenceTransformer, scatter: Any, router: str) -> None:
    encoder = scatter(sentence_experts.extend(base, ["a", "b", "c"], router=router, route="none"))
    features = features_of(encoder, random_texts(5))
    model = encoder[0].auto_model
    ours, plain = model(**features), padded(model)(**features)
    for packed_logits, logits in zip(ours["router_logits"], plain["router_logits"], strict=True):
        assert torch.allclose(packed_logits, logits, atol=1e-5)
    real = features["attention_mask"].bool()
    assert torch.allclose(ours["last_hidden_state"][real], plain["last_hidden_state"][real], atol=1e-5)


def padded(model: Any) -> Any:
    return use_packing(copy.deepcopy(model), packed=False)


@pytest.mark.parametrize("side", ["left", "right"])
def test_outputs_equal_the_padded_path(mixed: SentenceTransformer, side: str) -> None:
    mixed.tokenizer.padding_side = side
    features = features_of(mixed, routed(random_texts(1), ROUTES, 1))
    model = mixed[0].auto_model
    ours = model(**features, output_hidden_states=True)
    plain = padded(model)(**features, output_hidden_states=True)
    assert set(ours) == set(plain)
    real = features["attention_mask"].bool()
    assert not real.all()
    for packed_hidden, hidden in zip(ours["hidden_states"], plain["hidden_states"], strict=True):
        assert torch.allclose(packed_hidden[real], hidden[real], atol=1e-5)
    assert (ours["last_hidden_state"][~real] == 0).all()
    if plain.get("pooler_output") is not None and side == "right":
        assert torch.allclose(ours["pooler_output"], plain["pooler_output"], atol=1e-5)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kind", ["experts", "dense"])
def test_a_stock_encoder_computes_no_padding(
    mixed: SentenceTransformer, base: SentenceTransformer, kind: str, packed: bool
) -> None:
    encoder = use_packing(copy.deepcopy(mixed if kind == "experts" else base), packed)
    texts = random_texts(2)
    texts = routed(texts, ROUTES, 2) if kind == "experts" else texts
    seen: list[int] = []
    first = next(module for module in encoder[0].auto_model.modules() if isinstance(module, nn.Linear))
    first.register_forward_hook(lambda _, given, output: seen.append(output.shape[:-1].numel()))
    SentenceTransformer.encode(encoder, texts, batch_size=len(texts), prompt="")
    mask = features_of(encoder, texts)["attention_mask"]
    assert seen == [int(mask.sum()) if packed else mask.numel()]


def test_gradients_are_the_same(mixed: SentenceTransformer) -> None:
    features = features_of(mixed, routed(random_texts(3), ROUTES[:2], 3))
    gradients = []
    for model in (mixed[0].auto_model, padded(mixed[0].auto_model)):
        model.zero_grad()
        real = features["attention_mask"][:, :, None]
        ((model(**features)["last_hidden_state"] * real) ** 2).sum().backward()
        gradients.append({name: one.grad for name, one in model.named_parameters() if one.grad is not None})
    ours, plain = gradients
    assert set(ours) == set(plain)
    assert not any(".experts.2." in name for name in ours)
    for name, gradient in plain.items():
        assert torch.allclose(ours[name], gradient, atol=1e-4 * float(gradient.abs().max() + 1)), name


def test_local_attention_in_blocks(monkeypatch: pytest.MonkeyPatch, bases: Any) -> None:
    monkeypatch.setattr(packing, "LOCAL_BLOCK", 5)
    ours, plain = both_ways(bases["modernbert"], random_texts(4))
    assert torch.allclose(ours, plain, atol=CLOSE, rtol=0)


def test_roberta_counts_positions_from_its_padding() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    model = RobertaModel(
        RobertaConfig(vocab_size=50, max_position_embeddings=40, pad_token_id=1, **sizes)
    ).eval()
    ids = torch.randint(5, 50, (4, 12))
    mask = torch.arange(12) < torch.tensor([12, 3, 7, 3])[:, None]
    ids = ids.masked_fill(~mask, 1)
    plain = model(input_ids=ids, attention_mask=mask.long())
    ours = use_packing(model)(input_ids=ids, attention_mask=mask.long())
    assert torch.allclose(ours.last_hidden_state[mask], plain.last_hidden_state[mask], atol=1e-5)
    assert torch.allclose(ours.pooler_output, plain.pooler_output, atol=1e-5)


def test_another_attention_stays(mixed: SentenceTransformer) -> None:
    model = mixed[0].auto_model
    model.set_attn_implementation("eager")
    use_packing(mixed)
    assert model.config._attn_implementation == "eager"


def test_sequences_of_equal_length_share_a_call() -> None:
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 1, 1], [1, 0, 0], [0, 0, 0]])
    one = Packing.of(mask, mask)
    assert one.order is not None
    assert one.order.tolist() == [4, 1, 3, 2, 0]
    assert list(equal_runs(one.cu_seq_lens.tolist())) == [(0, 2, 1), (2, 1, 2), (4, 1, 3)]
    grouped = Packing.of(mask, mask, groups=torch.tensor([0, 1, 1, 0, 1]))
    assert grouped.order is not None
    assert grouped.order.tolist() == [3, 0, 4, 1, 2]
    assert one.places.tolist() == [3, 9, 7, 8, 0, 1, 2]
