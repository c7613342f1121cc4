"""Negatives are clean, cited enough, never drawn twice, and a threshold that is too high is answered."""

from __future__ import annotations

import numpy as np
import pytest

from sentence_experts.errors import InputError
from sentence_experts.pairs import negatives
from sentence_experts.pairs.negatives import Request, draw_cited
from sentence_experts.pairs.splits import TEST, WorkArrays


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
    requests = [Request(TEST, "a", 40, np.arange(0, 60)), Request(TEST, "b", 30, np.arange(30, 100))]
    drawn = draw_cited(requests, known, linked_if_close, 20, np.random.default_rng(0))
    assert [len(each) for each in drawn] == [40, 30]
    every = [tuple(pair) for each in drawn for pair in each.tolist()]
    assert len(set(every)) == len(every)
    for each, request in zip(drawn, requests, strict=True):
        assert np.isin(each, request.pool).all()
        assert (known.times_cited[each] >= 20).all()
        assert (each[:, 1] - each[:, 0] > 2).all()


def test_works_with_the_same_text_are_no_negative() -> None:
    known = WorkArrays(np.array([0, 0, 2]), np.zeros(3), np.ones(3))
    nothing = lambda left, right: np.zeros(len(left), bool)  # noqa: E731
    requests = [Request(TEST, "a", 2, np.arange(3))]
    drawn = draw_cited(requests, known, nothing, 0, np.random.default_rng(0))
    assert {tuple(pair) for pair in drawn[0].tolist()} == {(0, 2), (1, 2)}


def test_one_end_comes_from_the_newest_papers_when_required() -> None:
    known = works(60)
    request = Request(TEST, "a", 50, np.arange(60), one_end=np.arange(60) >= 50)
    (ends,) = draw_cited([request], known, linked_if_close, 0, np.random.default_rng(0))
    assert (ends >= 50).any(axis=1).all()


def test_too_few_negatives_are_an_error() -> None:
    requests = [Request(TEST, "a", 100, np.arange(4))]
    with pytest.raises(InputError, match="only 1 can be made of unlinked papers: take fewer linked pairs"):
        draw_cited(requests, works(4), linked_if_close, 0, np.random.default_rng(0))
