"""Splits into train, validation and test by paper, citing article, pair (as published) or year (preprint).

Companion papers share reference lists. If pairs are of cited works, a split by work alone still leaks: the
list of one article makes both training pairs and test pairs. The split by citing article does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.random import Generator
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee

from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.config import NOT_WORDS, SPLITS, UNSEEN

TRAIN, VALIDATION, TEST = range(3)
CROSSING = -1
UNKNOWN_YEAR = -1
# Number of blocks of papers per domain: fewer keep more pairs, more make the sets more similar.
BLOCKS = 25
# Shares of train, validation and test.
Fractions = tuple[float, float, float]


class TooFewPairsError(UsageError, InputError):
    """An error of settings that give no pairs, or no negatives, for one of the sets; others may."""


@dataclass(frozen=True)
class PairArrays:
    """Linked pairs in columns, each of shape (pairs,): work numbers, count, domain.

    Pairs by proximity also have the number in `LEVELS` of the closest level (-1 for none).
    """

    left: np.ndarray
    right: np.ndarray
    count: np.ndarray
    domain: np.ndarray
    level: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.left)

    def take(self, rows: np.ndarray) -> PairArrays:
        """Return the given rows (indices or mask), in that order."""
        columns: Any = (None if column is None else column[rows] for column in vars(self).values())
        return PairArrays(*columns)


class WorkArrays(NamedTuple):
    """Works by number, each of shape (works,); year is -1 where unknown."""

    same_text: np.ndarray
    year: np.ndarray
    times_cited: np.ndarray


class CitingArticles(NamedTuple):
    """The articles that cite both works of each co-cited pair; columns of shape (articles over all pairs,).

    `pair` are rows of a `PairArrays`; `same_text` is the smallest number among the articles with its text.
    """

    pair: np.ndarray
    article: np.ndarray
    same_text: np.ndarray


class Assignment(NamedTuple):
    """The set of each pair, and the works that the negatives of a set may be made of.

    Attributes:
        pairs: set of each pair, -1 for none, shape (pairs,).
        pools: set -> mask of its works, shape (works,).
        one_end: set -> mask of shape (works,): a negative has one such work, as a positive has.
    """

    pairs: np.ndarray
    pools: Mapping[int, np.ndarray]
    one_end: Mapping[int, np.ndarray] = {}


def split_by_paper(pairs: PairArrays, works: WorkArrays, fractions: Fractions, rng: Generator) -> Assignment:
    """Split papers, so that none is in two sets; pairs across two sets are left out.

    `fractions` are of papers. In each domain the linked papers are assigned in blocks of neighbours: papers
    assigned one by one would split most pairs (0.6, 0.2, 0.2 keeps 44% of them; blocks kept 50% to 80% on
    real articles). Works with the same text go together.
    """
    texts, text_of = np.unique(works.same_text, return_inverse=True)
    left, right = text_of[pairs.left], text_of[pairs.right]
    split_of = assign_at_random(len(texts), fractions, rng)
    assigned = np.zeros(len(texts), dtype=bool)
    for domain in np.unique(pairs.domain):
        rows = pairs.domain == domain
        linked = np.union1d(left[rows], right[rows])
        linked = linked[~assigned[linked]]
        if len(linked) == 0:
            continue
        assigned[linked] = True
        order = order_by_links(linked, left[rows], right[rows])
        split_of[order] = assign_blocks(len(order), fractions, rng)
    same = split_of[left] == split_of[right]
    pools = {split: split_of[text_of] == split for split in (TRAIN, VALIDATION, TEST)}
    return Assignment(np.where(same, split_of[left], CROSSING), pools)


def assign_at_random(count: int, fractions: Fractions, rng: Generator) -> np.ndarray:
    """Assign a random set to each of `count` things: shape (count,)."""
    places = rng.permutation(count) / max(count, 1)
    return np.searchsorted(np.cumsum(fractions)[:2], places, side="right")


def assign_blocks(count: int, fractions: Fractions, rng: Generator) -> np.ndarray:
    """Assign sets to `count` things in order, by at most `BLOCKS` blocks of one size: shape (count,)."""
    sizes = [len(block) for block in np.array_split(np.arange(count), BLOCKS) if len(block)]
    places = (rng.permutation(len(sizes)) + 0.5) / max(len(sizes), 1)
    return np.repeat(np.searchsorted(np.cumsum(fractions)[:2], places, side="right"), sizes)


def find_components(left: np.ndarray, right: np.ndarray, size: int) -> np.ndarray:
    """Number the connected components of `size` nodes: the component of each node, shape (size,)."""
    graph = coo_array((np.ones(len(left), np.int8), (left, right)), shape=(size, size))
    numbers: np.ndarray = connected_components(graph, directed=False)[1]
    return numbers


def order_by_links(nodes: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Order `nodes` (given ascending) so that linked ones are close together (reverse Cuthill-McKee)."""
    inside = np.isin(left, nodes) & np.isin(right, nodes)
    ends = np.searchsorted(nodes, left[inside]), np.searchsorted(nodes, right[inside])
    graph = coo_array((np.ones(len(ends[0])), ends), shape=(len(nodes), len(nodes)))
    order: np.ndarray = nodes[reverse_cuthill_mckee((graph + graph.T).tocsr(), symmetric_mode=True)]
    return order


def split_by_pair(pairs: PairArrays, works: WorkArrays, fractions: Fractions, rng: Generator) -> Assignment:
    """Split pairs at random, so that papers are in several sets: the published way, which leaks.

    Source: Hallee et al. 2025, Data compilation ("split randomly in a 99:1 ratio").
    """
    every_work = np.ones(len(works.year), dtype=bool)
    home = assign_at_random(len(pairs), fractions, rng)
    return Assignment(home, {VALIDATION: every_work, TEST: every_work})


def split_by_year(pairs: PairArrays, works: WorkArrays, fractions: Fractions, rng: Generator) -> Assignment:
    """Test on pairs with a paper of the newest year; split the rest at random into train and validation.

    The newest year is the linked papers': papers that came out later are not cited yet, and are in no
    negatives either. Source: Hallee et al. 2024 (preprint), 3.1. Papers of test pairs may also be in
    training.

    Raises:
        TooFewPairsError: no paper has a year, or every pair is of the newest one.
    """
    years = np.maximum(works.year[pairs.left], works.year[pairs.right])
    newest = years.max(initial=UNKNOWN_YEAR)
    if newest == UNKNOWN_YEAR:
        raise TooFewPairsError("split by year: no linked paper has a year")
    is_test = years == newest
    if is_test.all():
        raise TooFewPairsError(
            f"split by year: every pair has a paper of {newest}, nothing is left to train on"
        )
    train, validation, _ = fractions
    position = rng.permutation(len(pairs)) / max(len(pairs), 1)
    rest = np.where(position < validation / (train + validation), VALIDATION, TRAIN)
    pools = {VALIDATION: works.year < newest, TEST: works.year <= newest}
    return Assignment(np.where(is_test, TEST, rest), pools, {TEST: works.year == newest})


def seen_in_training(trained: np.ndarray, tested: np.ndarray) -> tuple[int, int]:
    """Count the papers (or articles) of test pairs that training pairs have too, and all of them."""
    tested = np.unique(tested)
    return int(np.isin(tested, trained).sum()), len(tested)


def split_by_article(
    pairs: PairArrays, works: WorkArrays, citing: CitingArticles, fractions: Fractions, rng: Generator
) -> Assignment:
    """Separate works and citing articles, so that none is behind pairs of two sets; leave out other pairs.

    `fractions` are of articles. In each domain the articles are sampled in blocks of neighbours, which cite
    the same works, as articles sampled one by one would split more pairs. A work goes where most of its links
    were made, on a tie to the later (smaller) set; works with the same text go together, and so do articles.
    A pair is in a set if all its citing articles and both works are.
    """
    texts, text_of = np.unique(works.same_text, return_inverse=True)
    left, right = text_of[pairs.left], text_of[pairs.right]
    article = np.unique(citing.same_text, return_inverse=True)[1]
    split_of_article = _assign_articles(pairs, left, right, citing.pair, article, fractions, rng)

    made_in = split_of_article[article]
    ends = np.concatenate([left[citing.pair], right[citing.pair]])
    votes = np.bincount(np.tile(made_in, 2) + len(SPLITS) * ends, minlength=len(SPLITS) * len(texts))
    votes = votes.reshape(len(texts), len(SPLITS))
    most = len(SPLITS) - 1 - votes[:, ::-1].argmax(axis=1)
    split_of = np.where(votes.any(axis=1), most, assign_at_random(len(texts), fractions, rng))

    home = split_of[left]
    is_inside = home == split_of[right]
    is_inside[citing.pair[made_in != home[citing.pair]]] = False
    pools = {split: split_of[text_of] == split for split in range(len(SPLITS))}
    return Assignment(np.where(is_inside, home, CROSSING), pools)


def _assign_articles(
    pairs: PairArrays,
    left: np.ndarray,
    right: np.ndarray,
    pair: np.ndarray,
    article: np.ndarray,
    fractions: Fractions,
    rng: Generator,
) -> np.ndarray:
    """Assign a set to each article, shape (articles,), sampled in the domain of most of its pairs."""
    names, domain_of_pair = np.unique(pairs.domain, return_inverse=True)
    domain = domain_of_pair[pair]
    articles = int(article.max()) + 1
    counts = np.bincount(article * len(names) + domain, minlength=articles * len(names))
    home = counts.reshape(articles, len(names)).argmax(axis=1)
    split_of_article = np.empty(articles, dtype=np.int64)
    for number in np.unique(home):
        rows = (domain == number) & (home[article] == number)
        mine, position = np.unique(article[rows], return_inverse=True)
        cited = np.concatenate([left[pair[rows]], right[pair[rows]]])
        order = mine[_order_by_citations(np.tile(position, 2), cited)]
        split_of_article[order] = assign_blocks(len(order), fractions, rng)
    return split_of_article


def _order_by_citations(article: np.ndarray, cited: np.ndarray) -> np.ndarray:
    """Order the articles 0..n-1 so that those that cite the same works are close together.

    Reverse Cuthill-McKee on the graph of articles and works, whose edges are the citations; a graph of
    articles alone would join all that cite a common method with each other.
    """
    articles, work = int(article.max()) + 1, np.unique(cited, return_inverse=True)[1]
    order = order_by_links(np.arange(articles + int(work.max()) + 1), article, articles + work)
    return order[order < articles]


def draw_per_domain(
    pairs: PairArrays,
    maximum: int | None,
    by_count: bool,
    rng: Generator,
    among: np.ndarray | None = None,
) -> PairArrays:
    """Sample at most `maximum` pairs per domain without replacement, in the order of `pairs`.

    `among` is a mask of the pairs that may be sampled; the state of `rng` afterwards does not depend on it.

    With `by_count`, a pair's probability is proportional to its count: the preferential sampling of Hallee
    et al. 2025 (Data compilation). The largest of the keys u^(1/count), u uniform, are such a sample
    (Efraimidis and Spirakis 2006, Weighted random sampling with a reservoir).
    """
    among = np.ones(len(pairs), dtype=bool) if among is None else among
    if maximum is None:
        return pairs.take(among)
    keys = np.log(1.0 - rng.random(len(pairs))) / (pairs.count if by_count else 1.0)
    sampled = [np.empty(0, dtype=np.int64)]
    for domain in np.unique(pairs.domain):
        rows = np.flatnonzero((pairs.domain == domain) & among)
        sampled.append(rows[np.argsort(-keys[rows], kind="stable")[:maximum]])
    return pairs.take(np.sort(np.concatenate(sampled)))


def fold_texts(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the texts without case, punctuation, white space and unseen characters, in one Unicode form.

    A text that is nothing but punctuation keeps it.
    """
    lower = pc.utf8_lower(pc.utf8_normalize(texts, form="NFC"))
    lower = pc.replace_substring_regex(lower, f"[{UNSEEN}]+", "")
    for small, same in (("ß", "ss"), ("ς", "σ")):  # two forms of a capital
        lower = pc.replace_substring(lower, small, same)
    words = pc.utf8_trim_whitespace(pc.replace_substring_regex(lower, f"[{NOT_WORDS}]+", " "))
    return pc.if_else(pc.equal(words, ""), pc.utf8_trim_whitespace(lower), words)
