"""Promises of each way of splitting."""

from __future__ import annotations

import numpy as np
import pytest

from sentence_experts.errors import InputError
from sentence_experts.pairs.compile import SPLIT_METHODS
from sentence_experts.pairs.config import DEFAULT_FRACTIONS
from sentence_experts.pairs.splits import (
    CROSSING,
    TEST,
    VALIDATION,
    PairArrays,
    WorkArrays,
    draw_per_domain,
    seen_in_training,
    split_by_paper,
    split_by_year,
)


def graph(seed: int, works: int = 200, pairs: int = 600, copies: int = 0) -> tuple[PairArrays, WorkArrays]:
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.integers(0, works, size=(pairs, 2)), axis=1)
    ends = np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)
    same_text = np.arange(works)
    same_text[1 : 2 * copies : 2] = same_text[0 : 2 * copies : 2]
    domain = np.where(ends[:, 0] % 2 == 0, "even", "odd").astype(object)
    year = rng.integers(2010, 2020, size=works)
    return (
        PairArrays(ends[:, 0], ends[:, 1], rng.integers(1, 9, size=len(ends)), domain),
        WorkArrays(same_text, year, np.zeros(works, dtype=np.int64)),
    )


def test_split_by_paper_keeps_more_pairs_than_a_random_split_of_papers() -> None:
    # A ring: each paper is linked to its two neighbours.
    ring = np.arange(1000)
    pairs = PairArrays(ring[:-1], ring[1:], np.ones(999, dtype=int), np.full(999, "a", dtype=object))
    works = WorkArrays(ring, np.zeros(1000), np.zeros(1000))
    assigned = split_by_paper(pairs, works, (0.6, 0.2, 0.2), np.random.default_rng(0))
    assert (assigned.pairs != CROSSING).mean() > 0.9
    for split, share in enumerate((0.6, 0.2, 0.2)):
        assert abs(assigned.pools[split].mean() - share) < 0.05


@pytest.mark.parametrize("method", ["paper", "random"])
def test_the_seed_fixes_the_split(method: str) -> None:
    pairs, works = graph(0)
    one, same, other = (
        SPLIT_METHODS[method](pairs, works, DEFAULT_FRACTIONS[method], np.random.default_rng(seed)).pairs
        for seed in (1, 1, 2)
    )
    assert (one == same).all()
    assert (one != other).any()


def test_random_split_is_99_to_1_with_validation_taken_from_training() -> None:
    pairs, works = graph(0, works=2000, pairs=10_000)
    fractions = DEFAULT_FRACTIONS["random"]
    home = SPLIT_METHODS["random"](pairs, works, fractions, np.random.default_rng(0)).pairs
    shares = np.bincount(home, minlength=3) / len(home)
    np.testing.assert_allclose(shares, [0.98, 0.01, 0.01], atol=0.001)


def test_split_by_year_tests_on_pairs_with_a_paper_of_the_newest_year() -> None:
    pairs, works = graph(0)
    home = split_by_year(pairs, works, (0.9, 0.1, 0.0), np.random.default_rng(0)).pairs
    newest = np.flatnonzero(works.year == works.year.max())
    touches = np.isin(pairs.left, newest) | np.isin(pairs.right, newest)
    assert (touches == (home == TEST)).all()
    assert touches.any()


def test_split_by_year_makes_negatives_of_the_years_of_their_set() -> None:
    pairs, works = graph(0)
    # Papers that came out after the newest linked one: nobody cites them yet.
    unlinked = np.setdiff1d(np.arange(len(works.year)), np.union1d(pairs.left, pairs.right))
    assert len(unlinked) > 0
    works.year[unlinked] = 2030
    newest = works.year[np.union1d(pairs.left, pairs.right)].max()
    assigned = split_by_year(pairs, works, (0.9, 0.1, 0.0), np.random.default_rng(0))
    assert (works.year[assigned.pools[TEST]] <= newest).all()
    assert (works.year[assigned.one_end[TEST]] == newest).all()
    assert (works.year[assigned.pools[VALIDATION]] < newest).all()


def test_split_by_year_needs_years() -> None:
    pairs, works = graph(0)
    unknown = WorkArrays(works.same_text, np.full(len(works.year), -1), works.times_cited)
    with pytest.raises(InputError, match="year"):
        split_by_year(pairs, unknown, (0.9, 0.1, 0.0), np.random.default_rng(0))


def test_seen_in_training_counts_each_paper_of_the_test_set_once() -> None:
    assert seen_in_training(np.array([1, 2, 2, 3]), np.array([3, 4, 4, 5])) == (1, 3)


def test_drawing_by_count_prefers_frequent_pairs_in_proportion() -> None:
    size = 4000
    counts = np.where(np.arange(size) % 2 == 0, 1, 3)
    ends = np.arange(size)
    pairs = PairArrays(ends, ends + 1, counts, np.full(size, "a", dtype=object))
    drawn = draw_per_domain(pairs, 400, by_count=True, rng=np.random.default_rng(0))
    assert len(drawn) == 400
    assert abs((drawn.count == 3).mean() - 0.75) < 0.06
    even = draw_per_domain(pairs, 400, by_count=False, rng=np.random.default_rng(0))
    assert abs((even.count == 3).mean() - 0.5) < 0.08


def test_drawing_caps_each_domain() -> None:
    pairs, _ = graph(0)
    drawn = draw_per_domain(pairs, 50, by_count=True, rng=np.random.default_rng(0))
    assert dict(zip(*np.unique(drawn.domain, return_counts=True), strict=True)) == {"even": 50, "odd": 50}
