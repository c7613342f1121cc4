"""How far two clusterings of the same texts agree (MoEE, section 3.2): by HS and by RW."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix, pair_confusion_matrix

from sentence_experts.errors import UsageError

Labels = NDArray[np.int64]
RESTARTS = 10


@dataclass(frozen=True)
class Agreement:
    """Each is 1 for equal clusterings.

    Attributes:
        ami: adjusted mutual information; about 0 for unrelated clusterings.
        nmi: normalised mutual information.
        jaccard: of the pairs of texts that either puts together, the share that both do.
        exact_match: the share of texts in matching clusters, after the best matching of clusters.
    """

    ami: float
    nmi: float
    jaccard: float
    exact_match: float


def cluster(vectors: NDArray[np.float32], clusters: int, seed: int = 0) -> Labels:
    """k-means of vectors scaled to length 1: a cluster for each text.

    Raises:
        UsageError: more clusters than texts.
    """
    if not 2 <= clusters <= len(vectors):
        raise UsageError(f"{clusters} clusters for {len(vectors)} texts: choose 2 to {len(vectors)}")
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    found: Labels = KMeans(clusters, n_init=RESTARTS, random_state=seed).fit_predict(vectors / lengths)
    return found.astype(np.int64)


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
