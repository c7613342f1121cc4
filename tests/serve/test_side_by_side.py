"""Results under several routes, compared."""

from __future__ import annotations

import doctest

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sentence_experts.serve import side_by_side
from sentence_experts.serve.side_by_side import MAX_TERMS, common_terms, plane, stems


def test_examples() -> None:
    assert doctest.testmod(side_by_side).failed == 0


@given(st.text(), st.text())
def test_terms_stand_in_the_text(query: str, text: str) -> None:
    terms = common_terms(stems(query), text)
    assert len(terms) <= MAX_TERMS
    assert all(term in text for term in terms)


def test_common_words_are_no_terms() -> None:
    assert common_terms(stems("what is the role of it"), "It is the role of what?") == ["role"]
    assert common_terms(stems("IL-6 in COVID-19"), "il-6, COVID-19 and covid") == ["il-6", "COVID-19"]


def turned(points: np.ndarray, angle: float) -> np.ndarray:
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return points @ turn * [1, -1]


def test_a_map_is_turned_to_look_like_another_one() -> None:
    points = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    query = points[0]
    first = plane(points, query)
    second = plane(turned(points, 1.0).astype(np.float32), query, first)
    np.testing.assert_allclose(second[:-1], first[:-1], atol=1e-5)
    np.testing.assert_allclose(first[-1], first[0], atol=1e-6)


def test_few_papers_have_a_map() -> None:
    for count in range(4):
        points = np.ones((count, 3), np.float32)
        assert plane(points, np.ones(3, np.float32)).shape == (count + 1, 2)
        assert plane(points[:, :1], np.ones(1, np.float32)).shape == (count + 1, 2)
