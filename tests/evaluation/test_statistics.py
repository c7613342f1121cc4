from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_curve, roc_auc_score

from sentence_experts.evaluation import statistics
from sentence_experts.evaluation.metrics import pair_metrics
from sentence_experts.evaluation.statistics import ScoredPairs, bootstrap, difference, interval, paper_draws


def random_pairs(pairs: int, papers: int, seed: int = 0, shift: float = 1.0, prefix="p") -> ScoredPairs:
    generator = np.random.default_rng(seed)
    labels = np.arange(pairs) % 2
    first = generator.integers(papers, size=pairs)
    second = (first + 1 + generator.integers(papers - 1, size=pairs)) % papers
    scores = np.round(generator.normal(size=pairs) + shift * labels, 2)
    return ScoredPairs(scores, labels, [f"{prefix}{i}" for i in first], [f"{prefix}{i}" for i in second])


@given(st.integers(0, 10_000))
def test_a_replicate_is_the_weighted_metric_of_scikit_learn(seed):
    pairs = random_pairs(60, 20, seed)
    papers = sorted({*pairs.first, *pairs.second})
    draw = paper_draws(len(papers), 1, seed)[0]
    weight = dict(zip(papers, draw, strict=True))
    weights = np.array([weight[a] * weight[b] for a, b in zip(pairs.first, pairs.second, strict=True)])
    found = bootstrap({"d": pairs}, 1, seed)[0]["d"]
    if weights[pairs.labels == 1].sum() == 0 or weights[pairs.labels == 0].sum() == 0:
        assert np.isnan(found["roc_auc"][0])
        return
    precision, recall, _ = precision_recall_curve(pairs.labels, pairs.scores, sample_weight=weights)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    assert found["f1_max"][0] == pytest.approx(np.nanmax(f1))
    auc = roc_auc_score(pairs.labels, pairs.scores, sample_weight=weights)
    assert found["roc_auc"][0] == pytest.approx(auc)


def test_intervals_hold_the_figure_and_shrink_with_more_papers():
    widths = []
    for papers in (50, 800):
        pairs = random_pairs(papers * 3, papers)
        replicates = bootstrap({"d": pairs}, 300, 1)[0]["d"]
        for name in ("f1_max", "roc_auc"):
            found = interval(replicates[name])
            assert found.low < pair_metrics(pairs.scores, pairs.labels)[name] < found.high
        widths.append(interval(replicates["roc_auc"]).high - interval(replicates["roc_auc"]).low)
    assert widths[1] < widths[0] / 2


def test_papers_shared_by_many_pairs_widen_the_interval():
    # The same pairs, once with papers of their own and once all sharing a few hub papers.
    alone = random_pairs(400, 20)
    many = ScoredPairs(
        alone.scores, alone.labels, [f"a{i}" for i in range(400)], [f"b{i}" for i in range(400)]
    )
    effects = np.random.default_rng(3).normal(scale=2, size=20)
    hub = {f"p{i}": effect for i, effect in enumerate(effects)}
    scores = alone.scores + [hub[a] + hub[b] for a, b in zip(alone.first, alone.second, strict=True)]

    def width(of: ScoredPairs) -> float:
        pairs = ScoredPairs(scores, of.labels, of.first, of.second)
        found = interval(bootstrap({"d": pairs}, 300, 1)[1]["roc_auc"])
        return found.high - found.low

    assert width(alone) > width(many)


def test_seed_and_order_of_pairs_and_memory_decide_nothing_else(monkeypatch):
    pairs = random_pairs(300, 60)
    order = np.random.default_rng(5).permutation(300)
    shuffled = ScoredPairs(
        pairs.scores[order],
        pairs.labels[order],
        [pairs.first[i] for i in order],
        [pairs.second[i] for i in order],
    )
    before = bootstrap({"d": pairs}, 50, 7)[1]["f1_max"]
    assert np.allclose(before, bootstrap({"d": shuffled}, 50, 7)[1]["f1_max"], atol=1e-12)
    monkeypatch.setattr(statistics, "CELLS_AT_ONCE", 1000)
    assert np.array_equal(before, bootstrap({"d": pairs}, 50, 7)[1]["f1_max"])
    assert not np.array_equal(before, bootstrap({"d": pairs}, 50, 8)[1]["f1_max"])


def test_one_domain_is_its_own_pool_and_mean_and_two_differ():
    one = random_pairs(200, 40)
    domains, pooled, mean = bootstrap({"d": one}, 40, 2)
    for name in ("f1_max", "roc_auc"):
        assert np.allclose(domains["d"][name], pooled[name])
        assert np.allclose(domains["d"][name], mean[name])
    # A domain whose scores all lie higher: each is well separated alone, pooled is not.
    moved = random_pairs(200, 40, seed=1, shift=4.0, prefix="q")
    low = random_pairs(200, 40, seed=2, shift=4.0)
    high = ScoredPairs(moved.scores + 4, moved.labels, moved.first, moved.second)
    _, pooled, mean = bootstrap({"low": low, "high": high}, 40, 2)
    assert np.all(mean["f1_max"] > pooled["f1_max"] + 0.1)


def test_paired_difference_of_equal_models_is_zero_and_of_a_better_one_is_positive():
    good = random_pairs(300, 60, shift=3.0)
    noise = np.random.default_rng(0).normal(scale=2, size=300)
    worse = ScoredPairs(good.scores + noise, good.labels, good.first, good.second)
    replicates = [bootstrap({"d": pairs}, 200, 4)[1] for pairs in (good, worse)]
    assert difference(replicates[0], replicates[0])["f1_max"] == statistics.Interval(0.0, 0.0, 200)
    assert difference(*replicates)["roc_auc"].low > 0


def test_one_class_has_no_auc():
    pairs = ScoredPairs(np.array([0.1, 0.2]), np.array([1, 1]), ["a", "c"], ["b", "d"])
    replicates = bootstrap({"d": pairs}, 20, 0)[1]
    assert interval(replicates["roc_auc"]) is None
    assert interval(replicates["f1_max"]).high == 1.0


def test_a_thousand_replicates_of_five_thousand_pairs_take_seconds():
    start = time.perf_counter()
    bootstrap({"d": random_pairs(5000, 2000)}, 1000, 0)
    assert time.perf_counter() - start < 15


def test_a_limited_threshold_limits_the_replicates_too():
    pairs = ScoredPairs(np.array([0.9, 0.2]), np.array([1, 1]), ["a", "c"], ["b", "d"])
    free = bootstrap({"d": pairs}, 200, 0)[1]["f1_max"]
    limited = bootstrap({"d": pairs}, 200, 0, threshold_min=0.5)[1]["f1_max"]
    assert np.nanmin(free) == 1.0
    assert np.nanmin(limited) == 0.0
    assert np.isnan(free).sum() == np.isnan(limited).sum()
