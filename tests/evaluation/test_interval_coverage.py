"""The simulations of benchmarks/interval_coverage.py in a short form.

The bands hold 99.9% of what so few worlds would give if a nominal 95% were 93 to 96.5%, and a nominal 5% were
3 to 6%.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from interval_coverage import World, coverage, equal_models, rejections
from sentence_experts.evaluation.estimates import estimate
from sentence_experts.evaluation.statistics import runs_of

WORLDS = 150
LOWEST, HIGHEST = binom.ppf(0.0005, WORLDS, 0.93) / WORLDS, binom.ppf(0.9995, WORLDS, 0.965) / WORLDS


def test_intervals_hold_the_true_value():
    found = coverage(World((60,) * 3), WORLDS, replicates=30)
    assert {*found} == {"pooled f1_max", "pooled roc_auc", "mean f1_max", "mean roc_auc"}
    for name, figures in found.items():
        assert LOWEST <= figures["coverage"] <= HIGHEST, name
        assert abs(figures["mean_error"]) < 0.4 * figures["standard_error"], name


@pytest.mark.slow
def test_intervals_of_the_same_pairs_under_two_routes_hold_the_true_value():
    found = coverage(World((100,) * 2, distance=0.5, repeated=True), WORLDS, replicates=5)["mean roc_auc"]
    assert LOWEST <= found["coverage"] <= HIGHEST


@pytest.mark.slow
def test_equal_ways_of_training_look_equal():
    worlds = 120
    found = rejections(0.007, 3, worlds, replicates=5)
    for name in ("f1_max", "roc_auc", "any of three"):
        assert found[name] <= binom.ppf(0.9995, worlds, 0.06) / worlds, name


@pytest.mark.slow
def test_equally_good_models_look_equal_on_few_pairs():
    """By F1max 8% to 12% of them differed."""
    found = equal_models(300, 0.025, 2.2, WORLDS, replicates=30)
    for name in ("f1_max", "roc_auc"):
        assert found[name] <= binom.ppf(0.9995, WORLDS, 0.055) / WORLDS, name


@pytest.mark.slow
def test_intervals_of_areas_hold_near_one():
    """With few pairs, where an interval that is symmetric around the area holds 81% to 86%."""
    found = coverage(World((50,) * 2, distance=3.0), WORLDS, replicates=2)
    for name in ("pooled roc_auc", "mean roc_auc"):
        assert LOWEST <= found[name]["coverage"] <= HIGHEST, name


@pytest.mark.slow
def test_domains_without_errors_do_not_stretch_the_interval_of_the_mean():
    """What their pairs cannot show is as wide as in their own intervals, and no wider."""
    world, mixed = World((100,) * 4, distance=4.0), 0
    truth, held = world.truth()["mean", "roc_auc"], []
    for number in range(150):
        by_domain, _, mean = runs_of(world.sample(np.random.default_rng([1, number])), 1, number)
        known = estimate(mean["roc_auc"])
        interval = known.interval_of_area()
        held.append(interval.low <= truth <= interval.high)
        if known.unseen and known.value < 1:
            mixed += 1
            lows = [estimate(each["roc_auc"]).interval_of_area().low for each in by_domain.values()]
            assert interval.low > np.mean(lows)
    assert mixed > 50
    assert np.mean(held) > LOWEST
