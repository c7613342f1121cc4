"""How cosines of pairs agree with human scores and with each other, and clusters of texts with each other.

The paper does not say when a part is wrong about a pair (MoEE, figure 2). Here cosines and scores are turned
into ranks from 0 to 1, and a part is wrong about a pair if the two ranks differ by more than
`MAX_RANK_DISTANCE`.
"""

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

MAX_RANK_DISTANCE = 0.25
RESTARTS = 10  # of k-means
LEVEL = 0.95
Column = NDArray[np.float64]
Labels = NDArray[np.int64]


def correlation(cosines: Column, scores: Column, replicates: int = 1000, seed: int = 0) -> dict[str, float]:
    """Return Spearman's correlation of two columns, shape (pairs,) each, and its interval.

    The 95% interval from `low` to `high` is that of a bootstrap that draws pairs and keeps their ranks; both
    ends are nan without replicates.
    """
    first, second = (rankdata(column) for column in (cosines, scores))
    value = float(_weighted(first, second, np.ones((1, len(first))))[0])
    if not replicates:
        return {"value": value, "low": np.nan, "high": np.nan}
    values = _weighted(first, second, _draws(len(first), replicates, seed))
    low, high = np.nanquantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {"value": value, "low": float(low), "high": float(high)}


def mean_correlations(
    datasets: Sequence[tuple[Column, Column]], replicates: int = 1000, seed: int = 0
) -> tuple[float, Column]:
    """Return the mean of `correlation` over datasets, and in each replicate, shape (replicates,).

    `datasets` are cosines and scores. Equal scores and seeds draw the same pairs, so two such means can be
    subtracted.
    """
    value, resampled = 0.0, np.zeros(replicates)
    for number, columns in enumerate(datasets):
        first, second = (rankdata(column) for column in columns)
        value += float(_weighted(first, second, np.ones((1, len(first))))[0]) / len(datasets)
        resampled += _weighted(first, second, _draws(len(first), replicates, [seed, number])) / len(datasets)
    return value, resampled


def _draws(pairs: int, replicates: int, seed: int | list[int]) -> NDArray[np.float64]:
    shares = np.full(pairs, 1 / pairs)
    return np.random.default_rng(seed).multinomial(pairs, shares, replicates).astype(np.float64)


def rank_correlations(columns: Sequence[Column]) -> NDArray[np.float64]:
    """Return Spearman's correlation between every two of the columns, shape (columns, columns)."""
    return np.atleast_2d(np.corrcoef([rankdata(column) for column in columns]))


def mean_between(matrix: NDArray[np.float64], first: Sequence[int], second: Sequence[int]) -> float:
    """The mean of the matrix over a row of `first` and another column of `second`; nan if there are none."""
    values = [matrix[row, column] for row in first for column in second if row != column]
    return float(np.mean(values)) if values else float("nan")


def complementarity(
    hidden: Column, routing: Column, scores: ArrayLike, max_distance: float = MAX_RANK_DISTANCE
) -> dict[str, float]:
    """Return the shares of the pairs that both, one or none of the parts is right about; they add up to 1.

    `one_alone` is the share that one part alone is right about: what combining the parts can gain. All
    columns have shape (pairs,).
    """
    wanted = ranks(scores)
    hidden_right, routing_right = (np.abs(ranks(each) - wanted) <= max_distance for each in (hidden, routing))
    return {
        "both_right": float((hidden_right & routing_right).mean()),
        "only_hidden": float((hidden_right & ~routing_right).mean()),
        "only_routing": float((~hidden_right & routing_right).mean()),
        "both_wrong": float((~hidden_right & ~routing_right).mean()),
        "one_alone": float((hidden_right ^ routing_right).mean()),
    }


def right_alone(
    right: Column, wrong: Column, scores: ArrayLike, max_distance: float = MAX_RANK_DISTANCE
) -> NDArray[np.int64]:
    """Return the pairs that one part is right and the other is wrong about, those of the widest gap first.

    Args:
        right, wrong: the cosines of the two parts, shape (pairs,) each.
        scores: human scores, (pairs,).
        max_distance: up to this distance from the rank by score a part is right.

    Returns:
        Places of pairs; the gap is between the distances of the two parts.
    """
    wanted = ranks(scores)
    near, far = (np.abs(ranks(each) - wanted) for each in (right, wrong))
    places = np.flatnonzero((near <= max_distance) & (far > max_distance))
    order: NDArray[np.int64] = places[np.argsort(near[places] - far[places], kind="stable")]
    return order


def _weighted(first: Column, second: Column, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Pearson's correlation under each row of weights, shape (draws, pairs)."""
    weights = weights / weights.sum(axis=1, keepdims=True)
    centred = [column - (weights @ column)[:, None] for column in (first, second)]
    deviations = [np.sqrt((weights * each**2).sum(axis=1)) for each in centred]
    covariance = (weights * centred[0] * centred[1]).sum(axis=1)
    correlations: NDArray[np.float64] = covariance / (deviations[0] * deviations[1])
    return correlations


def ranks(values: ArrayLike) -> Column:
    """Return ranks from 0 (the lowest value) to 1."""
    places: Column = rankdata(values) - 1
    return places / max(len(places) - 1, 1)


def cluster(vectors: NDArray[np.float32], clusters: int, seed: int = 0) -> Labels:
    """k-means of vectors scaled to length 1: the cluster of each text.

    Raises:
        UsageError: fewer than 2 clusters, or more than texts.
    """
    if not 2 <= clusters <= len(vectors):
        raise UsageError(f"`clusters` must be 2 to the number of texts ({len(vectors)}), got {clusters}")
    means = KMeans(clusters, n_init=RESTARTS, random_state=seed)
    labels: Labels = means.fit_predict(normalize(vectors)).astype(int)
    return labels


def agreement(first: Labels, second: Labels) -> dict[str, float]:
    """Measure how far two clusterings of the same texts agree; each number is 1 for equal ones.

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
