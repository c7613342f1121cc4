"""Without a unit, pairs are of abstracts where enough are linked, otherwise of titles, and say so."""

from __future__ import annotations

import functools
import logging

import pytest

from helpers.compile_pairs import tables_corpus
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.errors import UsageError
from sentence_experts.pairs import compile as compiling
from sentence_experts.pairs.compile import compile_pairs

LOOSE = {"split": "random", "fractions": (0.4, 0.3, 0.3)}


def tables_of(abstracts: int) -> tuple[list[dict], list[dict]]:
    """20 papers that each cite 3 works of 60, of which some have an abstract and all a title."""
    works = [
        {"paper_id": f"w{n:02d}", "title": f"Work {n}", "abstract": f"About {n}" if n < abstracts else None}
        for n in range(60)
    ]
    citations = [
        {"citing": f"c{n}", "cited": f"w{(3 * n + k) % 60:02d}"} for n in range(20) for k in range(4)
    ]
    return works, citations


@functools.cache
def corpus_of(abstracts: int) -> CorpusFolder:
    return tables_corpus(*tables_of(abstracts))


@pytest.mark.parametrize(
    ("abstracts", "enough", "expected"),
    [
        (0, 1000, "title"),
        (20, 1000, "title"),
        (20, 20, "abstract"),
        (60, 1000, "abstract"),
        (50, 1000, "abstract"),
    ],
)
def test_abstracts_are_taken_where_they_link_enough(
    abstracts: int,
    enough: int,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(compiling, "ENOUGH_PAIRS", enough)
    caplog.set_level(logging.INFO)
    pairs = compile_pairs(corpus_of(abstracts), LOOSE)
    assert pairs.settings["unit"] == expected
    first = "Work" if expected == "title" else "About"
    assert all(text.startswith(first) for text in pairs.to_pandas()["anchor"])
    (why,) = [line for line in caplog.messages if line.startswith("pairs are of ")]
    assert f"pairs are of {expected}s: " in why
    assert pairs.manifest["unit_chosen"] in why
    if abstracts == 20:  # once for each unit
        given = compile_pairs(corpus_of(abstracts), LOOSE, unit=expected)
        assert given.manifest["unit_chosen"] is None
        assert given.hashes() == pairs.hashes()


def test_where_nothing_is_linked_the_relations_that_link_are_named() -> None:
    works, citations = tables_of(60)
    # The same lists, now made by works themselves: they share references and are cited by nobody together.
    turned = [{"citing": each["cited"], "cited": each["citing"]} for each in citations]
    with pytest.raises(UsageError, match="no two abstracts and no two titles") as caught:
        compile_pairs(tables_corpus(works, turned), LOOSE, min_count=2)
    assert "check `domains` and `min_count`" in str(caught.value)
    fewer = tables_corpus(works, [each for each in turned if each["citing"] != "w00"])
    with pytest.raises(UsageError, match="`relation=coupling` `unit=abstract` links"):
        compile_pairs(fewer, LOOSE, relation="citation")
