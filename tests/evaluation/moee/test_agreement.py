from __future__ import annotations

import numpy as np
import pytest

from sentence_experts.errors import UsageError
from sentence_experts.evaluation.moee.agreement import agreement, cluster


def test_equal_clusterings_agree_whatever_their_numbers():
    first = np.array([0, 0, 1, 1, 2, 2])
    found = agreement(first, np.array([2, 2, 0, 0, 1, 1]))
    assert (found.ami, found.nmi, found.jaccard, found.exact_match) == pytest.approx((1, 1, 1, 1))


def test_agreement_equals_values_by_hand():
    """Pairs together: by the first 0-1, 2-3; by the second 0-1, 0-2, 1-2. Both: 0-1 of four."""
    found = agreement(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]))
    assert found.jaccard == pytest.approx(1 / 4)
    assert found.exact_match == pytest.approx(3 / 4)


def test_unrelated_clusterings_share_little():
    generator = np.random.default_rng(0)
    found = agreement(generator.integers(0, 5, 2000), generator.integers(0, 5, 2000))
    assert abs(found.ami) < 0.01
    assert found.exact_match < 0.3


def test_clusters_follow_directions_not_lengths():
    directions = np.repeat(np.eye(3, dtype=np.float32), 20, axis=0)
    lengths = np.random.default_rng(0).uniform(0.1, 50, (60, 1)).astype(np.float32)
    found = cluster(directions * lengths, 3)
    assert agreement(found, np.repeat([0, 1, 2], 20)).exact_match == 1
    assert np.array_equal(found, cluster(directions * lengths, 3))


def test_more_clusters_than_texts_is_an_error():
    with pytest.raises(UsageError, match=r"`clusters` must be 2 to .* \(3\), got 4"):
        cluster(np.eye(3, dtype=np.float32), 4)
