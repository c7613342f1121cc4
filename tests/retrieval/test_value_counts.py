from __future__ import annotations

import unicodedata
from typing import Any

import pyarrow as pa
import pytest

from sentence_experts.corpus.importing import import_corpus
from sentence_experts.retrieval.papers import Filters, Papers
from sentence_experts.retrieval.value_counts import count_papers


@pytest.mark.parametrize(
    ("column", "counts"),
    [
        (["Sleep", None, "sleep", "Rats", "sleep "], {"Sleep": 3, "Rats": 1}),
        ([["Mice", "Mice", "Rats"], None, [], ["mice", "mice", None], ["mice"]], {"mice": 3, "Rats": 1}),
        ([2012, 2013, None, 2012], {2012: 2, 2013: 1}),
        (pa.nulls(3, pa.string()), {}),
        (pa.array([["a"], ["b"], ["a", "A"], ["a"]]).slice(1, 2), {"b": 1, "A": 1}),
    ],
)
def test_papers_are_counted_once_per_value_and_case_does_not_count(column: Any, counts: Any) -> None:
    assert count_papers(pa.array(column) if isinstance(column, list) else column) == counts


def test_a_filter_finds_as_many_papers_as_its_value_counts() -> None:
    mesh = "Mice/genetics; Mice/metabolism; *Mice/physiology; Humans"
    rows = [
        {"id": n, "title": f"Rice {n}", "mesh": mesh, "keywords": "sleep" if n % 2 else "Sleep; rest"}
        for n in range(3)
    ]
    corpus = import_corpus(papers=rows)
    papers = Papers(corpus)
    for parameter, column in (("mesh", "mesh"), ("keyword", "keywords")):
        values = papers.values(parameter)
        assert values == corpus.count_values(column)
        for value, count in values.items():
            assert papers.places(Filters.of(**{parameter: [value]})).sum() == count


def test_a_filter_finds_decomposed_letters() -> None:
    papers = Papers(import_corpus(papers=[{"id": 1, "title": "a", "journal": "Médecine"}]))
    assert papers.places(Filters.of(journal=[unicodedata.normalize("NFD", "MÉDECINE")])).tolist() == [True]
