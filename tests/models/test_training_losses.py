"""Contrastive losses on mixed batches: the cached one gives the plain one's loss and gradients."""

from __future__ import annotations

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.losses import CachedMultipleNegativesRankingLoss, MultipleNegativesRankingLoss
from torch import nn

ANCHORS = ["[CVD]heart", "[COPD]lungs and air", "[SKIN_CANCER]skin", "[COPD]flow", "[CVD]vessels carry blood"]
POSITIVES = ["[CVD]blood", "[COPD]disease", "[SKIN_CANCER]cancer grows", "[COPD]air", "[CVD]heart pumps"]


def _loss_and_gradients(
    encoder: SentenceTransformer, loss: nn.Module
) -> tuple[float, dict[str, torch.Tensor]]:
    encoder.zero_grad(set_to_none=True)
    value = loss([encoder.tokenize(ANCHORS), encoder.tokenize(POSITIVES)], None)
    value.backward()
    return value.item(), {n: p.grad.clone() for n, p in encoder.named_parameters() if p.grad is not None}


def test_cached_loss_equals_the_plain_loss(mixed: SentenceTransformer) -> None:
    for module in mixed.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    mixed.train()
    plain, gradients = _loss_and_gradients(mixed, MultipleNegativesRankingLoss(mixed))
    for size in (1, 2, 3):
        cached = CachedMultipleNegativesRankingLoss(mixed, mini_batch_size=size)
        value, others = _loss_and_gradients(mixed, cached)
        assert value == pytest.approx(plain, rel=1e-5)
        assert others.keys() == gradients.keys()
        for name, gradient in gradients.items():
            # Relative to the largest gradient of the tensor: how sums are rounded differs between processors.
            largest = max(gradient.abs().max().item(), 1e-2)
            assert (others[name] - gradient).abs().max().item() < 1e-4 * largest, name


def test_a_step_changes_only_the_routed_experts(mixed: SentenceTransformer) -> None:
    before = {name: parameter.clone() for name, parameter in mixed.named_parameters()}
    optimizer = torch.optim.AdamW(mixed.parameters(), lr=1e-2, weight_decay=0.1)
    mixed.train()
    loss = MultipleNegativesRankingLoss(mixed)
    batch = [mixed.tokenize(["[CVD]heart", "[CVD]lungs"]), mixed.tokenize(["[CVD]air", "[CVD]blood"])]
    loss(batch, None).backward()
    optimizer.step()
    for name, parameter in mixed.named_parameters():
        if ".experts." in name:
            changed = not torch.equal(parameter, before[name])
            assert changed == (".experts.1." in name), name
