"""Negatives are clean, cited enough, never drawn twice, and a threshold that is too high is answered."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from sentence_experts.errors import InputError
from sentence_experts.pairs import negatives
from sentence_experts.pairs.negatives import NegativeSampler, Request
from sentence_experts.pairs.splits import WorkArrays


def works(count: int, cited: np.ndarray | None = None) -> WorkArrays:
    cited = np.arange(count) if cited is None else cited
    return WorkArrays(np.arange(count), np.full(count, 2020), cited)


def linked_if_close(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return right - left <= 2


@pytest.mark.parametrize("enumerate_up_to", [0, 1000], ids=["drawn", "enumerated"])
def test_negatives_are_unlinked_distinct_and_cited(
    monkeypatch: pytest.MonkeyPatch, enumerate_up_to: int
) -> None:
    monkeypatch.setattr(negatives, "ENUMERATE_UP_TO", enumerate_up_to)
    known = works(100)
    sampler = NegativeSampler(known, linked_if_close, np.random.default_rng(0))
    requests = [Request("test", "a", 40, np.arange(0, 60)), Request("test", "b", 30, np.arange(30, 100))]
    drawn = sampler.draw(requests, min_cited=20)
    assert [len(each) for each in drawn] == [40, 30]
    every = [tuple(pair) for each in drawn for pair in each.tolist()]
    assert len(set(every)) == len(every)
    for each, request in zip(drawn, requests, strict=True):
        assert np.isin(each, request.pool).all()
        assert (known.times_cited[each] >= 20).all()
        assert (each[:, 1] - each[:, 0] > 2).all()


def test_works_with_the_same_text_are_no_negative() -> None:
    known = WorkArrays(np.array([0, 0, 2]), np.zeros(3), np.ones(3))
    nothing = NegativeSampler(known, lambda left, right: np.zeros(len(left), bool), np.random.default_rng(0))
    drawn = nothing.draw([Request("test", "a", 2, np.arange(3))], min_cited=0)
    assert {tuple(pair) for pair in drawn[0].tolist()} == {(0, 2), (1, 2)}


def test_one_end_comes_from_the_newest_papers_when_required() -> None:
    known = works(60)
    sampler = NegativeSampler(known, linked_if_close, np.random.default_rng(0))
    request = Request("test", "a", 50, np.arange(60), one_end=np.arange(60) >= 50)
    ends = sampler.draw([request], min_cited=0)[0]
    assert (ends >= 50).any(axis=1).all()


@pytest.mark.parametrize("needed", [1, 10, 45])
def test_error_names_the_largest_sufficient_threshold(needed: int) -> None:
    count = 40
    known = works(count)
    sampler = NegativeSampler(known, linked_if_close, np.random.default_rng(0))
    with pytest.raises(InputError) as caught:
        sampler.draw([Request("test", "a", needed, np.arange(count))], min_cited=1000)
    advised = int(str(caught.value).rsplit("=", 1)[1].rstrip("`"))

    def available(threshold: int) -> int:
        return sum(1 for a, b in combinations(range(threshold, count), 2) if b - a > 2)

    assert available(advised) >= needed > available(advised + 1)


def test_suggested_threshold_holds_for_sets_that_share_papers() -> None:
    count = 40
    sampler = NegativeSampler(works(count), linked_if_close, np.random.default_rng(0))
    requests = [
        Request("validation", "a", 200, np.arange(count)),
        Request("test", "a", 200, np.arange(count)),
    ]
    with pytest.raises(InputError) as caught:
        sampler.draw(requests, min_cited=1000)
    advised = int(str(caught.value).rsplit("=", 1)[1].rstrip("`"))
    again = NegativeSampler(works(count), linked_if_close, np.random.default_rng(1))
    assert [len(drawn) for drawn in again.draw(requests, advised)] == [200, 200]
    with pytest.raises(InputError):
        again.draw(requests, advised + 1)


def test_error_when_no_threshold_is_sufficient() -> None:
    sampler = NegativeSampler(works(4), linked_if_close, np.random.default_rng(0))
    with pytest.raises(InputError, match="no threshold"):
        sampler.draw([Request("test", "a", 100, np.arange(4))], min_cited=0)
