"""The simulations of benchmarks/interval_coverage.py in a short form, with bands as wide as that asks for."""

from __future__ import annotations

from dataclasses import replace

from interval_coverage import World, coverage, false_positives


def test_intervals_hold_the_true_value():
    found = coverage(World((100,) * 4), worlds=60, replicates=50)
    for name, figures in found.items():
        assert figures["coverage"] >= 0.85, name
        assert abs(figures["mean_error"]) < 0.6 * figures["standard_error"], name


def test_intervals_that_know_the_articles_hold_the_true_value():
    world = World((200,) * 2, article=0.3)
    known = coverage(world, worlds=60, replicates=30)
    unknown = coverage(replace(world, by_article=False), worlds=60, replicates=30)
    for name, figures in known.items():
        assert figures["coverage"] >= 0.85, name
        assert figures["standard_error"] > 1.1 * unknown[name]["standard_error"], name


def test_equal_ways_of_training_look_equal():
    found = false_positives(0.007, seeds=3, worlds=40, replicates=10)
    for name in ("f1_max", "roc_auc", "any of three"):
        assert found[name] <= 0.175, name
