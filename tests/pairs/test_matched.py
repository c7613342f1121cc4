"""Matched negatives have the works of the linked pairs, each as often, and no linked pair among them."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.compile_pairs import Compile, tables_corpus
from sentence_experts.errors import InputError
from sentence_experts.pairs.card import describe_shortfall
from sentence_experts.pairs.compile import compile_pairs
from sentence_experts.pairs.config import SPLITS
from sentence_experts.pairs.negatives import PairTest, keys_of, pair_anew


def lists_of(sizes: list[int], shared: int = 0) -> tuple[np.ndarray, PairTest]:
    """All pairs within reference lists of some sizes, and what may be a negative: works of no one list.

    Each list shares its first `shared` works with the list before.
    """
    ends, first = [], 0
    for size in sizes:
        ends += combinations(range(first, first + size), 2)
        first += size - shared
    pairs = np.array(sorted(set(ends)))
    linked = keys_of(*pairs.T)

    def allowed(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return (left != right) & ~np.isin(keys_of(left, right), linked)

    return pairs, allowed


def pair_and_check(pairs: np.ndarray, allowed: PairTest, seed: int) -> tuple[np.ndarray, int]:
    ends, nearest = pair_anew(pairs, allowed, np.random.default_rng(seed))
    assert allowed(*ends.T).all()
    assert len(np.unique(keys_of(*ends.T))) == len(ends) <= len(pairs)
    assert np.isin(ends, pairs).all()
    if nearest == 0 and len(ends) == len(pairs):
        assert Counter(ends.ravel().tolist()) == Counter(pairs.ravel().tolist())
    return ends, nearest


@given(st.lists(st.integers(2, 14), min_size=4, max_size=12), st.integers(0, 1), st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_every_work_is_as_often_in_both_classes(sizes: list[int], shared: int, seed: int) -> None:
    largest = max(sizes)
    sizes = [*sizes, largest, largest, largest]  # so that no list has half of all ends
    pairs, allowed = lists_of(sizes, shared)
    ends, nearest = pair_and_check(pairs, allowed, seed)
    assert len(ends) == len(pairs)
    assert nearest == 0
    assert (pair_anew(pairs, allowed, np.random.default_rng(seed))[0] == ends).all()


@given(st.lists(st.integers(2, 12), min_size=1, max_size=5), st.integers(0, 10**6))
@settings(max_examples=3, deadline=None)
def test_what_cannot_be_matched_is_as_near_as_can_be_or_missing(sizes: list[int], seed: int) -> None:
    pairs, allowed = lists_of(sizes)
    ends, _ = pair_and_check(pairs, allowed, seed)
    if len(sizes) == 1:
        assert len(ends) == 0


def test_a_list_with_most_of_the_ends_is_paired_with_all_others() -> None:
    pairs, allowed = lists_of([30, *[8] * 6])  # 435 pairs of the long list, 168 of the others
    ends, nearest = pair_and_check(pairs, allowed, 0)
    assert len(ends) == len(pairs)
    # At most 336 ends are of other lists, so that as many pairs can be matched.
    assert 0.9 * 336 < len(pairs) - nearest <= 336
    # The works of the others are more frequent than in linked pairs, but all by about as much.
    times = np.bincount(ends.ravel(), minlength=78)[30:]
    assert times.max() <= 1.3 * times.mean()


def test_hundreds_of_thousands_of_pairs_are_matched() -> None:
    pairs, allowed = lists_of([60] * 60, shared=2)
    ends, nearest = pair_and_check(pairs, allowed, 0)
    assert len(ends) == len(pairs) > 100_000
    assert nearest == 0


@pytest.mark.slow
def test_compiled_negatives_are_matched_or_reported(compiled: Compile) -> None:
    checked = 0
    for settings_ in ({"unit": "title"}, {"unit": "title", "split": "year", "max_eval_per_domain": 15}):
        pairs = compiled(rules=None, **settings_)
        for name in SPLITS[1:]:
            times = {0: Counter(), 1: Counter()}
            for row in pairs.split(name).to_pylist():
                times[row["label"]].update([row["anchor_id"], row["positive_id"]])
            if pairs.manifest["not_matched"].get("all", {}).get(name) is None:
                assert times[0] == times[1]
                checked += 1
    assert checked >= 3


def test_a_shortfall_is_reported_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    works = [{"paper_id": f"w{n:02d}", "title": f"Work {n}"} for n in range(60)]
    # Each set gets its own lists, one of them longer than all others together.
    citations = [{"citing": f"a{n // 3}", "cited": f"w{n:02d}"} for n in range(18)]
    citations += [{"citing": "review", "cited": f"w{n:02d}"} for n in range(18, 60)]
    pairs = compile_pairs(
        tables_corpus(works, citations), unit="title", split="random", fractions=(0.4, 0.3, 0.3)
    )
    short = pairs.manifest["not_matched"]["all"]
    assert set(short) == {"validation", "test"}
    for name, counts in short.items():
        found = pairs.manifest["domains"]["all"][name]
        assert counts["matched"] + counts["nearest"] + counts["random"] == found["negatives"]
        assert found["negatives"] == found["positives"]
    message = describe_shortfall(pairs.manifest["not_matched"])
    assert message is not None
    assert "all (validation)" in message
    assert message in [record.getMessage() for record in caplog.records]
    assert message in pairs.about(pairs.manifest)["README.md"]


def test_works_that_are_all_linked_give_no_negatives() -> None:
    works = [{"paper_id": f"w{n}", "title": f"Work {n}"} for n in range(9)]
    citations = [{"citing": "review", "cited": f"w{n}"} for n in range(9)]
    with pytest.raises(InputError, match=r"all \(validation\): all works of the linked pairs are linked"):
        compile_pairs(
            tables_corpus(works, citations), unit="title", split="random", fractions=(0.4, 0.3, 0.3)
        )
