from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.metrics import precision_recall_curve, roc_auc_score

from sentence_experts.evaluation import statistics
from sentence_experts.evaluation.metrics import pair_metrics
from sentence_experts.evaluation.statistics import Interval, ScoredPairs, bootstrap, interval, resampled


def random_pairs(pairs: int, papers: int, seed: int = 0, shift: float = 1.0, prefix="p") -> ScoredPairs:
    generator = np.random.default_rng(seed)
    labels = np.arange(pairs) % 2
    first = generator.integers(papers, size=pairs)
    second = (first + 1 + generator.integers(papers - 1, size=pairs)) % papers
    scores = np.round(generator.normal(size=pairs) + shift * labels, 2)
    return ScoredPairs(scores, labels, [f"{prefix}{i}" for i in first], [f"{prefix}{i}" for i in second])


def measured(pairs: ScoredPairs, replicates: int = 300, metric: str = "roc_auc") -> Interval:
    value = pair_metrics(pairs.scores, pairs.labels)[metric]
    return interval(bootstrap({"d": pairs}, replicates, 1)[1][metric], value)


@given(st.integers(0, 10_000))
def test_replicate_equals_weighted_metric_of_scikit_learn(seed):
    pairs = random_pairs(60, 20, seed)
    papers = sorted({*pairs.first, *pairs.second})
    weight = dict(
        zip(papers, resampled(len(papers), 1, np.random.default_rng(seed))[0].tolist(), strict=True)
    )
    weights = np.array([weight[a] * weight[b] for a, b in zip(pairs.first, pairs.second, strict=True)])
    found = bootstrap({"d": pairs}, 1, seed)[0]["d"]
    if weights[pairs.labels == 1].sum() == 0 or weights[pairs.labels == 0].sum() == 0:
        assert np.isnan(found["roc_auc"].by_papers[0])
        return
    precision, recall, _ = precision_recall_curve(pairs.labels, pairs.scores, sample_weight=weights)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    assert found["f1_max"].by_papers[0] == pytest.approx(np.nanmax(f1))
    auc = roc_auc_score(pairs.labels, pairs.scores, sample_weight=weights)
    assert found["roc_auc"].by_papers[0] == pytest.approx(auc)


def test_each_replicate_draws_the_number_of_items():
    draws = resampled(7, 50, np.random.default_rng(0))
    assert draws.shape == (50, 7)
    assert (draws.sum(1) == 7).all()
    assert len(np.unique(draws, axis=0)) > 40


def test_intervals_contain_the_metric_and_shrink_with_more_papers():
    widths = []
    for papers in (50, 800):
        pairs = random_pairs(papers * 3, papers)
        for metric in ("f1_max", "roc_auc"):
            found = measured(pairs, metric=metric)
            assert found.low < pair_metrics(pairs.scores, pairs.labels)[metric] < found.high
        widths.append(found.high - found.low)
    assert widths[1] < widths[0] / 2


def test_interval_without_shared_papers_equals_bootstrap_of_pairs():
    pairs = random_pairs(600, 50)
    alone = ScoredPairs(
        pairs.scores, pairs.labels, [f"a{i}" for i in range(600)], [f"b{i}" for i in range(600)]
    )
    found = measured(alone, 800)
    ends = np.quantile(bootstrap({"d": alone}, 800, 1)[1]["roc_auc"].by_pairs, [0.025, 0.975])
    assert found.high - found.low == pytest.approx(ends[1] - ends[0], rel=0.2)


def test_coverage_of_intervals():
    truth = norm.cdf(1 / np.sqrt(2))
    held = []
    for seed in range(60):
        generator = np.random.default_rng(seed)
        pairs = random_pairs(300, 100, seed)
        effect = {paper: generator.normal(scale=0.8) for paper in sorted({*pairs.first, *pairs.second})}
        shared = [
            (effect[a] + effect[b]) / np.sqrt(2) for a, b in zip(pairs.first, pairs.second, strict=True)
        ]
        scores = pairs.labels + shared + generator.normal(scale=0.6, size=300)
        found = measured(ScoredPairs(scores, pairs.labels, pairs.first, pairs.second), 200)
        held.append(found.low <= truth <= found.high)
    assert 0.85 <= np.mean(held) <= 0.99


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
        found = measured(ScoredPairs(scores, of.labels, of.first, of.second))
        return found.high - found.low

    assert width(alone) > 1.15 * width(many)


def test_order_of_pairs_and_memory_limit_do_not_change_replicates(monkeypatch):
    pairs = random_pairs(300, 60)
    order = np.random.default_rng(5).permutation(300)
    shuffled = ScoredPairs(
        pairs.scores[order],
        pairs.labels[order],
        [pairs.first[i] for i in order],
        [pairs.second[i] for i in order],
    )

    def replicates(of: ScoredPairs, seed: int) -> np.ndarray:
        found = bootstrap({"d": of}, 50, seed)[1]["f1_max"]
        return np.concatenate([found.by_papers, found.by_pairs])

    before = replicates(pairs, 7)
    assert np.array_equal(before, replicates(shuffled, 7))
    monkeypatch.setattr(statistics, "CELLS_AT_ONCE", 1000)
    assert np.array_equal(before, replicates(pairs, 7))
    assert not np.array_equal(before, replicates(pairs, 8))


def test_views_are_equal_for_one_domain_and_differ_for_two():
    one = random_pairs(200, 40)
    domains, pooled, mean = bootstrap({"d": one}, 40, 2)
    for name in ("f1_max", "roc_auc"):
        for level in ("by_papers", "by_pairs"):
            expected = getattr(domains["d"][name], level)
            assert np.allclose(expected, getattr(pooled[name], level))
            assert np.allclose(expected, getattr(mean[name], level))
    # A domain whose scores all lie higher: each is well separated alone, pooled is not.
    moved = random_pairs(200, 40, seed=1, shift=4.0, prefix="q")
    low = random_pairs(200, 40, seed=2, shift=4.0)
    high = ScoredPairs(moved.scores + 4, moved.labels, moved.first, moved.second)
    _, pooled, mean = bootstrap({"low": low, "high": high}, 40, 2)
    assert np.all(mean["f1_max"].by_papers > pooled["f1_max"].by_papers + 0.1)
    assert np.all(mean["f1_max"].by_pairs > pooled["f1_max"].by_pairs + 0.1)


def test_one_class_has_no_auc():
    pairs = ScoredPairs(np.array([0.1, 0.2]), np.array([1, 1]), ["a", "c"], ["b", "d"])
    replicates = bootstrap({"d": pairs}, 20, 0)[1]
    assert interval(replicates["roc_auc"], None) is None
    assert interval(replicates["f1_max"], 1.0).high == 1.0


def test_interval_stays_in_the_range_of_metric_and_replicates():
    pairs = random_pairs(30, 8, shift=6.0)
    found = measured(pairs)
    assert 0 <= found.low <= found.high <= 1


def test_replicates_are_cheaper_than_one_metric_at_a_time():
    pairs = random_pairs(5000, 2000)

    def seconds(call) -> float:
        start = time.process_time()
        call()
        return time.process_time() - start

    one = min(seconds(lambda: roc_auc_score(pairs.labels, pairs.scores)) for _ in range(5))
    assert seconds(lambda: bootstrap({"d": pairs}, 1000, 0)) < 3 * 1000 * one


def test_a_limited_threshold_limits_the_replicates_too():
    pairs = ScoredPairs(np.array([0.9, 0.2]), np.array([1, 1]), ["a", "c"], ["b", "d"])
    free = bootstrap({"d": pairs}, 200, 0)[1]["f1_max"].by_papers
    limited = bootstrap({"d": pairs}, 200, 0, threshold_min=0.5)[1]["f1_max"].by_papers
    assert np.nanmin(free) == 1.0
    assert np.nanmin(limited) == 0.0
    assert np.isnan(free).sum() == np.isnan(limited).sum()


def test_pair_in_two_domains_has_the_same_draws_for_two_models():
    rng = np.random.default_rng(0)
    labels = np.tile([1, 0], 10)
    papers = [f"p{number}" for number in range(20)], [f"q{number}" for number in range(20)]
    scores = rng.random(20)
    # The same pairs stand in both domains; the second model swaps what they score there.
    one = {"a": ScoredPairs(scores, labels, *papers), "b": ScoredPairs(scores + 0.5, labels, *papers)}
    other = {"a": one["b"], "b": one["a"]}
    by_domain, swapped = (bootstrap(model, 50, seed=1)[0] for model in (one, other))
    for name in ("a", "b"):
        # A constant added to all scores of a domain moves no rank, so equal draws give equal areas.
        assert np.array_equal(by_domain[name]["roc_auc"].by_pairs, swapped[name]["roc_auc"].by_pairs)
