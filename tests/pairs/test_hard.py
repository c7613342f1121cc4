"""Hard negatives are matched negatives whose texts are near each other."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.compile_pairs import Compile
from sentence_experts.pairs import negatives
from sentence_experts.pairs.card import dataset_card, describe_near
from sentence_experts.pairs.compile import compile_pairs
from sentence_experts.pairs.negatives import keys_of, near_first, pair_anew
from sentence_experts.pairs.splits import SPLITS

TOPICS = ("cell growth", "ocean heat", "star light", "gene drift", "soil carbon")


def linked_lists(lists: int, size: int) -> tuple[np.ndarray, list[str]]:
    """The pairs of works of one list, and a title for each work: each list has works of all topics."""
    pairs = [
        pair for first in range(0, lists * size, size) for pair in combinations(range(first, first + size), 2)
    ]
    titles = [f"{TOPICS[work % len(TOPICS)]} in place{work % 7}" for work in range(lists * size)]
    return np.array(pairs), titles


@given(st.integers(3, 8), st.integers(2, 9), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_all_ends_are_paired_and_the_near_ones_may_be_negatives(lists: int, size: int, seed: int) -> None:
    pairs, titles = linked_lists(lists, size)
    linked = keys_of(pairs)

    def allowed(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return (left != right) & ~np.isin(keys_of(np.stack([left, right], axis=1)), linked)

    start, near = near_first(pairs, titles, allowed, np.random.default_rng(seed))
    assert Counter(start.ravel().tolist()) == Counter(pairs.ravel().tolist())
    assert len(set(near.tolist())) == len(near)
    assert not np.isin(near, linked).any()
    again, _ = near_first(pairs, titles, allowed, np.random.default_rng(seed))
    assert (again == start).all()
    found = pair_anew(pairs, allowed, np.random.default_rng(seed), start)
    matched = pair_anew(pairs, allowed, np.random.default_rng(seed))
    same_topic = [np.mean(each.ends[:, 0] % 5 == each.ends[:, 1] % 5) for each in (found, matched)]
    if size >= 5:  # else the lists have different topics
        assert same_topic[0] > same_topic[1]


def test_blocks_of_texts_give_what_all_texts_at_once_give(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, titles = linked_lists(6, 8)
    everything = lambda left, right: left != right  # noqa: E731
    whole, _ = near_first(pairs, titles, everything, np.random.default_rng(0))
    monkeypatch.setattr(negatives, "CELLS_AT_ONCE", 1)
    blocks, _ = near_first(pairs, titles, everything, np.random.default_rng(0))
    assert (whole == blocks).all()


def test_texts_without_words_are_paired_at_random() -> None:
    pairs, titles = linked_lists(3, 4)
    for texts in (["?"] * len(titles), [f"word{place}" for place in range(len(titles))]):
        start, near = near_first(pairs, texts, lambda left, right: left != right, np.random.default_rng(0))
        assert len(near) == 0
        assert Counter(start.ravel().tolist()) == Counter(pairs.ravel().tolist())


def test_compiled_negatives_are_near_and_as_frequent(compiled: Compile) -> None:
    shared = {}
    for kind in ("hard", "matched"):
        pairs = compiled(rules=None, unit="title", negatives=kind)
        words = []
        for name in SPLITS[1:]:
            rows = pairs.split(name).to_pylist()
            times = {0: Counter(), 1: Counter()}
            for row in rows:
                times[row["label"]].update([row["anchor_id"], row["positive_id"]])
            if pairs.manifest["not_matched"].get("all", {}).get(name) is None:
                assert times[0] == times[1]
            words += [
                len(set(row["anchor"].lower().split()) & set(row["positive"].lower().split()))
                for row in rows
                if not row["label"]
            ]
        shared[kind] = np.mean(words)
    assert shared["hard"] > shared["matched"] + 0.5


def test_the_number_of_near_negatives_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    works = [{"paper_id": f"w{n:02d}", "title": f"{TOPICS[n % 5]} and {TOPICS[n % 3]}"} for n in range(60)]
    citations = [{"citing": f"a{n // 3}", "cited": f"w{n:02d}"} for n in range(60)]
    caplog.set_level("INFO")
    pairs = compile_pairs(
        (works, citations), unit="title", negatives="hard", split="random", fractions=(0.4, 0.3, 0.3)
    )
    counts = pairs.manifest["near_negatives"]["all"]
    for name in SPLITS[1:]:
        found = pairs.manifest["domains"]["all"][name]
        assert 0 < counts[name]["near"] <= counts[name]["all"] == found["negatives"]
    message = describe_near(pairs.manifest["near_negatives"])
    assert message is not None
    assert message in [record.getMessage() for record in caplog.records]
    assert message[1:] in dataset_card(pairs.manifest, {})
