from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from sentence_experts.evaluation import statistics
from sentence_experts.evaluation.estimates import Interval, Runs, ScoredPairs, Sharing, estimate
from sentence_experts.evaluation.metrics import pair_metrics
from sentence_experts.evaluation.pair_evaluation import metrics_of, with_intervals
from sentence_experts.evaluation.statistics import runs_of


def random_pairs(pairs: int, papers: int, seed: int = 0, shift: float = 1.0, prefix="p") -> ScoredPairs:
    generator = np.random.default_rng(seed)
    labels = np.arange(pairs) % 2
    first = generator.integers(papers, size=pairs)
    second = (first + 1 + generator.integers(papers - 1, size=pairs)) % papers
    scores = np.round(generator.normal(size=pairs) + shift * labels, 2)
    return ScoredPairs(scores, labels, [f"{prefix}{i}" for i in first], [f"{prefix}{i}" for i in second])


def with_own_papers(pairs: ScoredPairs) -> ScoredPairs:
    count = len(pairs.labels)
    names = [[f"{side}{number}" for number in range(count)] for side in "ab"]
    return ScoredPairs(pairs.scores, pairs.labels, *names)


def interval_of(pairs: ScoredPairs, metric: str = "roc_auc", replicates: int = 200) -> Interval:
    return estimate(runs_of({"d": pairs}, replicates)[1][metric]).interval(lowest=0.0)


def of_independent_pairs(pairs: ScoredPairs, influence: np.ndarray) -> float:
    """The least variance: two papers that are a pair several times are one pair."""
    sums: dict[frozenset, float] = defaultdict(float)
    for first, second, own in zip(pairs.first, pairs.second, influence, strict=True):
        sums[frozenset((first, second))] += own
    return sum(own**2 for own in sums.values())


@given(st.integers(0, 10_000))
def test_variance_equals_the_sum_over_all_pairs_that_share_a_paper(seed):
    generator = np.random.default_rng(seed)
    pairs = random_pairs(40, 12, seed)
    influence = generator.normal(size=40)
    papers = [{*both} for both in zip(pairs.first, pairs.second, strict=True)]
    expected = sum(
        a * b
        for a, x in zip(influence, papers, strict=True)
        for b, y in zip(influence, papers, strict=True)
        if x & y
    )
    found = Sharing.of(pairs).variance(influence)
    assert found == pytest.approx(max(expected, of_independent_pairs(pairs, influence)))


@given(st.integers(0, 10_000))
def test_variance_equals_the_sum_over_all_pairs_that_share_a_paper_or_an_article(seed):
    generator = np.random.default_rng(seed)
    pairs = random_pairs(40, 30, seed)
    articles = [[f"a{n}" for n in generator.integers(15, size=generator.integers(4))] for _ in pairs.labels]
    influence = generator.normal(size=40)
    known = [{*ids, *both} for *both, ids in zip(pairs.first, pairs.second, articles, strict=True)]
    expected = sum(
        a * b
        for a, x in zip(influence, known, strict=True)
        for b, y in zip(influence, known, strict=True)
        if x & y
    )
    with_articles = replace(pairs, articles=articles)
    found = Sharing.of(with_articles).variance(influence)
    assert found == pytest.approx(max(expected, of_independent_pairs(pairs, influence)), rel=1e-5)
    alone = Sharing.of(replace(pairs, articles=[[] for _ in pairs.labels]))
    assert alone.variance(influence) == pytest.approx(Sharing.of(pairs).variance(influence), rel=1e-5)
    assert Sharing.of(with_articles).variance(np.zeros(40)) == 0  # of a score that is the same for all pairs


@pytest.mark.parametrize("metric", ["f1_max", "roc_auc"])
def test_influence_is_the_derivative_of_the_metric(metric):
    pairs = random_pairs(60, 30, 2, prefix="q")
    found = runs_of({"d": pairs}, 50)[1][metric].influence[0]
    assert found.sum() == pytest.approx(0, abs=1e-9)
    threshold = pair_metrics(pairs.scores, pairs.labels)["threshold"]

    def value(weights: np.ndarray) -> float:
        if metric == "roc_auc":
            return roc_auc_score(pairs.labels, pairs.scores, sample_weight=weights)
        rates = [
            np.average(pairs.scores[own] >= threshold, weights=weights[own])
            for own in (pairs.labels == 1, pairs.labels == 0)
        ]
        return 2 * 30 * rates[0] / (30 * rates[0] + 30 * rates[1] + 30)

    step, sharing = 1e-6, Sharing.of(pairs)
    for number in (0, 1, 17, 42):
        weights = np.ones(60)
        weights[number] += step
        moved = (value(weights) - value(np.ones(60))) / step
        # Over the correction for deviations from the mean of the class, which are smaller than errors.
        related = sharing.variance((pairs.labels == pairs.labels[number]).astype(float)) / 30**2
        assert found[number] * np.sqrt(1 - related) == pytest.approx(moved, abs=1e-4)


def test_influence_of_independent_pairs_gives_delongs_variance():
    pairs = with_own_papers(random_pairs(300, 100))
    linked, others = (pairs.scores[pairs.labels == label] for label in (1, 0))
    above = (linked[:, None] > others) + 0.5 * (linked[:, None] == others)
    expected = above.mean(1).var(ddof=1) / 150 + above.mean(0).var(ddof=1) / 150
    found = estimate(runs_of({"d": pairs}, 1)[1]["roc_auc"])
    assert found.error**2 == pytest.approx(expected)
    assert found.value == pytest.approx(above.mean())


@given(st.integers(4, 30), st.integers(0, 10_000), st.sampled_from([0, 1]), st.sampled_from([-0.5, 0.0, 1.0]))
@settings(max_examples=60, deadline=None)
def test_intervals_of_few_pairs_hold_their_value(count: int, seed: int, digits: int, shift: float):
    pairs = random_pairs(count, 8, seed, shift)
    pairs = replace(pairs, scores=np.round(pairs.scores, digits))
    runs = runs_of({"d": pairs}, 20)[1]
    found = with_intervals(metrics_of(pairs.scores, pairs.labels), runs)
    for metric, interval in found.intervals.items():
        assert 0 <= interval.low <= found.metrics[metric] <= interval.high <= 1
    assert runs["f1_max"].values[0] >= found.f1_of_all_linked


@pytest.mark.parametrize("count", [60, pytest.param(160, marks=pytest.mark.slow)])
def test_where_the_best_threshold_calls_all_pairs_linked_f1_is_uncertain_too(count: int):
    weak = (with_own_papers(random_pairs(count, 50, seed, 0.4)) for seed in range(400))
    measured = ((pairs, metrics_of(pairs.scores, pairs.labels)) for pairs in weak)
    lowest = [(pairs, metrics) for pairs, metrics in measured if metrics.metrics["f1_max"] < 2 / 3 + 1e-9][:3]
    runs = [runs_of({"d": pairs}, 200)[1] for pairs, _ in lowest]
    for (_, metrics), run in zip(lowest, runs, strict=True):
        interval = with_intervals(metrics, run).intervals["f1_max"]
        assert interval.low <= 2 / 3 < interval.high - 0.01
    several = estimate(Runs.joined([run["f1_max"] for run in runs])).interval(lowest=0.0)
    assert len(runs) == 3
    assert several.high - several.low > 0.01


@pytest.mark.parametrize("count", [4, 20, 100])
def test_a_model_without_errors_is_not_certain_to_make_none(count: int):
    pairs = with_own_papers(random_pairs(count, 50, shift=20.0))
    worse = replace(pairs, scores=pairs.scores - 19.0 * pairs.labels)
    runs, others = (runs_of({"d": each}, 50)[1] for each in (pairs, worse))
    for metric, run in runs.items():
        found = with_intervals(metrics_of(pairs.scores, pairs.labels), runs).intervals[metric]
        assert found.high == 1.0
        assert 0.5 / count < 1 - found.low < 8 / count
        same = estimate(*run.minus(run))
        assert same.interval().high > 1 / count
        assert same.p_value() == 1
        assert estimate(*run.minus(others[metric])).error > estimate(others[metric]).error * 0.5
        joined = Runs.joined([run, run])
        assert estimate(joined).error == pytest.approx(estimate(run).error)


def test_linked_pairs_alone_without_a_miss_leave_room_for_misses():
    pairs = with_own_papers(random_pairs(20, 50))
    linked = replace(pairs, labels=np.ones(20, int), scores=np.abs(pairs.scores) + 1)
    run = runs_of({"d": linked}, 50, threshold_min=0.5)[1]["f1_max"]
    assert 0.9 < estimate(run).interval().low < 0.97
    assert estimate(*run.minus(run)).interval().high > 0.05


@pytest.mark.parametrize("count", [3, 20, 200])
def test_linked_pairs_alone_that_are_all_missed_leave_room_for_finds(count: int):
    linked = with_own_papers(ScoredPairs(np.linspace(0.1, 0.4, count), np.ones(count, int), [], []))
    found = estimate(runs_of({"d": linked}, 50)[1]["f1_max"])
    share = 1 - 0.025 ** (1 / count)  # of all pairs at most, by Clopper and Pearson
    assert found.value == 0.0
    assert found.interval(lowest=0.0).high == pytest.approx(2 * share / (1 + share), rel=0.25)


def test_papers_shared_by_many_pairs_widen_the_interval():
    # The same pairs, once all sharing a few hub papers and once with separate papers.
    alone = random_pairs(400, 20)
    hub = np.random.default_rng(3).normal(scale=2, size=20)
    scores = alone.scores + [
        hub[int(a[1:])] + hub[int(b[1:])] for a, b in zip(alone.first, alone.second, strict=True)
    ]
    shared = interval_of(ScoredPairs(scores, alone.labels, alone.first, alone.second))
    own = interval_of(with_own_papers(ScoredPairs(scores, alone.labels, alone.first, alone.second)))
    assert shared.high - shared.low > 1.15 * (own.high - own.low)


def test_order_of_pairs_and_memory_limit_do_not_change_estimates(monkeypatch):
    pairs = random_pairs(300, 60)
    order = np.random.default_rng(5).permutation(300)
    names = [[side[i] for i in order] for side in (pairs.first, pairs.second)]
    shuffled = ScoredPairs(pairs.scores[order], pairs.labels[order], *names)

    def found(of: ScoredPairs, seed: int):
        return estimate(runs_of({"d": of}, 50, seed)[1]["f1_max"])

    before, after = found(pairs, 7), found(shuffled, 7)
    assert (before.value, before.error) == pytest.approx((after.value, after.error))
    monkeypatch.setattr(statistics, "CELLS_AT_ONCE", 1000)
    assert found(pairs, 7) == before
    assert found(pairs, 8).value != before.value


def test_views_are_equal_for_one_domain_and_differ_for_two():
    domains, pooled, mean = runs_of({"d": random_pairs(200, 40)}, 40, 2)
    for name in ("f1_max", "roc_auc"):
        assert estimate(domains["d"][name]) == estimate(pooled[name]) == estimate(mean[name])
    # A domain whose scores all lie higher: each is well separated alone, pooled is not.
    moved = random_pairs(200, 40, seed=1, shift=4.0, prefix="q")
    low = random_pairs(200, 40, seed=2, shift=4.0)
    high = ScoredPairs(moved.scores + 4, moved.labels, moved.first, moved.second)
    domains, pooled, mean = runs_of({"low": low, "high": high}, 40, 2)
    for name in ("f1_max", "roc_auc"):
        assert estimate(mean[name]).value > estimate(pooled[name]).value + 0.1
        # The domains share no paper, so the variances add up.
        errors = [estimate(each[name]).error for each in domains.values()]
        assert estimate(mean[name]).error == pytest.approx(np.hypot(*errors) / 2, rel=0.1)


def test_one_class_has_no_auc():
    pairs = ScoredPairs(np.array([0.1, 0.2]), np.array([1, 1]), ["a", "c"], ["b", "d"])
    found = runs_of({"d": pairs}, 20, threshold_min=-1.0)[1]
    assert estimate(found["roc_auc"]) is None
    assert estimate(found["f1_max"]).value == 1.0
    unlinked = ScoredPairs(pairs.scores, np.zeros(2, dtype=int), pairs.first, pairs.second)
    assert estimate(runs_of({"d": unlinked}, 20)[1]["f1_max"]) is None


def test_a_limited_threshold_limits_the_estimate_too():
    pairs = with_own_papers(ScoredPairs(np.array([0.9, 0.2] * 10), np.ones(20, dtype=int), [], []))
    free, limited = (
        estimate(runs_of({"d": pairs}, 50, threshold_min=lowest)[1]["f1_max"]) for lowest in (0.0, 0.5)
    )
    assert free.value == 1.0
    assert limited.value == pytest.approx(2 / 3)
    assert limited.error > 0.05
    assert estimate(runs_of({"d": pairs}, 50)[1]["f1_max"]) == limited
    none = estimate(runs_of({"d": pairs}, 50, threshold_min=0.95)[1]["f1_max"])
    assert none.value == 0.0
