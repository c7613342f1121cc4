"""Small corpora: what works is compiled, and where nothing works the message names what would."""

from __future__ import annotations

import re
from typing import Any

import pytest

from helpers.compile_pairs import tables_corpus
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.compile import compile_pairs


def lists_of(*sizes: int) -> CorpusFolder:
    """Works with a text each, and an article per size that cites the next so many of them."""
    works: list[dict[str, Any]] = []
    citations = []
    for number, size in enumerate(sizes):
        for _ in range(size):
            citations.append({"citing": f"a{number}", "cited": f"w{len(works)}"})
            works.append({"paper_id": f"w{len(works)}", "title": f"Work {len(works)}", "year": 2000 + number})
    return tables_corpus(works, citations)


def message_of(corpus: CorpusFolder, **settings: Any) -> str:
    with pytest.raises(UsageError) as caught:
        compile_pairs(corpus, **settings)
    assert isinstance(caught.value, InputError)
    assert caught.value.exit_code == 2
    return str(caught.value)


def options_in(message: str) -> list[dict[str, Any]]:
    """The settings that a message says would do."""
    found = []
    for option in message.partition("These would work: ")[2].split(", or "):
        named = dict(re.findall(r"`(\w+)=([^`]+)`", option))
        found.append(named)
    return found


def test_one_article_is_too_few() -> None:
    corpus = lists_of(30)
    for settings in ({}, {"split": "random"}, {"negatives": "cited"}):
        message = message_of(corpus, unit="title", **settings)
        assert "No other split or negatives would work: add articles" in message


@pytest.mark.parametrize(
    "settings",
    [pytest.param({"split": "article"}, marks=pytest.mark.slow), {"negatives": "cited"}],
    ids=lambda each: str(each),
)
def test_what_the_message_names_does(settings: dict[str, Any]) -> None:
    corpus = lists_of(30, 12)
    message = message_of(corpus, **settings)
    options = options_in(message)
    assert all(options)
    for option in options:
        pairs = compile_pairs(corpus, **{**settings, **option})
        assert all(pairs.split(name).num_rows for name in ("train", "validation", "test"))


def test_an_empty_split_is_a_wrong_setting() -> None:
    corpus = lists_of(3, 3, 3, 3)
    message = message_of(corpus, split="random")
    assert message.startswith("the validation split got none of the 12 pairs with `split=random`")
    assert {"split": "random", "fractions": "0.6,0.2,0.2"} in options_in(message)


def test_units_and_relations_that_link_something_are_named() -> None:
    corpus = lists_of(6)
    message = message_of(corpus, unit="abstract")
    assert "`unit=abstract`" in message
    assert "These settings link some: `relation=co-citation` `unit=title` links 15 pairs" in message
    assert "`relation=citation`" not in message_of(corpus, unit="abstract", split="article")
