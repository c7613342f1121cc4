"""The loss of a task's batch is its formula; caching changes nothing; only routed experts learn."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from helpers.small_training_tasks import INSTRUCTIONS, make_task_encoder
from helpers.two_processes import LABELS, columns_of, loss_and_gradients, make_loss
from sentence_experts.models.routes.token_router import token_balance_loss, token_loads_of
from sentence_experts.training.losses import token_router_loss

TEMPERATURES = (0.03, 0.06)


@pytest.fixture(scope="module")
def model(task_experts: Path) -> SentenceTransformer:
    return SentenceTransformer(str(task_experts), device="cpu").train()


@pytest.fixture(scope="module")
def token_model(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> SentenceTransformer:
    folder = make_task_encoder(tmp_path_factory.mktemp("tokens") / "model", minilm, router="token", top_k=2)
    return SentenceTransformer(str(folder), device="cpu").train()


def cosine(one: Tensor, other: Tensor) -> float:
    return float(one @ other / (one.norm() * other.norm()))


def slow(columns: list[Tensor], labels: Tensor) -> float:
    """The formula, one exponential at a time; texts of the anchor's group are no negatives."""
    anchors, positives, *negatives = columns
    candidates = [*zip(positives, labels[:, 3].tolist(), strict=True)]
    for place, column in enumerate(negatives):
        candidates += zip(column, labels[:, 4 + place].tolist(), strict=True)
    total = 0.0
    for row, anchor in enumerate(anchors):
        temperature = TEMPERATURES[int(labels[row, 0])]
        own = math.exp(cosine(anchor, positives[row]) / temperature)
        others = [
            math.exp(cosine(anchor, text) / temperature)
            for place, (text, group) in enumerate(candidates)
            if place != row and group != int(labels[row, 2])
        ]
        total -= math.log(own / (own + sum(others)))
    return total / len(anchors)


@pytest.mark.parametrize("task", [0, 1])
@pytest.mark.parametrize("negatives", [0, 1])
def test_the_loss_is_its_formula(model: SentenceTransformer, task: int, negatives: int) -> None:
    generator = torch.Generator().manual_seed(1)
    columns = [torch.randn(6, 5, generator=generator) for _ in range(2 + negatives)]
    groups = torch.tensor([0, 1, 0, 2, 3, 1])  # two pairs of one group, twice
    labels = torch.stack([torch.full((6,), task), torch.zeros(6).long(), groups, groups, groups.flip(0)], 1)
    labels = labels[:, : 4 + negatives]
    value = make_loss(model).calculate_loss([[column] for column in columns], labels)
    assert float(value) == pytest.approx(slow(columns, labels), rel=1e-5)


def test_batch_of_one_group_has_zero_loss(model: SentenceTransformer) -> None:
    columns = [torch.randn(4, 5, generator=torch.Generator().manual_seed(2)) for _ in range(2)]
    assert (
        float(make_loss(model).calculate_loss([[column] for column in columns], torch.zeros(4, 4).long()))
        == 0
    )


def test_only_the_experts_of_the_batch_learn(model: SentenceTransformer) -> None:
    for task, wanted in (("retrieval", {0, 1}), ("clustering", {3})):
        _, gradients = loss_and_gradients(make_loss(model), columns_of(model, task), LABELS)
        experts = {int(name.split(".experts.")[1][0]) for name in gradients if ".experts." in name}
        assert experts == wanted
        assert any("attention" in name for name in gradients)
    assert list(INSTRUCTIONS)[3] == "clustering"


def test_the_balance_of_token_routers_is_added_and_cached(token_model: SentenceTransformer) -> None:
    columns = columns_of(token_model, "retrieval")
    values = {}
    for weight in (0.0, 0.5):
        loss = make_loss(token_model, router=token_router_loss(weight))
        values[weight], gradients = loss_and_gradients(loss, columns, LABELS)
        cached = make_loss(token_model, router=token_router_loss(weight), cache_mini_batch=2)
        same((values[weight], gradients), loss_and_gradients(cached, columns, LABELS))
        assert any(".router." in name for name in gradients)
    with token_loads_of(token_model) as loads:
        for column in columns:
            token_model(dict(column))
    blocks = len(loads) // len(columns)
    of_all_texts = [torch.cat(loads[block::blocks]) for block in range(blocks)]
    balance = token_balance_loss(of_all_texts).item()
    assert values[0.5] - values[0.0] == pytest.approx(0.5 * balance, rel=1e-4)


def same(one: tuple[float, dict[str, Tensor]], other: tuple[float, dict[str, Tensor]]) -> None:
    assert one[0] == pytest.approx(other[0], rel=1e-5)
    assert one[1].keys() == other[1].keys()
    for name, gradient in one[1].items():
        assert torch.allclose(gradient, other[1][name], rtol=1e-3, atol=2e-5), name
