"""Each loss equals a slow loop over its formula, and the cached one equals the plain one."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.losses import CachedMultipleNegativesRankingLoss, MultipleNegativesRankingLoss
from torch import Tensor, nn

import sentence_experts
from sentence_experts.training.config import LOSSES, TrainConfig
from sentence_experts.training.data import NONE
from sentence_experts.training.losses import (
    ContrastiveLoss,
    KnownPositives,
    RouterLoss,
    compute_router_cross_entropy,
    load_balancing,
    sequence_router_loss,
)

TEXTS = ["neuron spike", "rice yield in drought", "glia", "wheat rust leaf", "memory of sleep", "a root"]
OTHERS = ["cortex spikes", "drought", "myelin and axon", "leaf rust", "hippocampus", "maize soil fields"]
NEGATIVES = ["retina", "millet", "cone", "harvest of grain", "vision", "barley"]
DOMAINS = torch.tensor([1, 0, 1, 0, 1, 0])
# Works 0 to 5 are the anchors, 6 to 11 the positives, 12 to 17 the negatives.
LABELS = torch.stack([DOMAINS, DOMAINS, torch.arange(6), torch.arange(6, 12)], dim=1)
# Anchor 0 is linked to positive 2 (work 8), anchor 3 to positive 4 (10); positives 0 and 1 to each other.
LINKS = KnownPositives(torch.tensor([0, 10, 6, 14]), torch.tensor([8, 3, 7, 1]), count=18)
LEFT_OUT = {(0, 2), (3, 4)}


def still(model: SentenceTransformer) -> SentenceTransformer:
    """Without dropout."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model.train()


@pytest.fixture
def model(experts_model: Path) -> SentenceTransformer:
    return still(SentenceTransformer(str(experts_model), device="cpu"))


@pytest.fixture(scope="module")
def router_folder(minilm: str, experts_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny encoder with routers in place of routes."""
    folder = tmp_path_factory.mktemp("router") / "learned"
    plain = experts_model.with_name(f"{experts_model.name}-plain")
    encoder = sentence_experts.extend(str(plain), ["crops", "neuro"], router="learned", route="none")
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, weight in encoder.named_parameters():
            if ".experts." in name or ".router." in name:
                weight += 0.2 * torch.randn(weight.shape, generator=generator)
    encoder.save(str(folder), create_model_card=False)
    return folder


@pytest.fixture
def router_model(router_folder: Path) -> SentenceTransformer:
    return still(SentenceTransformer(str(router_folder), device="cpu"))


def features(model: SentenceTransformer, *columns: list[str]) -> list[dict[str, Tensor]]:
    leads = {0: "[CROPS]", 1: "[NEURO]"} if model.prompts.get("crops") else {0: "", 1: ""}
    routed = [
        [leads[int(domain)] + text for domain, text in zip(DOMAINS, column, strict=True)]
        for column in columns
    ]
    return [model.preprocess(column) for column in routed]


def loss_and_gradients(
    loss: nn.Module, columns: list[dict[str, Tensor]], labels: Tensor | None = LABELS
) -> tuple[float, dict[str, Tensor]]:
    loss.zero_grad(set_to_none=True)
    value = loss([dict(column) for column in columns], labels)
    value.backward()
    gradients = {name: p.grad.clone() for name, p in loss.named_parameters() if p.grad is not None}
    return value.item(), gradients


def same_gradients(one: dict[str, Tensor], other: dict[str, Tensor], scale: float = 1.0) -> bool:
    """Return whether gradients are equal but for rounding, which differs between processors."""
    return one.keys() == other.keys() and all(
        torch.allclose(
            one[name], other[name], rtol=1e-4, atol=2e-6 * scale + 1e-5 * float(one[name].abs().max())
        )
        for name in one
    )


def dot(one: Tensor, other: Tensor) -> float:
    return sum(float(a) * float(b) for a, b in zip(one, other, strict=True))


def log_share(scores: list[float], target: int, left_out: set[int]) -> float:
    """-log of the target's share in the softmax over the scores that are not left out."""
    total = sum(math.exp(score) for column, score in enumerate(scores) if column not in left_out)
    return -math.log(math.exp(scores[target]) / total)


def slow_in_batch(a: Tensor, b: Tensor, masked: bool, scale: float = 20.0) -> float:
    total = 0.0
    for i in range(len(a)):
        scores = [dot(a[i], b[j]) / (a[i].norm() * b[j].norm()) * scale for j in range(len(b))]
        total += log_share([float(s) for s in scores], i, {j for k, j in LEFT_OUT if masked and k == i})
    return total / len(a)


def slow_targets(a: Tensor, b: Tensor) -> list[int]:
    size = range(len(a))
    return [max(size, key=lambda j: dot(a[j], a[i]) + dot(b[j], b[i])) for i in size]


def slow_argmax(a: Tensor, b: Tensor, masked: bool) -> float:
    total, size = 0.0, range(len(a))
    for first, second, links in ((a, b, LEFT_OUT), (b, a, {(j, i) for i, j in LEFT_OUT})):
        for i, target in enumerate(slow_targets(a, b)):
            scores = [dot(first[i], second[j]) for j in size]
            left_out = {j for k, j in links if masked and k == i and j != target}
            total += log_share(scores, target, left_out)
    return total / len(a)


def slow_learned(a: Tensor, b: Tensor, masked: bool, scale: float = 20.0) -> float:
    total, size = 0.0, range(len(a))
    for first, second, links in ((a, b, LEFT_OUT), (b, a, {(j, i) for i, j in LEFT_OUT})):
        for i in size:
            scores = [dot(first[i], second[j]) * scale for j in size]
            total += log_share(scores, i, {j for k, j in links if masked and k == i}) / 2
    return total / len(a)


SLOW: dict[str, Callable[[Tensor, Tensor, bool], float]] = {
    "in_batch_negatives": slow_in_batch,
    "argmax_target": slow_argmax,
    "learned_temperature": slow_learned,
}


def vectors(model: SentenceTransformer) -> list[Tensor]:
    with torch.no_grad():
        return [model(dict(column))["sentence_embedding"] for column in features(model, TEXTS, OTHERS)]


def made(
    model: SentenceTransformer,
    name: str,
    known: KnownPositives | None = None,
    scale: float = 20.0,
    router: RouterLoss | None = None,
    cache_mini_batch: int | None = None,
) -> ContrastiveLoss:
    # Domain 0 has expert 0, domain 1 expert 1.
    experts, temperatures = [(0, 0), (1, 1)], [1 / scale] * 2
    return ContrastiveLoss(
        model,
        temperatures,
        name,
        known=known,
        router=router,
        experts=experts,
        cache_mini_batch=cache_mini_batch,
    )


def test_every_loss_is_tested() -> None:
    assert [*LOSSES] == [*get_args(TrainConfig.model_fields["loss"].annotation)]
    assert set(LOSSES) == SLOW.keys()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_its_formula(name: str, masked: bool) -> None:
    # Vectors of such lengths that another pair is some rows' target in the 2025 loss.
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randn(6, 4, generator=generator) * torch.arange(1, 7)[:, None] ** 0.5 for _ in range(2))
    assert slow_targets(a, b) != list(range(6))
    options = {} if name == "argmax_target" else {"scale": 0.7}
    loss = made(nn.Identity(), name, LINKS if masked else None, **options)  # type: ignore[arg-type]
    got = float(loss.calculate_loss([[a[:2], a[2:]], [b]], LABELS).detach())
    expected = SLOW[name](a, b, masked, *options.values())
    assert got == pytest.approx(expected, rel=1e-5)
    # The mask makes a difference.
    assert SLOW[name](a, b, True, *options.values()) != pytest.approx(
        SLOW[name](a, b, False, *options.values())
    )


def test_a_target_is_never_left_out() -> None:
    vectors = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 1.0]])
    labels = torch.tensor([[0, 0, 0, 3], [0, 0, 1, 4], [0, 0, 2, 5]])
    known = KnownPositives(torch.tensor([0]), torch.tensor([4]), count=6)
    # Row 0's target is row 1, to which it is linked; all else is as in the formula.
    loss = made(nn.Identity(), "argmax_target", known)  # type: ignore[arg-type]
    value = float(loss.calculate_loss([[vectors], [vectors]], labels))
    rows = [([1.0, 3.0, 0.0], 1), ([3.0, 9.0, 0.0], 1), ([0.0, 0.0, 1.0], 2)]
    there = [log_share(scores, target, set()) for scores, target in rows]
    # The other way round the link is from row 1 to column 0, which is no target.
    back = [log_share(scores, target, {0} if i == 1 else set()) for i, (scores, target) in enumerate(rows)]
    assert value == pytest.approx(sum(there + back) / 3, rel=1e-5)


@pytest.mark.parametrize("mask", [None, LINKS])
@pytest.mark.parametrize("name", LOSSES)
def test_gradient_caching_changes_neither_loss_nor_gradients(
    model: SentenceTransformer, name: str, mask: KnownPositives | None
) -> None:
    columns = features(model, TEXTS, OTHERS)
    plain, gradients = loss_and_gradients(made(model, name, mask), columns)
    assert plain == pytest.approx(SLOW[name](*vectors(model), mask is not None), rel=1e-4)
    assert ("log_scale" in gradients) == (name == "learned_temperature")
    for size in (1, 4, 6):
        cached = made(model, name, mask, cache_mini_batch=size)
        value, others = loss_and_gradients(cached, columns)
        assert value == pytest.approx(plain, abs=1e-5)
        assert same_gradients(gradients, others, scale=max(1.0, plain))


def test_in_batch_negatives_equal_sentence_transformers(model: SentenceTransformer) -> None:
    columns = features(model, TEXTS, OTHERS, NEGATIVES)
    labels = torch.cat([LABELS, torch.arange(12, 18)[:, None]], dim=1)
    theirs, gradients = loss_and_gradients(MultipleNegativesRankingLoss(model), columns)
    ours, others = loss_and_gradients(made(model, "in_batch_negatives"), columns, labels)
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert same_gradients(gradients, others)
    theirs, gradients = loss_and_gradients(
        CachedMultipleNegativesRankingLoss(model, mini_batch_size=2), columns
    )
    ours, others = loss_and_gradients(made(model, "in_batch_negatives", cache_mini_batch=2), columns, labels)
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert same_gradients(gradients, others)


def test_linked_mined_negatives_are_left_out_too(model: SentenceTransformer) -> None:
    columns = features(model, TEXTS, OTHERS, NEGATIVES)
    labels = torch.cat([LABELS, torch.arange(12, 18)[:, None]], dim=1)
    a, b = vectors(model)
    with torch.no_grad():
        c = model(dict(columns[2]))["sentence_embedding"]
    candidates = torch.cat([b, c])
    # Anchor 1 is linked to work 14, the negative of row 2.
    left_out = {*LEFT_OUT, (1, 6 + 2)}
    expected = 0.0
    for i in range(6):
        cosines = torch.cosine_similarity(a[i][None], candidates) * 20
        expected += log_share(cosines.tolist(), i, {j for k, j in left_out if k == i}) / 6
    value, _ = loss_and_gradients(made(model, "in_batch_negatives", LINKS), columns, labels)
    assert value == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("known", [None, LINKS])
def test_what_stands_for_a_missing_negative_counts_for_nothing(
    model: SentenceTransformer, known: list[tuple[int, int]] | None
) -> None:
    numbers = torch.arange(12, 18)[:, None]
    numbers[[1, 4]] = NONE
    labels = torch.cat([LABELS, numbers], dim=1)
    texts = [NEGATIVES, [OTHERS[row] if row in (1, 4) else text for row, text in enumerate(NEGATIVES)]]
    loss = made(model, "in_batch_negatives", known)
    values = [loss_and_gradients(loss, features(model, TEXTS, OTHERS, each), labels) for each in texts]
    assert values[0][0] == pytest.approx(values[1][0], rel=1e-5)
    assert same_gradients(values[0][1], values[1][1])
    a, b = vectors(model)
    with torch.no_grad():
        c = model(features(model, NEGATIVES)[0])["sentence_embedding"]
    kept = torch.cat([b, c[[0, 2, 3, 5]]])
    if known is None:
        cosines = torch.cosine_similarity(a[:, None], kept[None], dim=-1) * 20
        expected = torch.nn.functional.cross_entropy(cosines, torch.arange(6)).item()
        assert values[0][0] == pytest.approx(expected, rel=1e-4)


def test_routers_do_not_learn_from_what_stands_for_a_missing_negative(
    router_model: SentenceTransformer,
) -> None:
    numbers = torch.arange(12, 18)[:, None]
    numbers[[1, 4]] = NONE
    labels = torch.cat([LABELS, numbers], dim=1)
    loss = made(router_model, "in_batch_negatives", router=sequence_router_loss(balance=0.5))
    texts = [NEGATIVES, [OTHERS[row] if row in (1, 4) else text for row, text in enumerate(NEGATIVES)]]
    one, other = (
        loss_and_gradients(loss, features(router_model, TEXTS, OTHERS, each), labels) for each in texts
    )
    assert one[0] == pytest.approx(other[0], rel=1e-5)
    assert same_gradients(one[1], other[1])


def test_dropout_is_the_same_in_both_passes_of_gradient_caching(experts_model: Path) -> None:
    model = SentenceTransformer(str(experts_model), device="cpu").train()
    columns = features(model, TEXTS, OTHERS)
    torch.manual_seed(5)
    plain, gradients = loss_and_gradients(made(model, "in_batch_negatives"), columns)
    torch.manual_seed(5)
    # One part a column draws its dropout in the same order as no parts at all.
    cached, others = loss_and_gradients(made(model, "in_batch_negatives", cache_mini_batch=6), columns)
    assert cached == pytest.approx(plain, rel=1e-5)
    assert same_gradients(gradients, others)
    torch.manual_seed(6)
    different, _ = loss_and_gradients(made(model, "in_batch_negatives"), columns)
    assert different != pytest.approx(plain, abs=1e-4)


def test_the_learned_scale_starts_where_set_and_has_the_right_gradient(model: SentenceTransformer) -> None:
    loss = made(model, "learned_temperature", scale=3.0)
    assert loss.learned() == {"temperature": pytest.approx(1 / 3.0)}
    columns = features(model, TEXTS, OTHERS)
    _, gradients = loss_and_gradients(loss, columns)
    a, b = vectors(model)
    step = 1e-3
    slope = (
        slow_learned(a, b, False, 3.0 * math.exp(step)) - slow_learned(a, b, False, 3.0 * math.exp(-step))
    ) / (2 * step)
    assert float(gradients["log_scale"]) == pytest.approx(slope, rel=1e-2)


def test_router_cross_entropy_is_its_formula() -> None:
    logits = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0))
    experts = torch.tensor([3, 0, 1, 1, 2])
    expected = [
        log_share(logits[n, block].tolist(), int(experts[n]), set()) for n in range(5) for block in range(3)
    ]
    assert float(compute_router_cross_entropy(logits, experts)) == pytest.approx(sum(expected) / 15, rel=1e-5)


def test_load_balancing_is_its_formula() -> None:
    logits = torch.randn(7, 2, 3, generator=torch.Generator().manual_seed(1))
    expected = 0.0
    for block in range(2):
        for expert in range(3):
            rows = logits[:, block]
            share = sum(int(row.argmax()) == expert for row in rows) / 7
            probability = sum(math.exp(row[expert]) / sum(math.exp(x) for x in row) for row in rows) / 7
            expected += 3 * share * float(probability) / 2
    assert float(load_balancing(logits)) == pytest.approx(expected, rel=1e-5)
    assert float(load_balancing(100 * torch.eye(3)[:, None])) == pytest.approx(1.0)
    assert float(load_balancing(100 * torch.eye(3)[[0, 0, 0], None])) == pytest.approx(3.0)


@pytest.mark.parametrize("by_domain", [True, False])
@pytest.mark.parametrize("name", LOSSES)
def test_the_routers_losses_are_added_and_cached(
    router_model: SentenceTransformer, name: str, by_domain: bool
) -> None:
    router = sequence_router_loss(to_domain=0.7, balance=0.3, by_domain=by_domain)
    columns = features(router_model, TEXTS, OTHERS)
    loss = made(router_model, name, LINKS, router=router)
    value, gradients = loss_and_gradients(loss, columns)
    assert any(".router." in name for name in gradients)

    given = {"expert_ids": DOMAINS} if by_domain else {}
    embeddings, logits = [], []
    with torch.no_grad():
        for column in columns:
            embeddings.append(router_model({**column, **given})["sentence_embedding"])
            outputs = router_model[0].auto_model(
                **{k: column[k] for k in ("input_ids", "attention_mask")}, **given
            )
            logits.append(torch.stack(outputs.router_logits, dim=1))
    both, domains = torch.cat(logits), torch.cat([DOMAINS, DOMAINS])
    expected = SLOW[name](*embeddings, True)
    expected += 0.7 * float(compute_router_cross_entropy(both, domains)) + 0.3 * float(load_balancing(both))
    assert value == pytest.approx(expected, rel=1e-4)

    for size in (1, 4):
        cached = made(router_model, name, LINKS, router=router, cache_mini_batch=size)
        other, others = loss_and_gradients(cached, columns)
        assert other == pytest.approx(value, abs=1e-5)
        assert same_gradients(gradients, others, scale=max(1.0, value))


def test_hooks_are_removed_from_the_model(router_model: SentenceTransformer) -> None:
    columns = features(router_model, TEXTS, OTHERS)
    loss_and_gradients(made(router_model, "in_batch_negatives", router=sequence_router_loss()), columns)
    assert not any(module._forward_hooks for module in router_model.modules())
    assert "expert_ids" not in columns[0]
