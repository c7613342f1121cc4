from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2, t

from sentence_experts.evaluation.estimates import Runs, ScoredPairs, Sharing, estimate
from sentence_experts.evaluation.pair_evaluation import Measured, mean_over_runs, metrics_of, with_intervals
from sentence_experts.evaluation.results import POOLED
from sentence_experts.evaluation.statistics import runs_of

PAIRS, PAPERS = 200, 80
ALONE = Sharing.of(ScoredPairs(np.zeros(2), np.array([0, 1]), ["a", "b"], ["c", "d"]))


def measured_runs(gaps: list[float]) -> list[Measured]:
    """Runs of one model on the same pairs: each separates them by another gap."""
    generator = np.random.default_rng(0)
    labels = np.arange(PAIRS) % 2
    first = generator.integers(PAPERS, size=PAIRS)
    ids = [[f"p{i}" for i in side] for side in (first, (first + 1) % PAPERS)]
    found = []
    for gap in gaps:
        scores = gap * labels + generator.normal(size=PAIRS)
        runs = runs_of({"d": ScoredPairs(scores, labels, *ids)}, 100)[1]
        found.append(Measured({POOLED: with_intervals(metrics_of(scores, labels), runs)}, {POOLED: runs}))
    return found


def runs(*values: float, own: float = 0.0) -> Runs:
    """Runs with these values; `own` is the noise of each on a separate pair."""
    influence = np.zeros((len(values), 2))
    influence[:, 0] = own * np.arange(len(values))
    return Runs(np.array(values), influence, influence, ALONE)


def test_metrics_over_runs_are_mean_and_standard_deviation():
    measured = measured_runs([1.0, 1.2, 0.7])
    values = [run.figures[POOLED].metrics["roc_auc"] for run in measured]
    found = mean_over_runs(measured).figures[POOLED]
    assert found.metrics["roc_auc"] == pytest.approx(np.mean(values))
    assert found.spread["roc_auc"] == pytest.approx(np.std(values, ddof=1))
    assert (found.pairs, found.positives) == (PAIRS, PAIRS // 2)
    assert mean_over_runs(measured[:1]) is measured[0]


def test_variances_over_papers_and_seeds_add_up():
    found = estimate(runs(0.6, 0.7, 0.8, own=0.05))  # influences 0, 0.05 and 0.1 on one pair
    shared = (0 * 0.05 + 0 * 0.1 + 0.05 * 0.1) / 3  # the mean covariance of two runs
    assert found.error**2 == pytest.approx(shared + 0.01 / 3)
    # The seeds' part is taken at the end of its interval: this much larger.
    largest = 0.01 / 3 * 2 / chi2.ppf(0.25, 2)
    assert found.freedom == pytest.approx(2 * ((shared + largest) / largest) ** 2)


@pytest.mark.parametrize("seeds", [3, 5])
def test_what_papers_do_to_each_run_by_itself_counts_once(seeds: int):
    """If it counted twice, 1 to 2% of worlds in which only that differs would be positive."""
    generator, pairs, worlds = np.random.default_rng(seeds), 100, 1000
    sharing = Sharing(np.arange(pairs), pairs + np.arange(pairs), np.arange(pairs))
    influence = generator.normal(size=(worlds, 1, pairs)) + 3 * generator.normal(size=(worlds, seeds, pairs))
    found = [estimate(Runs(each.sum(1), each, each, sharing)) for each in influence]
    assert 0.028 < np.mean([each.p_value() < 0.05 for each in found]) < 0.075


def test_differences_pair_equal_numbers_of_seeds():
    a, follows, two, fixed = runs(0.6, 0.7, 0.8), runs(0.5, 0.6, 0.7), runs(0.5, 0.7), runs(0.6)
    paired = estimate(*a.minus(follows))
    assert paired.value == pytest.approx(0.1)
    assert paired.error == pytest.approx(0, abs=1e-9)
    assert paired.p_value() == 0
    assert estimate(*a.minus(a)).p_value() == 1
    of_both = 0.01 / 3 + 0.02 / 2
    largest = [0.01 / 3 * 2 / chi2.ppf(0.25, 2), 0.02 / 2 / chi2.ppf(0.25, 1)]
    freedom = sum(largest) ** 2 / (largest[0] ** 2 / 2 + largest[1] ** 2)
    welch = estimate(*a.minus(two))
    assert welch.interval(highest=9.0).high == pytest.approx(0.1 + t.isf(0.025, freedom) * np.sqrt(of_both))
    assert estimate(*a.minus(fixed)).error == pytest.approx(np.sqrt(0.01 / 3))


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("share", [0.3, 3.0, 10.0])
@pytest.mark.slow
def test_seeds_that_lie_close_together_do_not_make_false_positives(seeds: int, share: float):
    generator = np.random.default_rng(seeds)
    influence = np.zeros((seeds, 2))
    influence[:, 0] = 1.0
    false = 0
    for _ in range(600):  # worlds without a difference; the papers' variance is 1
        values = generator.normal() + generator.normal(size=seeds) * np.sqrt(share * seeds)
        false += estimate(Runs(values, influence, influence, ALONE)).p_value() < 0.05
    assert 0.02 < false / 600 < 0.08
