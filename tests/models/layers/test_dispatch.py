"""A mixed batch: each sequence through its expert, in whatever order, padding, precision and attention."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

import sentence_experts
from helpers.features import features_of
from helpers.packed_batches import packed
from sentence_experts.models.layers.dispatch import dispatch

ROUTED = [
    "[CVD]the heart pumps blood",
    "[COPD]lungs",
    "[SKIN_CANCER]skin cancer grows slowly",
    "[COPD]",
    "[CVD]vessels carry it in the light of the lungs",
    "[COPD]air flow",
]


def one_by_one(encoder: SentenceTransformer, texts: list[str]) -> Tensor:
    return torch.stack([encoder.encode(text, convert_to_tensor=True) for text in texts])


def test_experts_differ_and_a_vector_does_not_depend_on_its_batch(mixed: SentenceTransformer) -> None:
    alone = one_by_one(mixed, ROUTED)
    together = mixed.encode(ROUTED, convert_to_tensor=True)
    assert torch.allclose(together, alone, atol=1e-6)
    same_text = mixed.encode(["[COPD]heart", "[CVD]heart", "[SKIN_CANCER]heart"])
    assert all(np.abs(same_text[i] - same_text[j]).max() > 1e-2 for i, j in ((0, 1), (0, 2), (1, 2)))


def test_permuting_a_batch_permutes_every_output(mixed: SentenceTransformer) -> None:
    model = mixed[0].auto_model
    model.set_attn_implementation("eager")
    features = features_of(mixed, ROUTED)
    order = torch.tensor([3, 0, 5, 2, 4, 1])
    options = {"output_hidden_states": True, "output_attentions": True}
    straight = model(**features, **options)
    permuted = model(**{name: value[order] for name, value in features.items()}, **options)
    assert set(straight) >= {"last_hidden_state", "hidden_states", "attentions"}
    for name, value in straight.items():
        parts = value if isinstance(value, tuple) else (value,)
        others = permuted[name] if isinstance(value, tuple) else (permuted[name],)
        assert len(parts) == len(others)
        for part, other in zip(parts, others, strict=True):
            assert torch.allclose(part[order], other, atol=1e-5), name


def test_hidden_states_and_attentions_are_each_sequence_own(mixed: SentenceTransformer) -> None:
    model = mixed[0].auto_model
    model.set_attn_implementation("eager")
    options = {"output_hidden_states": True, "output_attentions": True}
    batch = model(**features_of(mixed, ROUTED), **options)
    for row, text in enumerate(ROUTED):
        single = model(**features_of(mixed, [text]), **options)
        length = single.last_hidden_state.shape[1]
        for mine, alone in zip(batch.hidden_states, single.hidden_states, strict=True):
            assert torch.allclose(mine[row, :length], alone[0], atol=1e-5)
        for mine, alone in zip(batch.attentions, single.attentions, strict=True):
            assert torch.allclose(mine[row, :, :length, :length], alone[0], atol=1e-5)


def test_tuples_on_request(mixed: SentenceTransformer) -> None:
    features = features_of(mixed, ROUTED)
    model = mixed[0].auto_model
    assert torch.equal(model(**features, return_dict=False)[0], model(**features).last_hidden_state)


def test_left_padding_is_right_padding(mixed: SentenceTransformer, family: str) -> None:
    right = features_of(mixed, ROUTED)
    lengths = right["attention_mask"].sum(1).tolist()
    width = right["input_ids"].shape[1]
    left = {
        name: torch.stack([row.roll(width - length) for row, length in zip(value, lengths, strict=True)])
        for name, value in right.items()
    }
    positions = (left["attention_mask"].cumsum(1) - 1).clamp(min=0)
    model = mixed[0].auto_model
    ours = model(**left, position_ids=positions).last_hidden_state
    theirs = model(**right).last_hidden_state
    for row, length in enumerate(lengths):
        assert torch.allclose(ours[row, width - length :], theirs[row, :length], atol=1e-5)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_attention_implementations_agree(mixed: SentenceTransformer, implementation: str) -> None:
    expected = mixed.encode(ROUTED)
    mixed[0].auto_model.set_attn_implementation(implementation)
    assert np.abs(mixed.encode(ROUTED) - expected).max() < 1e-5


def test_bf16_autocast_agrees_loosely(mixed: SentenceTransformer) -> None:
    expected = one_by_one(mixed, ROUTED)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.allclose(mixed.encode(ROUTED, convert_to_tensor=True).float(), expected, atol=0.06)


def _gradients(encoder: SentenceTransformer, features: dict[str, Tensor]) -> dict[str, Tensor]:
    encoder.zero_grad(set_to_none=True)
    output = encoder[0].auto_model(**features).last_hidden_state
    (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum().backward()
    return {name: p.grad.clone() for name, p in encoder.named_parameters() if p.grad is not None}


def test_only_the_routed_expert_gets_gradient(mixed: SentenceTransformer) -> None:
    features = features_of(mixed, ["[CVD]heart", "[COPD]lungs", "[CVD]blood"])
    gradients = _gradients(mixed, features)
    experts = [name for name, _ in mixed.named_parameters() if ".experts." in name]
    assert experts
    for name in experts:
        routed = name.split(".experts.")[1].split(".")[0] in ("0", "1")
        assert (name in gradients) == routed, name
        assert not routed or gradients[name].abs().sum() > 0


def test_gradients_of_a_mixed_batch_are_those_of_its_parts(mixed: SentenceTransformer) -> None:
    mixed.eval()
    features = features_of(mixed, ROUTED)
    whole = _gradients(mixed, features)
    weights = None
    for expert in range(3):
        rows = [index for index, text in enumerate(ROUTED) if mixed.routes[expert].text in text]
        part = {name: value[rows] for name, value in features.items()}
        output = mixed[0].auto_model(**part).last_hidden_state
        if weights is None:
            full = (len(ROUTED), *output.shape[1:])
            weights = torch.linspace(-1, 1, int(np.prod(full))).view(full)
        mixed.zero_grad(set_to_none=True)
        (output * weights[rows]).sum().backward()
        for name, parameter in mixed.named_parameters():
            if f".experts.{expert}." in name and parameter.grad is not None:
                assert torch.allclose(parameter.grad, whole[name], atol=2e-4), name


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_changes_nothing(mixed: SentenceTransformer, reentrant: bool) -> None:
    """The routes of the recomputed batch must be that batch's, also when another one ran in between."""
    model = mixed[0].auto_model
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    mixed.train()
    first, second = features_of(mixed, ROUTED), features_of(mixed, ROUTED[::-1][:3])
    plain = _gradients(mixed, first)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    assert any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    mixed.zero_grad(set_to_none=True)
    output = model(**first).last_hidden_state
    model(**second)
    (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum().backward()
    recomputed = {name: p.grad for name, p in mixed.named_parameters() if p.grad is not None}
    assert recomputed.keys() == plain.keys()
    for name, gradient in plain.items():
        assert torch.allclose(recomputed[name], gradient, atol=1e-5), name


def test_packed_sequences_are_routed_and_put_back(mixed: SentenceTransformer) -> None:
    model = mixed[0].auto_model
    padded = features_of(mixed, ROUTED)
    expected = model(**padded).last_hidden_state
    inputs = packed(model, padded)
    output = model(**inputs, output_hidden_states=True)
    assert torch.equal(output.hidden_states[-1], output.last_hidden_state)
    for row, (start, end) in enumerate(pairwise(inputs["cu_seq_lens_q"].tolist())):
        mine = output.last_hidden_state[0, start:end]
        assert torch.allclose(mine, expected[row, : end - start], atol=1e-5)


def test_a_batch_of_one_expert_is_not_moved() -> None:
    plan = dispatch(torch.tensor([1, 1, 1]), torch.tensor([4, 4, 4]), 3)
    assert plan is not None
    assert plan.order is None
    assert plan.slices == ((1, 0, 12),)


def test_sequences_are_grouped_by_expert_in_order() -> None:
    plan = dispatch(torch.tensor([2, 0, 2, 0]), torch.tensor([1, 2, 3, 4]), 3)
    assert plan is not None
    assert plan.order is not None
    assert plan.order.tolist() == [1, 3, 0, 2]
    assert plan.slices == ((0, 0, 6), (2, 6, 10))


@pytest.mark.parametrize("layers", ["alternate", [0]])
def test_blocks_without_experts_stay_shared(base: SentenceTransformer, layers: Any) -> None:
    encoder = sentence_experts.extend(base, ["copd", "cvd"], layers=layers)
    model = encoder[0].auto_model
    with_experts = {
        int(name.split(".experts.")[0].rsplit(".", 1)[1])
        for name in model.state_dict()
        if ".experts." in name
    }
    assert with_experts == ({1, 3} if layers == "alternate" else {0})
