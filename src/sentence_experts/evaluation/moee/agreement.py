"""Clusters of texts by HS and by RW: how far they agree (MoEE, section 3.2), and their words (figure 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix, pair_confusion_matrix
from sklearn.preprocessing import normalize

from sentence_experts.errors import UsageError

Labels = NDArray[np.int64]
RESTARTS = 10
WORDS_PER_TOPIC = 8


@dataclass(frozen=True)
class Agreement:
    """How far two clusterings agree; each number is 1 for equal ones.

    Attributes:
        ami: adjusted mutual information; about 0 for unrelated clusterings.
        nmi: normalised mutual information.
        jaccard: of the pairs of texts that share a cluster in either, the share that do in both.
        exact_match: share of texts in matching clusters, after the best matching of clusters.
    """

    ami: float
    nmi: float
    jaccard: float
    exact_match: float


def cluster(vectors: NDArray[np.float32], clusters: int, seed: int = 0) -> Labels:
    """k-means of vectors scaled to length 1: the cluster of each text.

    Raises:
        UsageError: fewer than 2 clusters, or more than texts.
    """
    if not 2 <= clusters <= len(vectors):
        raise UsageError(f"`clusters` must be 2 to the number of texts ({len(vectors)}), got {clusters}")
    means = KMeans(clusters, n_init=RESTARTS, random_state=seed)
    labels: Labels = means.fit_predict(normalize(vectors)).astype(np.int64)
    return labels


def agreement(first: Labels, second: Labels) -> Agreement:
    """How far two clusterings of the same texts agree."""
    (_, only_second), (only_first, both) = pair_confusion_matrix(first, second)
    either = both + only_first + only_second
    table = contingency_matrix(first, second)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return Agreement(
        ami=float(adjusted_mutual_info_score(first, second)),
        nmi=float(normalized_mutual_info_score(first, second)),
        jaccard=float(both / either) if either else 1.0,
        exact_match=float(table[rows, columns].sum() / len(first)),
    )


def topics(texts: Sequence[str], labels: Labels, words: int = WORDS_PER_TOPIC) -> list[list[str]]:
    """Return the words of the highest weight in each cluster, without English stop words.

    Weights are class-based TF-IDF (Grootendorst 2022): the word's share of the cluster's words times
    log(1 + A / f), A being the mean number of words per cluster and f the word's count in all of them.
    """
    clusters = range(int(labels.max()) + 1)
    documents = [
        " ".join(text for text, own in zip(texts, labels, strict=True) if own == one) for one in clusters
    ]
    counter = CountVectorizer(stop_words="english")
    try:
        counts = counter.fit_transform(documents).toarray().astype(float)
    except ValueError:  # nothing but stop words
        return [[] for _ in clusters]
    sizes = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    weights = counts / sizes * np.log(1 + counts.sum(axis=1).mean() / counts.sum(axis=0))
    names = counter.get_feature_names_out()
    order = np.argsort(-weights, axis=1, kind="stable")[:, :words]
    return [
        [str(names[place]) for place in row if weights[number, place] > 0] for number, row in enumerate(order)
    ]
