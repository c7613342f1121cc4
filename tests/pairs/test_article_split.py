"""A split by article keeps the articles behind the pairs apart, as well as the works."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from helpers.compile_pairs import Compile, tables_corpus
from sentence_experts.errors import UsageError
from sentence_experts.pairs.compile import compile_pairs
from sentence_experts.pairs.config import SPLITS, PairsConfig
from sentence_experts.pairs.splits import (
    CROSSING,
    TEST,
    TRAIN,
    CitingArticles,
    PairArrays,
    WorkArrays,
    seen_in_training,
    split_by_article,
    split_by_paper,
)

FRACTIONS = (0.6, 0.2, 0.2)
FIRST_ARTICLE = 1000


def co_cited(
    lists: list[list[int]], works: int, copies: int = 0
) -> tuple[PairArrays, WorkArrays, CitingArticles]:
    """The pairs that reference lists make; work 2i+1 has the text of work 2i for i < copies."""
    behind: dict[tuple[int, int], list[int]] = {}
    for article, references in enumerate(lists, start=FIRST_ARTICLE):
        for pair in combinations(sorted(set(references)), 2):
            behind.setdefault(pair, []).append(article)
    ends = np.array(sorted(behind), dtype=np.int64).reshape(-1, 2)
    counts = np.array([len(behind[pair]) for pair in sorted(behind)], dtype=np.int64)
    domain = np.where(ends[:, 0] % 3 == 0, "a", "b").astype(object)
    same_text = np.arange(works)
    same_text[1 : 2 * copies : 2] = same_text[0 : 2 * copies : 2]
    return (
        PairArrays(ends[:, 0], ends[:, 1], counts, domain),
        WorkArrays(same_text, np.zeros(works), np.zeros(works)),
        CitingArticles(
            np.repeat(np.arange(len(ends)), counts),
            *[np.array([article for pair in sorted(behind) for article in behind[pair]], dtype=np.int64)] * 2,
        ),
    )


reference_lists = st.lists(st.lists(st.integers(0, 39), max_size=8), max_size=40)


@given(reference_lists, st.integers(0, 10**6), st.integers(0, 20))
@settings(max_examples=100, deadline=None)
def test_no_article_and_no_work_is_behind_pairs_of_two_sets(
    lists: list[list[int]], seed: int, copies: int
) -> None:
    pairs, works, citing = co_cited(lists, 40, copies)
    assume(len(pairs))
    assigned = split_by_article(pairs, works, citing, FRACTIONS, np.random.default_rng(seed))
    sets_of_text: dict[int, set[int]] = {}
    for left, right, home in zip(pairs.left, pairs.right, assigned.pairs, strict=True):
        for end in (left, right) if home != CROSSING else ():
            sets_of_text.setdefault(works.same_text[end], set()).add(home)
            assert assigned.pools[home][end], "positives are made of works of their set, as negatives are"
    sets_of_article: dict[int, set[int]] = {}
    for pair, article in zip(citing.pair, citing.article, strict=True):
        if assigned.pairs[pair] != CROSSING:
            sets_of_article.setdefault(article, set()).add(assigned.pairs[pair])
    assert all(len(sets) == 1 for sets in (*sets_of_text.values(), *sets_of_article.values()))
    for text in np.unique(works.same_text):
        assert sum(assigned.pools[split][works.same_text == text].any() for split in range(len(SPLITS))) == 1


def companions(families: int = 60) -> list[list[int]]:
    """Two articles a family that cite the same ten works: five by two."""
    return [list(range(10 * family, 10 * family + 10)) for family in range(families) for _ in range(2)]


def split_of_drawn(pairs: PairArrays, citing: CitingArticles, home: np.ndarray, split: int) -> CitingArticles:
    rows = home[citing.pair] == split
    return CitingArticles(citing.pair[rows], citing.article[rows], citing.same_text[rows])


def test_companion_papers_leak_through_a_split_by_paper_and_not_by_article() -> None:
    # A chain: each list shares half of its works with the next one, so that blocks cut through lists.
    lists = [list(range(5 * article, 5 * article + 10)) for article in range(200)]
    pairs, works, citing = co_cited(lists, 1005)
    leaked = {}
    for name, assigned in {
        "paper": split_by_paper(pairs, works, FRACTIONS, np.random.default_rng(0)),
        "article": split_by_article(pairs, works, citing, FRACTIONS, np.random.default_rng(0)),
    }.items():
        train, test = (split_of_drawn(pairs, citing, assigned.pairs, split) for split in (TRAIN, TEST))
        leaked[name], tested = seen_in_training(train.article, test.article)
        assert tested > 10
    assert leaked["article"] == 0 < leaked["paper"]


def test_few_pairs_are_lost_where_articles_form_families() -> None:
    pairs, works, citing = co_cited(companions(), 600)
    kept = split_by_article(pairs, works, citing, FRACTIONS, np.random.default_rng(0)).pairs != CROSSING
    # Drawn one by one, two articles meet in a set in 0.44 of the cases.
    assert kept.mean() > 0.8


def test_an_article_that_was_published_twice_is_one_article() -> None:
    # Articles 0 and 1 are reprints of each other and cite different works.
    pairs, works, _ = co_cited([[10, 11, 12], [20, 21, 22]], 40, copies=1)
    citing = CitingArticles(np.arange(6), np.array([0, 0, 0, 1, 1, 1]), np.zeros(6, dtype=np.int64))
    for seed in range(20):
        home = split_by_article(pairs, works, citing, (0.5, 0.0, 0.5), np.random.default_rng(seed)).pairs
        assert len(set(home.tolist())) == 1


@pytest.mark.parametrize("relation", ["coupling", "citation"])
def test_other_relations_have_no_citing_articles(relation: str) -> None:
    with pytest.raises(UsageError, match="`split=article` needs `relation=co-citation`"):
        PairsConfig.of(relation=relation, split="article")


def test_a_limit_of_shared_references_is_for_coupling() -> None:
    assert PairsConfig.of(relation="coupling", rare=20).rare == 20
    with pytest.raises(UsageError, match="`rare` is for `relation=coupling`, not citation"):
        PairsConfig.of(relation="citation", rare=20)


@pytest.mark.slow
def test_the_dataset_says_how_many_articles_leak(compiled: Compile) -> None:
    by_article = compiled(split="article", unit="title").manifest
    assert by_article["test_articles_seen_in_training"] == by_article["test_papers_seen_in_training"] == 0
    assert by_article["test_articles"] > 0 < by_article["pairs_between_splits_left_out"]
    at_random = compiled(split="random", fractions=(0.8, 0.1, 0.1)).manifest
    assert at_random["test_articles_seen_in_training"] > 0
    assert compiled(relation="coupling", unit="title+abstract", rare=20).manifest["test_articles"] is None


def test_sets_far_from_the_fractions_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    works = [{"paper_id": f"w{n}", "title": f"Work {n}", "abstract": f"About {n}"} for n in range(160)]
    review = [{"citing": "review", "cited": f"w{n}"} for n in range(40)]
    small = [{"citing": f"a{n}", "cited": f"w{40 + 3 * n + k}"} for n in range(40) for k in range(3)]
    settings = {"split": "article"}
    uneven = compile_pairs(tables_corpus(works, review + small), settings).manifest["uneven_split"]
    assert "`fractions` asks for 60%, 20%, 20%: they are shares of citing articles" in uneven
    assert "warning: train, validation and test have" in capsys.readouterr().err
    assert compile_pairs(tables_corpus(works, small), settings).manifest["uneven_split"] is None
    assert "warning" not in capsys.readouterr().err
