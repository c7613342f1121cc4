from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from sentence_experts.errors import UsageError
from sentence_experts.evaluation.moee.agreement import (
    agreement,
    cluster,
    correlation,
)
from sentence_experts.evaluation.moee.analysis import complementarity


def test_equal_clusterings_agree_whatever_their_numbers():
    first = np.array([0, 0, 1, 1, 2, 2])
    found = agreement(first, np.array([2, 2, 0, 0, 1, 1]))
    assert list(found.values()) == pytest.approx([1, 1, 1, 1])


def test_agreement_equals_values_by_hand():
    """Pairs together: by the first 0-1, 2-3; by the second 0-1, 0-2, 1-2. Both: 0-1 of four."""
    found = agreement(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]))
    assert found["jaccard"] == pytest.approx(1 / 4)
    assert found["exact_match"] == pytest.approx(3 / 4)


def test_unrelated_clusterings_share_little():
    generator = np.random.default_rng(0)
    found = agreement(generator.integers(0, 5, 2000), generator.integers(0, 5, 2000))
    assert abs(found["ami"]) < 0.01
    assert found["exact_match"] < 0.3


def test_clusters_follow_directions_not_lengths():
    directions = np.repeat(np.eye(3, dtype=np.float32), 20, axis=0)
    lengths = np.random.default_rng(0).uniform(0.1, 50, (60, 1)).astype(np.float32)
    found = cluster(directions * lengths, 3)
    assert agreement(found, np.repeat([0, 1, 2], 20))["exact_match"] == 1
    assert np.array_equal(found, cluster(directions * lengths, 3))


def test_more_clusters_than_texts_is_an_error():
    with pytest.raises(UsageError, match=r"`clusters` must be 2 to .* \(3\), got 4"):
        cluster(np.eye(3, dtype=np.float32), 4)


def test_complementarity_equals_values_by_hand():
    scores = np.arange(5.0)  # ranks 0, .25, .5, .75, 1
    hidden = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    routing = np.array([0.5, 0.2, 0.3, 0.4, 0.1])  # the first and the last are wrong
    found = complementarity({"hs": hidden, "rw": routing}, scores)
    assert list(found.values()) == [0.6, 0.4, 0, 0, 0.4]  # both, HS, RW, none; one alone
    turned = complementarity({"hs": routing, "rw": hidden}, scores)
    assert (turned["only_hidden"], turned["only_routing"]) == (0, 0.4)
    assert complementarity({"hs": routing, "rw": routing}, scores)["both_wrong"] == 0.4


def test_spearman_and_its_interval():
    generator = np.random.default_rng(1)
    scores = generator.integers(0, 6, 400).astype(float)
    cosines = scores + generator.normal(0, 2, 400)
    found = correlation(cosines, scores)
    assert found["value"] == pytest.approx(spearmanr(cosines, scores).statistic, abs=1e-9)
    assert found["low"] < found["value"] < found["high"]
    draws = [
        spearmanr(cosines[rows], scores[rows]).statistic for rows in generator.integers(0, 400, (300, 400))
    ]
    assert (found["low"], found["high"]) == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.02)
    assert correlation(cosines, scores, seed=0) == found
    assert np.isnan(correlation(cosines, scores, 0)["low"])
