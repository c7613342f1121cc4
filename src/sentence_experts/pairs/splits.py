"""Train, validation and test: by paper (no leak), by pair (as published), by year (as in the preprint).

`article_split` has a fourth way, for pairs of works that the same articles cite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from sentence_experts.errors import InputError

SPLITS = ("train", "validation", "test")
TRAIN, VALIDATION, TEST = range(3)
CROSSING = -1
UNKNOWN_YEAR = -1
# Characters that do not make texts different: citing papers give a title with and without its final stop.
# White space is spelled out, as engines differ in the meaning of \s.
NOT_WORDS = r"[\p{P}\t\n\f\r ]+"
# Blocks of papers per domain: fewer keep more pairs, more make the sets more alike.
BLOCKS = 25


@dataclass(frozen=True)
class PairArrays:
    """Linked pairs in columns, each of shape (pairs,): node numbers, count, domain."""

    left: np.ndarray
    right: np.ndarray
    count: np.ndarray
    domain: np.ndarray

    def __len__(self) -> int:
        return len(self.left)

    def take(self, rows: np.ndarray) -> PairArrays:
        """The given rows (indices or mask), in that order."""
        return PairArrays(self.left[rows], self.right[rows], self.count[rows], self.domain[rows])


@dataclass(frozen=True)
class WorkArrays:
    """Works by position, each of shape (works,), with `work` ascending; year is -1 where unknown."""

    work: np.ndarray
    same_text: np.ndarray
    year: np.ndarray
    times_cited: np.ndarray

    def rows(self, works: np.ndarray) -> np.ndarray:
        """The positions of the given node numbers."""
        return np.searchsorted(self.work, works)


@dataclass(frozen=True)
class Assignment:
    """The set of each pair, and the works that the negatives of a set may be made of.

    Attributes:
        pairs: shape (pairs,), the set of each, -1 for none.
        pools: set -> mask of shape (works,).
        one_end: set -> mask of shape (works,): each negative has one such work, as each positive has.
    """

    pairs: np.ndarray
    pools: Mapping[int, np.ndarray]
    one_end: Mapping[int, np.ndarray] = field(default_factory=dict)


def split_by_paper(
    pairs: PairArrays, works: WorkArrays, fractions: tuple[float, float, float], rng: np.random.Generator
) -> Assignment:
    """Split papers, so that none is in two sets; pairs across two sets are left out.

    `fractions` are of papers. In each domain the linked papers are assigned in blocks of neighbours: papers
    assigned one by one would split most pairs (0.6, 0.2, 0.2 keeps 44% of them; blocks kept 50% to 80% on
    real articles). Works with the same text go together.
    """
    texts, text_of = np.unique(works.same_text, return_inverse=True)
    left, right = text_of[works.rows(pairs.left)], text_of[works.rows(pairs.right)]
    split_of = assign_texts(len(texts), fractions, rng)
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


def assign_texts(count: int, fractions: tuple[float, float, float], rng: np.random.Generator) -> np.ndarray:
    """A random set for each of `count` texts: shape (count,)."""
    bounds = np.cumsum(fractions)[:2]
    return np.searchsorted(bounds, rng.permutation(count) / max(count, 1), side="right")


def assign_blocks(count: int, fractions: tuple[float, float, float], rng: np.random.Generator) -> np.ndarray:
    """A set for each of `count` things in order, by at most `BLOCKS` blocks of one size: shape (count,)."""
    sizes = [len(block) for block in np.array_split(np.arange(count), BLOCKS) if len(block)]
    places = (rng.permutation(len(sizes)) + 0.5) / max(len(sizes), 1)
    return np.repeat(np.searchsorted(np.cumsum(fractions)[:2], places, side="right"), sizes)


def order_by_links(nodes: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Order `nodes` (given ascending) so that linked ones are close together (reverse Cuthill-McKee)."""
    inside = np.isin(left, nodes) & np.isin(right, nodes)
    ends = np.searchsorted(nodes, left[inside]), np.searchsorted(nodes, right[inside])
    graph = coo_array((np.ones(len(ends[0])), ends), shape=(len(nodes), len(nodes)))
    order: np.ndarray = nodes[reverse_cuthill_mckee((graph + graph.T).tocsr(), symmetric_mode=True)]
    return order


def split_by_pair(
    pairs: PairArrays, works: WorkArrays, fractions: tuple[float, float, float], rng: np.random.Generator
) -> Assignment:
    """Split pairs at random, so that papers are in several sets: the published way, which leaks.

    Source: Hallee et al. 2025, Data compilation ("split randomly in a 99:1 ratio").
    """
    places = rng.permutation(len(pairs)) / max(len(pairs), 1)
    every_work = np.ones(len(works.work), dtype=bool)
    home = np.searchsorted(np.cumsum(fractions)[:2], places, side="right")
    return Assignment(home, {VALIDATION: every_work, TEST: every_work})


def split_by_year(
    pairs: PairArrays, works: WorkArrays, fractions: tuple[float, float, float], rng: np.random.Generator
) -> Assignment:
    """Test on pairs with a paper of the newest year; split the rest at random into train and validation.

    The newest year is that of the linked papers: papers that came out later are not cited yet, and are in no
    negatives either. Source: Hallee et al. 2024 (preprint), 3.1. Papers of test pairs may also be in
    training.

    Raises:
        InputError: no paper has a year, or every pair is of the newest one.
    """
    years = np.maximum(works.year[works.rows(pairs.left)], works.year[works.rows(pairs.right)])
    newest = years.max(initial=UNKNOWN_YEAR)
    if newest == UNKNOWN_YEAR:
        raise InputError("split by year: no linked paper has a year; use `split=paper`")
    is_test = years == newest
    if is_test.all():
        raise InputError(f"split by year: every pair has a paper of {newest}, nothing is left to train on")
    train, validation, _ = fractions
    drawn = rng.permutation(len(pairs)) / max(len(pairs), 1)
    rest = np.where(drawn < validation / (train + validation), VALIDATION, TRAIN)
    pools = {VALIDATION: works.year < newest, TEST: works.year <= newest}
    return Assignment(np.where(is_test, TEST, rest), pools, {TEST: works.year == newest})


@dataclass(frozen=True)
class SplitMethod:
    """One way to split, and its default shares of train, validation and test."""

    assign: Callable[[PairArrays, WorkArrays, tuple[float, float, float], np.random.Generator], Assignment]
    fractions: tuple[float, float, float]


SPLIT_METHODS: dict[str, SplitMethod] = {
    "paper": SplitMethod(split_by_paper, (0.6, 0.2, 0.2)),
    "random": SplitMethod(split_by_pair, (0.98, 0.01, 0.01)),
    "year": SplitMethod(split_by_year, (0.99, 0.01, 0.0)),
}


def papers_seen(train: PairArrays, test: PairArrays) -> tuple[int, int]:
    """Number of papers of test pairs that occur in training pairs, and number of all test papers."""
    trained = np.union1d(train.left, train.right)
    tested = np.union1d(test.left, test.right)
    return int(np.isin(tested, trained).sum()), len(tested)
