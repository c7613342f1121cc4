"""Rank correlations with intervals, clusters of texts, and how far two clusterings agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix, pair_confusion_matrix
from sklearn.preprocessing import normalize

from sentence_experts.errors import UsageError

RESTARTS = 10  # number of starts of k-means
LEVEL = 0.95
Column = NDArray[np.float64]
Labels = NDArray[np.int64]


def correlation(cosines: Column, scores: Column, replicates: int = 1000, seed: int = 0) -> dict[str, float]:
    """Return Spearman's correlation of two columns, shape (pairs,) each, and its interval.

    The 95% interval from `low` to `high` comes from a bootstrap that draws pairs and keeps their ranks; both
    ends are nan without replicates.
    """
    value, values = _resample(cosines, scores, replicates, seed)
    if not replicates:
        return {"value": value, "low": np.nan, "high": np.nan}
    low, high = np.nanquantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {"value": value, "low": float(low), "high": float(high)}


def mean_correlations(
    datasets: Sequence[tuple[Column, Column]], replicates: int = 1000, seed: int = 0
) -> tuple[float, Column]:
    """Return the mean of `correlation` over datasets, and in each replicate, shape (replicates,).

    `datasets` are cosines and scores. Equal scores and seeds draw the same pairs, so two such means can be
    subtracted.
    """
    found = [_resample(*columns, replicates, [seed, number]) for number, columns in enumerate(datasets)]
    count = len(found)
    return sum(value / count for value, _ in found), np.sum([values / count for _, values in found], axis=0)


def _resample(
    cosines: Column, scores: Column, replicates: int, seed: int | list[int]
) -> tuple[float, Column]:
    """Return Pearson's correlation of the ranks, and that in each replicate of a bootstrap over pairs."""
    first, second = rankdata(cosines), rankdata(scores)
    pairs = len(first)
    drawn = np.random.default_rng(seed).multinomial(pairs, np.full(pairs, 1 / pairs), replicates)
    weights = np.concatenate([np.ones((1, pairs)), drawn])
    weights /= weights.sum(axis=1, keepdims=True)
    centred = [column - (weights @ column)[:, None] for column in (first, second)]
    deviations = [np.sqrt((weights * each**2).sum(axis=1)) for each in centred]
    covariance = (weights * centred[0] * centred[1]).sum(axis=1)
    values: Column = covariance / (deviations[0] * deviations[1])
    return float(values[0]), values[1:]


def ranks(values: ArrayLike) -> Column:
    """Return ranks from 0 (the lowest value) to 1."""
    places: Column = rankdata(values) - 1
    return places / max(len(places) - 1, 1)


def cluster(vectors: NDArray[np.float32], clusters: int, seed: int = 0) -> Labels:
    """Cluster vectors, scaled to length 1, by k-means; return the cluster of each text.

    Raises:
        UsageError: fewer than 2 clusters, or more than texts.
    """
    if not 2 <= clusters <= len(vectors):
        raise UsageError(f"`clusters` must be 2 to the number of texts ({len(vectors)}), got {clusters}")
    means = KMeans(clusters, n_init=RESTARTS, random_state=seed)
    labels: Labels = means.fit_predict(normalize(vectors)).astype(int)
    return labels


def agreement(first: Labels, second: Labels) -> dict[str, float]:
    """Measure the agreement of two clusterings of the same texts; every number is 1 for equal ones.

    Returns:
        `ami`, adjusted mutual information, about 0 for unrelated clusterings; `nmi`, normalised mutual
        information; `jaccard`, of the pairs of texts that share a cluster in either, the share that do in
        both; `exact_match`, the share of texts in matching clusters, after the best matching of clusters.
    """
    (_, only_second), (only_first, both) = pair_confusion_matrix(first, second)
    either = both + only_first + only_second
    table = contingency_matrix(first, second)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return {
        "ami": float(adjusted_mutual_info_score(first, second)),
        "nmi": float(normalized_mutual_info_score(first, second)),
        "jaccard": float(both / either) if either else 1.0,
        "exact_match": float(table[rows, columns].sum() / len(first)),
    }
