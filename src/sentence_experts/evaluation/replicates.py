"""Bootstrap replicates of papers, and the thresholds of F1 that are best in them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

CELLS_AT_ONCE = 4_000_000  # replicates x pairs in memory: about 100 MB with intermediates

Floats = NDArray[np.float64]
Draws = NDArray[np.uint16]  # number of times each paper is sampled, shape (replicates, papers)


def best_in_replicates(
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    linked: NDArray[np.int64],
    last: NDArray[np.int64],
    replicates: int,
    seed: int,
) -> Floats:
    """How often each threshold, or calling no pair linked, is the best of a replicate: (thresholds + 1,).

    Args:
        first, second: the numbers of the papers of each pair, the highest score first, shape (pairs,).
        linked: their labels.
        last: the last pair above each threshold, shape (thresholds,).
        replicates: their number.
        seed: random seed.
    """
    draws = _draws(int(max(first.max(), second.max())) + 1, replicates, seed)
    counts = np.zeros(len(last) + 1)
    step = max(1, CELLS_AT_ONCE // len(linked))
    for start in range(0, replicates, step):
        rows = draws[start : start + step]
        weights = rows[:, first].astype(np.float64) * rows[:, second]
        classes = []
        for own in (linked, 1 - linked):
            sums = (weights * own).cumsum(1)
            # The weights of a class add up to its number of pairs: that was chosen, not sampled.
            with np.errstate(invalid="ignore", divide="ignore"):
                classes.append(sums[:, last] * (own.sum() / sums[:, -1:] if own.any() else 1.0))
        true, false = classes
        curves = np.pad(2 * true / (true + false + linked.sum()), ((0, 0), (0, 1)))
        # A replicate without pairs of a class is left out; of equal values the lowest threshold is the best.
        lowest_first = curves[~np.isnan(curves).any(1), ::-1]
        counts += np.bincount(len(last) - lowest_first.argmax(1), minlength=len(counts))
    return counts / counts.sum() if counts.any() else np.full(len(counts), np.nan)


@lru_cache(maxsize=16)  # shared by the models of an evaluation
def _draws(papers: int, replicates: int, seed: int) -> Draws:
    generator, shares = np.random.default_rng(seed), np.full(papers, 1 / papers)
    return np.stack([generator.multinomial(papers, shares).astype(np.uint16) for _ in range(replicates)])
