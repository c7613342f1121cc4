"""Where one part fails and the other does not (MoEE, figure 2), and how alike two of them rank (figure 4).

The paper does not say when a pair counts as failed. Here cosines and people's scores are put in ranks from 0
to 1, and a pair has failed where the two ranks are further apart than `FAILED`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, spearmanr

FAILED = 0.25
Column = NDArray[np.float64]


@dataclass(frozen=True)
class Complementarity:
    """Shares of the pairs; they add up to 1."""

    both_right: float
    only_hidden: float
    only_routing: float
    both_wrong: float

    @property
    def one_alone(self) -> float:
        """Where one fails and the other succeeds: what combining them can gain."""
        return self.only_hidden + self.only_routing


def complementarity(
    hidden: Column, routing: Column, scores: Sequence[float], failed: float = FAILED
) -> Complementarity:
    """Which part is right about which pairs.

    Args:
        hidden, routing: cosines of the pairs, (pairs,).
        scores: how alike people find them.
        failed: the distance of ranks above which a part is wrong.
    """
    wanted = _ranks(np.asarray(scores, dtype=np.float64))
    right = [np.abs(_ranks(each) - wanted) <= failed for each in (hidden, routing)]
    shares = {
        (first, second): float(((right[0] == first) & (right[1] == second)).mean())
        for first, second in product((True, False), repeat=2)
    }
    return Complementarity(shares[True, True], shares[True, False], shares[False, True], shares[False, False])


def rank_correlations(columns: Sequence[Column]) -> NDArray[np.float64]:
    """Spearman's correlation of each two of the columns of cosines, (columns, columns)."""
    size = len(columns)
    found = np.eye(size)
    for row in range(size):
        for column in range(row):
            found[row, column] = found[column, row] = spearmanr(columns[row], columns[column]).statistic
    return found


def mean_between(matrix: NDArray[np.float64], first: Sequence[int], second: Sequence[int]) -> float:
    """The mean of the matrix over pairs of a row of `first` and another of `second`; nan without any."""
    values = [matrix[row, column] for row in first for column in second if row != column]
    return float(np.mean(values)) if values else float("nan")


def _ranks(values: Column) -> Column:
    ranks: Column = (rankdata(values) - 1) / max(len(values) - 1, 1)
    return ranks
