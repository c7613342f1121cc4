from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentence_experts.errors import UsageError
from sentence_experts.models.pooling import unit
from sentence_experts.moee.vectors import joined


def rows(seed: int, width: int, texts: int = 12) -> np.ndarray:
    return np.random.default_rng(seed).normal(1, 2, (texts, width)).astype(np.float32)


def cosine(vectors: np.ndarray) -> np.ndarray:
    return unit(vectors) @ unit(vectors).T


@given(alpha=st.floats(0, 20), seed=st.integers(0, 99))
def test_sum_is_one_ordinary_vector(alpha, seed):
    """Its dot products are cos_HS + alpha * cos_RW, and its cosines rank the same."""
    hidden, routing = rows(seed, 5), rows(seed + 1, 3)
    vectors = joined(hidden, routing, "sum", alpha)
    wanted = cosine(hidden) + alpha * cosine(routing)
    assert vectors @ vectors.T == pytest.approx(wanted, abs=1e-4 * (1 + alpha))
    assert cosine(vectors) == pytest.approx(wanted / (1 + alpha), abs=1e-5)


def test_the_other_parts():
    hidden, routing = rows(1, 5), rows(2, 3)
    assert joined(hidden, routing, "hs") is hidden
    assert joined(hidden, routing, "rw") is routing
    both = joined(hidden, routing, "concat")
    assert np.array_equal(both, np.concatenate([hidden, routing], axis=1))
    assert cosine(joined(hidden, routing, "sum", 0.0)) == pytest.approx(cosine(hidden), abs=1e-6)


@pytest.mark.parametrize(("parts", "alpha"), [("both", 1.0), ("sum", -1.0), ("sum", float("nan"))])
def test_what_cannot_be_joined(parts, alpha):
    with pytest.raises(UsageError, match=r"unknown `parts`|`alpha`"):
        joined(rows(1, 2), rows(2, 2), parts, alpha)
