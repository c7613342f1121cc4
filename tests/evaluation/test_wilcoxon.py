from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import wilcoxon
from sklearn.metrics import roc_auc_score

from sentence_experts.evaluation.results import PAIR_WEIGHTED_MEAN, POOLED, View
from sentence_experts.evaluation.statistics import ScoredPairs
from sentence_experts.evaluation.wilcoxon import (
    areas_by_view,
    block_areas,
    holm,
    paper_blocks,
    rank_tests,
    signed_rank,
)


def scored(pairs: int, papers: int, seed: int, gap: float = 1.0, effect: float = 0.5, world: int = 0):
    """The pairs of one `world`; of each seed a model, with noise and views of papers of its own."""
    common = np.random.default_rng([world, pairs, papers])
    first = common.integers(papers, size=pairs)
    second = (first + 1 + common.integers(papers - 1, size=pairs)) % papers
    shared = common.normal(size=pairs)
    own = np.random.default_rng([world, seed, 1])
    view = own.normal(scale=effect, size=papers)
    labels = np.arange(pairs) % 2
    scores = gap * labels + 0.6 * shared + view[first] + view[second] + own.normal(scale=0.5, size=pairs)
    return ScoredPairs(scores, labels, [f"p{i}" for i in first], [f"p{i}" for i in second])


def test_holm_equals_values_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_block_area_equals_scikit_learn_and_ignores_the_scale():
    pairs = scored(400, 150, 1)
    blocks = paper_blocks(pairs)
    assert len(np.unique(blocks)) == 20  # 200 of a class, ten each
    expected = [roc_auc_score(pairs.labels[blocks == b], pairs.scores[blocks == b]) for b in range(20)]
    assert block_areas(pairs) == pytest.approx(expected)
    assert block_areas(pairs).mean() == pytest.approx(roc_auc_score(pairs.labels, pairs.scores), abs=0.03)
    other_scale = ScoredPairs(np.exp(pairs.scores) - 7, pairs.labels, pairs.first, pairs.second)
    assert np.array_equal(block_areas(pairs), block_areas(other_scale))
    tied = ScoredPairs(np.zeros(400), pairs.labels, pairs.first, pairs.second)
    assert set(block_areas(tied)) == {0.5}


def test_blocks_keep_the_pairs_of_a_paper_together_whatever_their_order_or_side():
    hub = ScoredPairs(
        np.zeros(80),
        np.arange(80) % 2,
        ["hub"] * 40 + [f"a{i}" for i in range(40)],
        [f"b{i}" for i in range(80)],
    )
    blocks = paper_blocks(hub)
    assert len(np.unique(blocks)) > 1
    assert len(np.unique(blocks[:40])) == 1
    order = np.random.default_rng(0).permutation(80)
    turned = ScoredPairs(
        hub.scores, hub.labels[order], [hub.second[i] for i in order], [hub.first[i] for i in order]
    )
    assert np.array_equal(paper_blocks(turned), blocks[order])


def test_p_value_equals_scipy_and_ignores_undefined_or_equal_blocks():
    generator = np.random.default_rng(0)
    first, second = generator.random(30), generator.random(30)
    assert signed_rank(first, second) == (30, wilcoxon(first - second).pvalue)
    holes = [*first, np.nan, 0.5, 0.1 + 0.2], [*second, np.nan, 0.5, 0.3]
    assert signed_rank(*map(np.array, holes)) == (30, wilcoxon(first - second).pvalue)
    assert signed_rank(first, first) == (0, 1.0)


def test_every_pair_of_models_is_tested_in_every_view_and_corrected_within_it():
    domains = {
        label: {"x": scored(200, 80, seed, gap), "y": scored(200, 80, seed, gap, world=1)}
        for label, seed, gap in (("good", 1, 2.0), ("fair", 2, 1.9), ("bad", 3, 0.2))
    }
    tests = rank_tests({label: areas_by_view(sets) for label, sets in domains.items()})
    assert len(tests) == 3 * 4
    assert {test.view for test in tests} == {
        POOLED,
        PAIR_WEIGHTED_MEAN,
        View("domain", "x"),
        View("domain", "y"),
    }
    for view in (POOLED, View("domain", "x")):
        here = {(test.first, test.second): test for test in tests if test.view == view}
        assert here["good", "bad"].p_holm < 0.01 < here["good", "fair"].p_holm
        assert [test.p_holm for test in here.values()] == holm([test.p_value for test in here.values()])
    mean = next(test for test in tests if test.view == PAIR_WEIGHTED_MEAN)
    assert mean.blocks > max(test.blocks for test in tests if test.view.domain == "x")


def test_pairs_of_one_class_are_not_tested():
    pairs = scored(60, 30, 1)
    linked = ScoredPairs(pairs.scores, np.ones(60, dtype=np.int64), pairs.first, pairs.second)
    assert rank_tests({"a": areas_by_view({"d": linked}), "b": areas_by_view({"d": linked})}) == ()
    assert rank_tests({}) == ()


def test_false_positive_rate_of_equal_models():
    found = []
    for world in range(120):
        first, second = (block_areas(scored(300, 150, seed, world=world)) for seed in (1, 2))
        found.append(signed_rank(first, second)[1] < 0.05)
    assert np.mean(found) <= 0.12
