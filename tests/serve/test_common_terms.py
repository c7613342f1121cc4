"""Words that a query and a paper have in common."""

from __future__ import annotations

import doctest
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from sentence_experts.serve import common_terms as module
from sentence_experts.serve.common_terms import MAX_TERMS, common_terms, stems


def test_examples() -> None:
    assert doctest.testmod(module).failed == 0


@given(st.text(), st.text())
def test_terms_stand_in_the_text(query: str, text: str) -> None:
    terms = common_terms(stems(query), text)
    assert len(terms) <= MAX_TERMS
    assert all(term in unicodedata.normalize("NFC", text) for term in terms)  # as a corpus has its texts


def test_common_words_are_no_terms() -> None:
    assert common_terms(stems("what is the role of it"), "It is the role of what?") == ["role"]
    assert common_terms(stems("IL-6 in COVID-19"), "il-6, COVID-19 and covid") == ["il-6", "COVID-19"]
