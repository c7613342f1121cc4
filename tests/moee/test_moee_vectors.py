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
    raw = joined(hidden, routing, "concat", scaled=False)
    assert np.array_equal(raw, np.concatenate([hidden, routing], axis=1))
    assert cosine(joined(hidden, routing, "concat")) == pytest.approx(
        (cosine(hidden) + cosine(routing)) / 2, abs=1e-6
    )
    assert cosine(joined(hidden, routing, "sum", 0.0)) == pytest.approx(cosine(hidden), abs=1e-6)


@given(scale=st.floats(0.01, 100), seed=st.integers(0, 99))
def test_the_longer_part_does_not_decide_alone(scale, seed):
    """As it did: the hidden states of a language model are some 20 times as long as its routing weights."""
    hidden, routing = rows(seed, 5), rows(seed + 1, 3)
    same = joined(hidden, routing, "concat")
    assert joined(np.float32(scale) * hidden, routing, "concat") == pytest.approx(same, abs=1e-5)
    raw = joined(np.float32(1000) * hidden, routing, "concat", scaled=False)
    assert cosine(raw) == pytest.approx(cosine(hidden), abs=1e-4)
    lengths = [np.linalg.norm(half, axis=1) for half in (same[:, :5], same[:, 5:])]
    assert lengths[0] == pytest.approx(lengths[1], abs=1e-6)


def test_a_row_of_zeros_stays_one():
    assert np.array_equal(unit(np.zeros((1, 3), np.float32)), np.zeros((1, 3)))


@pytest.mark.parametrize(("parts", "alpha"), [("both", 1.0), ("sum", -1.0), ("sum", float("nan"))])
def test_what_cannot_be_joined(parts, alpha):
    with pytest.raises(UsageError, match=r"unknown `parts`|`alpha`"):
        joined(rows(1, 2), rows(2, 2), parts, alpha)
