from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm, t

from sentence_experts.evaluation.pair_evaluation import Measured, mean_over_runs, metrics_of, with_intervals
from sentence_experts.evaluation.results import POOLED
from sentence_experts.evaluation.statistics import Replicates, ScoredPairs, bootstrap, interval

PAIRS, PAPERS = 200, 80


def runs_of(world: int, gaps: list[float]) -> list[Measured]:
    """Runs of one model on the pairs of a world: each separates them by a gap of its own."""
    common = np.random.default_rng(world)
    labels = np.arange(PAIRS) % 2
    first = common.integers(PAPERS, size=PAIRS)
    second = (first + 1 + common.integers(PAPERS - 1, size=PAIRS)) % PAPERS
    effect = common.normal(scale=0.5, size=PAPERS)
    shared = (effect[first] + effect[second]) / np.sqrt(2)
    ids = [[f"p{i}" for i in side] for side in (first, second)]
    found = []
    for gap in gaps:
        scores = gap * labels + shared + common.normal(scale=0.7, size=PAIRS)
        drawn = bootstrap({"d": ScoredPairs(scores, labels, *ids)}, 100, 1)[1]
        found.append(Measured({POOLED: with_intervals(metrics_of(scores, labels), drawn)}, {POOLED: drawn}))
    return found


def test_metrics_over_runs_are_mean_and_standard_deviation():
    runs = runs_of(0, [1.0, 1.2, 0.7])
    values = [run.figures[POOLED].metrics["roc_auc"] for run in runs]
    found = mean_over_runs(runs).figures[POOLED]
    assert found.metrics["roc_auc"] == pytest.approx(np.mean(values))
    assert found.spread["roc_auc"] == pytest.approx(np.std(values, ddof=1))
    assert (found.pairs, found.positives) == (PAIRS, PAIRS // 2)
    assert mean_over_runs(runs[:1]) is runs[0]


def test_coverage_of_intervals_over_papers_and_seeds():
    between = 0.3
    true = norm.cdf((1 + between * np.random.default_rng(0).normal(size=20_000)) / np.sqrt(2 * 0.74)).mean()
    held, held_by_papers = [], []
    for world in range(60):
        gaps = 1 + between * np.random.default_rng([world, 1]).normal(size=3)
        found = mean_over_runs(runs_of(world, list(gaps)))
        value = found.figures[POOLED].metrics["roc_auc"]
        both = found.figures[POOLED].intervals["roc_auc"]
        drawn = found.replicates[POOLED]["roc_auc"]
        papers = interval(Replicates(drawn.by_papers, drawn.by_pairs), value)
        held.append(both.low <= true <= both.high)
        held_by_papers.append(papers.low <= true <= papers.high)
    assert np.mean(held) >= 0.85
    assert np.mean(held_by_papers) < 0.8


def test_interval_over_seeds_is_students():
    still = np.full(50, 0.7)
    values = (0.6, 0.7, 0.8)
    found = interval(Replicates(still, still, (values,)), 0.7)
    half = t.isf(0.025, 2) * np.std(values, ddof=1) / np.sqrt(3)
    assert (found.low, found.high) == pytest.approx((0.7 - half, 0.7 + half))


def test_differences_pair_equal_numbers_of_seeds():
    still = np.zeros(50)
    a = Replicates(still, still, ((0.6, 0.7, 0.8),))
    follows = Replicates(still, still, ((0.5, 0.6, 0.7),))
    assert (a - follows).runs[0] == pytest.approx((0.1, 0.1, 0.1))
    assert interval(a - follows, 0.1).low == pytest.approx(interval(a - follows, 0.1).high)
    two = Replicates(still, still, ((0.5, 0.7),))
    assert (a - two).runs == (a.runs[0], two.runs[0])
    of_both = np.var(a.runs[0], ddof=1) / 3 + np.var(two.runs[0], ddof=1) / 2
    freedom = of_both**2 / ((np.var(a.runs[0], ddof=1) / 3) ** 2 / 2 + (np.var(two.runs[0], ddof=1) / 2) ** 2)
    assert interval(a - two, 0.0).high == pytest.approx(t.isf(0.025, freedom) * np.sqrt(of_both))
    fixed = Replicates(still, still)
    assert (a - fixed).runs == a.runs
    assert interval(a - fixed, 0.0).high > 0
