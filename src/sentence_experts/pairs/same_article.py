"""Negatives of the same article: a finer test than unlinked papers.

Each positive, two works that an article mentions in one paragraph or closer, is compared with its anchor and
another work that the same article mentions. No article mentions those two in one paragraph.
"""

from __future__ import annotations

import numpy as np

from sentence_experts.pairs.graph import LinkGraph
from sentence_experts.pairs.proximity import LEVELS
from sentence_experts.pairs.splits import (
    SPLITS,
    TEST,
    VALIDATION,
    Assignment,
    PairArrays,
    TooFewPairsError,
)


def draw_same_article(
    graph: LinkGraph, splits: list[PairArrays], assignment: Assignment, rng: np.random.Generator
) -> tuple[list[PairArrays], dict[int, PairArrays]]:
    """One negative for each positive of validation and test, none twice.

    Returns:
        The splits without positives that have no negative, and the negatives of each evaluation set; row by
        row, a positive and its negative have the same left end, the anchor.

    Raises:
        TooFewPairsError: no positive of a set has one.
    """
    positives, negatives = list(splits), {}
    for split in (VALIDATION, TEST):
        positives[split], negatives[split] = _draw(graph, splits[split], split, assignment, rng)
    return positives, negatives


def _draw(
    graph: LinkGraph, positives: PairArrays, split: int, assignment: Assignment, rng: np.random.Generator
) -> tuple[PairArrays, PairArrays]:
    size = len(positives)
    # Each end can be the anchor: pair number `size + n` is pair n the other way round.
    anchor = np.concatenate([positives.left, positives.right])
    near = np.concatenate([positives.right, positives.left])
    pair, other = graph.far_in_one_article(anchor, near)
    fits = assignment.pools[split][other]
    for domain in np.unique(positives.domain):
        fits &= (positives.domain[pair % size] != domain) | graph.in_domain(domain)[other]
    if (one_end := assignment.one_end.get(split)) is not None:
        fits &= one_end[anchor[pair]] | one_end[other]
    pair, other = pair[fits], other[fits]
    rows, others = _choose(anchor, pair, other, size, rng)
    if len(rows) == 0:
        raise TooFewPairsError(
            f"{SPLITS[split]}: no linked pair has a paper that the same article mentions in other "
            "paragraphs and that is in the same set and domain; add articles with their text"
        )
    paired = positives.take(rows % size)
    far = np.full(len(rows), LEVELS.index("article"))
    return (
        PairArrays(anchor[rows], near[rows], paired.count, paired.domain, paired.level, paired.weight),
        PairArrays(anchor[rows], others, np.zeros(len(rows), dtype=np.int64), paired.domain, far),
    )


def _choose(
    anchor: np.ndarray, pair: np.ndarray, other: np.ndarray, size: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The directed pairs that got a negative, ascending by positive, and their negatives' other ends.

    `other[n]` is a candidate for the directed pair `pair[n]` (ascending).
    """
    bounds = np.searchsorted(pair, np.arange(2 * size + 1))
    used: set[tuple[int, int]] = set()
    rows, others = np.full(size, -1), np.full(size, -1)
    reverse = rng.random(size) < 0.5
    for positive in rng.permutation(size):
        for row in (positive + size * reverse[positive], positive + size * (not reverse[positive])):
            candidates = rng.permutation(other[bounds[row] : bounds[row + 1]])
            for candidate in candidates.tolist():
                ends = (min(candidate, int(anchor[row])), max(candidate, int(anchor[row])))
                if ends not in used:
                    used.add(ends)
                    rows[positive], others[positive] = row, candidate
                    break
            if rows[positive] >= 0:
                break
    has_negative = rows >= 0
    return rows[has_negative], others[has_negative]
