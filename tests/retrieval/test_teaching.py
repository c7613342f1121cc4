"""The map that examples teach, and what it is worth on others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from sentence_experts.models.pooling import unit
from sentence_experts.retrieval import teaching
from sentence_experts.retrieval.teaching import (
    FOLDS,
    Examples,
    cross_validate,
    fit_head,
    roc_auc,
)


def draw_examples(count: int = 24, groups: int = 1, width: int = 12, seed: int = 0) -> Examples:
    """Texts of a topic, which is loud, and of a kind, which is not: only the kind makes them similar."""
    dice = np.random.default_rng(seed)
    kinds = dice.integers(0, 2, count + groups)
    vectors = dice.normal(0, 0.3, (count + groups, width))
    vectors[:, 0] += dice.choice([-1.0, 1.0], count + groups)
    vectors[:, 1] += kinds - 0.5
    numbers = np.arange(count) % groups
    vectors = unit(vectors.astype(np.float32))
    return Examples(vectors[:count], kinds[:count] == kinds[count + numbers], numbers, vectors[count:])


def test_the_slope_is_that_of_the_loss() -> None:
    examples = draw_examples(9, 2).with_anchors()
    rows = examples.vectors.astype(np.float64)
    change = np.random.default_rng(1).normal(0, 0.1, (12, 12))

    def loss(change: Any) -> float:
        mapped = unit(rows + rows @ change.T)
        parts = []
        for a in range(len(rows)):
            same = [b for b in range(len(rows)) if examples.groups[b] == examples.groups[a]]
            unlike = [b for b in same if not examples.similar[b]]
            for b in same:
                if a != b and examples.similar[a] and examples.similar[b] and unlike:
                    scores = [mapped[a] @ mapped[c] / teaching.TEMPERATURE for c in [b, *unlike]]
                    parts.append(np.log(np.sum(np.exp(scores))) - scores[0])
        return float(np.mean(parts))

    slope = teaching._slope(rows, change, examples.similar, examples.groups)
    for place in ((0, 0), (1, 4), (7, 2)):
        step = np.zeros_like(change)
        step[place] = 1e-5
        measured = (loss(change + step) - loss(change - step)) / 2e-5
        assert slope[place] == pytest.approx(measured, rel=1e-4, abs=1e-7)


def test_what_is_taught_holds_for_other_queries() -> None:
    new = draw_examples(200, 20, seed=9)
    for groups in (1, 6):
        taught = fit_head(draw_examples(40, groups))
        after = np.einsum("ij,ij->i", taught.apply(new.vectors), taught.apply(new.anchors)[new.groups])
        before = np.einsum("ij,ij->i", new.vectors, new.anchors[new.groups])
        assert roc_auc(after, new) > roc_auc(before, new) + 0.15


def test_the_map_is_near_the_identity_where_nothing_is_known() -> None:
    examples = draw_examples(6, width=40)
    weight = fit_head(examples).weight
    assert weight is not None
    across = np.linalg.svd(examples.with_anchors().vectors)[2][7:]  # at right angles to all examples
    assert across @ weight.T == pytest.approx(across, abs=1e-5)
    assert np.abs(weight - np.eye(40)).max() > 0.1
    firm = fit_head(examples, penalty=100.0).weight
    assert firm == pytest.approx(np.eye(40), abs=0.05)
    alone = Examples(examples.vectors, np.ones(6, bool), examples.groups, examples.anchors)
    assert fit_head(alone).weight == pytest.approx(np.eye(40)), "no paper is unlike another one"


@pytest.mark.parametrize("groups", [1, 12])
def test_many_examples_are_taken_by_parts(monkeypatch: pytest.MonkeyPatch, groups: int) -> None:
    monkeypatch.setattr(teaching, "AT_ONCE", 30)
    new = draw_examples(200, 20, seed=9)
    taught = fit_head(draw_examples(120, groups))
    after = np.einsum("ij,ij->i", taught.apply(new.vectors), taught.apply(new.anchors)[new.groups])
    assert roc_auc(after, new) > 0.8


def test_each_example_is_held_out_once_and_queries_whole_if_there_are_enough() -> None:
    for groups in (1, 2, 7):
        examples = draw_examples(30, groups)
        pairs = list(teaching._folds(examples))
        folds = [held for _, held in pairs]
        assert all((training == ~held).all() for training, held in pairs)
        assert np.sum(folds, axis=0).tolist() == [1] * 30
        assert max(fold.sum() for fold in folds) <= (12 if groups == 7 else 6)
        if groups == 7:
            for group in range(7):
                assert {fold[examples.groups == group].all() for fold in folds} == {True, False}
                assert sum(fold[examples.groups == group].any() for fold in folds) == 1


@pytest.mark.parametrize("groups", [1, 3, 6])
@pytest.mark.parametrize("papers", [np.arange(60) // 6, np.arange(60) % 10, np.arange(60) // 3])
def test_papers_that_are_judged_several_times_are_held_out_whole(
    groups: int, papers: NDArray[np.int64]
) -> None:
    examples = replace(draw_examples(60, groups), papers=papers)
    folds = list(teaching._folds(examples))
    assert len(folds) == FOLDS
    assert np.sum([held for _, held in folds], axis=0).tolist() == [1] * 60
    for training, held in folds:
        assert set(papers[training]).isdisjoint(papers[held])
        assert 0 < examples.similar[training].mean() < 1


def test_what_is_learned_shows_on_held_out_examples() -> None:
    found = cross_validate(draw_examples(80, 8))
    assert found.low <= found.auc <= found.high
    assert found.auc > found.untaught


def test_noise_is_not_taken_for_knowledge() -> None:
    low = []
    for seed in range(20):
        dice = np.random.default_rng(seed)
        vectors = unit(dice.normal(size=(11, 20)).astype(np.float32))
        similar = np.arange(10) % 2 == 0
        low.append(cross_validate(Examples(vectors[:10], similar, np.zeros(10, int), vectors[10:])).low)
    assert sum(each > 0.5 for each in low) <= 1


@pytest.mark.parametrize("queries", [1, pytest.param(3, marks=pytest.mark.slow), 6])
@pytest.mark.slow
def test_noise_on_papers_that_are_judged_several_times_is_not_either(queries: int) -> None:
    low = []
    for seed in range(10):
        dice = np.random.default_rng(seed)
        vectors = unit(dice.normal(size=(20 + queries, 20)).astype(np.float32))
        papers, similar = np.tile(np.arange(20), 6), np.tile(np.arange(20) % 2 == 0, 6)
        groups = np.arange(120) // 20 % queries
        low.append(cross_validate(Examples(vectors[papers], similar, groups, vectors[20:], papers)).low)
    assert sum(each > 0.5 for each in low) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("strength", [0.0, 2.0])
def test_the_interval_covers_the_figure_of_other_papers(strength: float) -> None:
    """The true figure is that of the map of all marks, on papers that were not among them."""
    scale = np.arange(1, 25) ** -0.6
    kind = np.random.default_rng(99).normal(size=24) / scale
    missed = 0
    for seed in range(120):
        dice = np.random.default_rng(seed)
        vectors = unit((dice.normal(size=(640, 24)) * scale + np.eye(24)[0]).astype(np.float32))
        signal = vectors @ kind
        similar = strength * (signal - signal.mean()) / signal.std() + dice.normal(size=640) > 0
        examples = Examples(vectors[:40], similar[:40], np.full(40, -1), vectors[:0])
        found = cross_validate(examples)
        taught = fit_head(examples)
        middle = vectors[:40][similar[:40]].mean(axis=0, keepdims=True)
        scores = taught.apply(vectors[40:]) @ taught.apply(unit(middle))[0]
        missed += not found.low <= roc_auc_score(similar[40:], scores) <= found.high
    assert missed <= 12, "5% of 120 are 6, and more than 12 come once in 100 times"


def test_papers_are_compared_within_a_group_only() -> None:
    examples = draw_examples(40, 2)
    scores = np.random.default_rng(3).normal(size=40)
    far = scores + 100 * examples.groups
    assert roc_auc(far, examples) == pytest.approx(roc_auc(scores, examples))


def test_a_query_is_similar_to_its_papers() -> None:
    examples = draw_examples(30, 10)
    first = [
        np.flatnonzero((examples.groups == n) & (examples.similar == k))[:1]
        for n in range(10)
        for k in (0, 1)
    ]
    weight = fit_head(examples.only(np.concatenate(first))).weight
    assert weight is not None
    assert np.abs(weight - np.eye(12)).max() > 0.1, "one similar paper each, so all pairs are with the query"


def test_a_paper_that_is_held_out_is_not_in_the_mean_that_it_is_compared_with() -> None:
    examples = draw_examples(10)
    without = replace(examples, groups=np.full(10, -1), anchors=examples.anchors[:0])
    held = np.arange(10) < 4
    (mean,) = {tuple(each) for each in teaching._anchors_of(without, ~held, held)}
    rest = examples.vectors[~held & examples.similar].mean(axis=0, keepdims=True)
    assert mean == pytest.approx(unit(rest)[0])


def test_roc_auc_and_its_interval() -> None:
    dice = np.random.default_rng(3)
    examples = draw_examples(60)
    scores = dice.normal(size=60) + examples.similar
    assert roc_auc(scores, examples) == pytest.approx(roc_auc_score(examples.similar, scores))
    widths = []
    for count in (3, 10, 100):
        ends = teaching._interval(1.0, [(count, count)])
        assert ends["high"] == 1.0
        widths.append(1 - ends["low"])
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 0.4
    ends = teaching._interval(0.8, [(30, 30)])
    assert ends["low"] < 0.7 < 0.87 < ends["high"]


@pytest.mark.parametrize("queries", [1, 3, 8])
def test_the_interval_covers_where_pairs_are_of_one_query(queries: int) -> None:
    """Simulated: 24 examples of some queries, whose scores say nothing or something."""
    dice, missed, times = np.random.default_rng(0), {0.0: 0, 1.0: 0}, 300
    for shift in missed:
        true = norm.cdf(shift / 2**0.5)
        for _ in range(times):
            similar, groups = dice.random(24) < 0.5, dice.integers(0, queries, 24)
            examples = Examples(np.zeros((24, 2), np.float32), similar, groups, np.zeros((queries, 2)))
            auc = roc_auc(dice.normal(size=24) + shift * similar, examples)
            ends = teaching._interval(auc, teaching.count_classes(examples))
            missed[shift] += not ends["low"] <= true <= ends["high"]
    assert all(count / times <= 0.08 for count in missed.values())


def test_without_a_query_similar_papers_are_similar_to_each_other() -> None:
    examples = draw_examples(20)
    without = Examples(examples.vectors, examples.similar, np.full(20, -1), examples.anchors[:0])
    assert cross_validate(without).auc > 0.6
    new = draw_examples(200, 20, seed=9)
    taught = fit_head(without)
    after = np.einsum("ij,ij->i", taught.apply(new.vectors), taught.apply(new.anchors)[new.groups])
    before = np.einsum("ij,ij->i", new.vectors, new.anchors[new.groups])
    assert roc_auc(after, new) > roc_auc(before, new)
