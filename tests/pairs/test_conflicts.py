"""Conflicting pairs: alike by one route alone, as many each way, and each text as often in both kinds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_experts.errors import InputError
from sentence_experts.pairs import conflicts
from sentence_experts.pairs.conflicts import find_conflicts
from sentence_experts.pairs.labels import LabelColumn, Labels, Rows, read_labels

SIZE = 60
LABELLED = st.lists(st.lists(st.sampled_from("abcdef"), max_size=2), min_size=SIZE, max_size=SIZE)


def read(cells: list[list[str]], route: str) -> Labels:
    return read_labels(cells, LabelColumn(route, None, route))


def degrees(pairs: Rows) -> list[int]:
    return np.bincount(pairs.ravel(), minlength=SIZE).tolist()


@settings(max_examples=30)
@given(LABELLED, LABELLED, st.integers(0, 9))
def test_no_text_by_itself_tells_which_route_has_a_pair_alike(
    one: list[list[str]], other: list[list[str]], seed: int
) -> None:
    try:
        labels = [read(one, "one"), read(other, "other")]
    except InputError:
        return
    groups = np.arange(SIZE) // 2
    for found in find_conflicts(labels, groups, number=20, seed=seed):
        assert 8 <= len(found.by_one) <= 20
        assert degrees(found.by_one) == degrees(found.by_other)
        both = np.concatenate([found.by_one, found.by_other])
        assert len({*map(tuple, np.sort(both).tolist())}) == len(both)
        assert (groups[both[:, 0]] != groups[both[:, 1]]).all()
        for pairs, alike, unlike in ((found.by_one, *labels), (found.by_other, *labels[::-1])):
            assert alike.alike(*pairs.T).all()
            assert not unlike.alike(*pairs.T).any()
            assert unlike.labelled[pairs].all()  # a missing label is not a "no"


def test_pairs_are_found_among_as_many_texts_as_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    labels = [read([[f"{n}"] for n in rng.integers(0, 5, SIZE)], name) for name in ("one", "other")]
    monkeypatch.setattr(conflicts, "_MAX_TEXTS", 40)
    (found,) = find_conflicts(labels, np.arange(SIZE))
    assert len(np.unique(found.by_one)) <= 40
    assert found.by_one.max() >= 40, "any text may be drawn"
