"""A mixed batch: each sequence through its expert, in whatever order, padding, precision and attention."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from helpers.features import features_of
from sentence_experts.models.layers.dispatch import dispatch

ROUTED = [
    "[CVD]the heart pumps blood",
    "[COPD]lungs",
    "[SKIN_CANCER]skin cancer grows slowly",
    "[COPD]",
    "[CVD]vessels carry it in the light of the lungs",
    "[COPD]air flow",
]


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_attention_implementations_agree(mixed: SentenceTransformer, implementation: str) -> None:
    expected = mixed.encode(ROUTED)
    mixed[0].auto_model.set_attn_implementation(implementation)
    assert np.abs(mixed.encode(ROUTED) - expected).max() < 1e-5


def test_bf16_autocast_agrees_loosely(mixed: SentenceTransformer) -> None:
    expected = mixed.encode(ROUTED, convert_to_tensor=True)
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
