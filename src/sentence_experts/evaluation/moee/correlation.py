"""Spearman's correlation between cosines and people's scores, with an interval over the pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

Column = NDArray[np.float64]
LEVEL = 0.95


@dataclass(frozen=True)
class Correlation:
    """A correlation and the ends of its 95% interval; without replicates the ends are nan."""

    value: float
    low: float
    high: float


def correlation(cosines: Column, scores: Column, replicates: int = 1000, seed: int = 0) -> Correlation:
    """Spearman's correlation; the interval is that of a bootstrap that draws pairs and keeps their ranks.

    Args:
        cosines, scores: (pairs,).
        replicates: of the bootstrap; 0 for no interval.
        seed: of the draws.
    """
    first, second = (rankdata(column) for column in (cosines, scores))
    value = _weighted(first, second, np.ones((1, len(first))))[0]
    if not replicates:
        return Correlation(value, np.nan, np.nan)
    draws = np.random.default_rng(seed).multinomial(
        len(first), np.full(len(first), 1 / len(first)), replicates
    )
    found = _weighted(first, second, draws.astype(np.float64))
    low, high = np.nanquantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Correlation(value, float(low), float(high))


def _weighted(first: Column, second: Column, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pearson's correlation under each row of weights (draws, pairs)."""
    weights = weights / weights.sum(axis=1, keepdims=True)
    centred = [column - (weights @ column)[:, None] for column in (first, second)]
    deviations = [np.sqrt((weights * each**2).sum(axis=1)) for each in centred]
    covariance = (weights * centred[0] * centred[1]).sum(axis=1)
    found: NDArray[np.float64] = covariance / (deviations[0] * deviations[1])
    return found
