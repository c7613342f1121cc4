"""The words that set a cluster apart, by class-based TF-IDF (Grootendorst 2022; MoEE, figure 3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer

WORDS_OF_A_TOPIC = 8


def topics(texts: Sequence[str], labels: NDArray[np.int64], words: int = WORDS_OF_A_TOPIC) -> list[list[str]]:
    """For each cluster its words of the highest weight, the highest first, without English stop words.

    A word's weight in a cluster is its share of the cluster's words times log(1 + A / f): A is the mean
    number of words of a cluster, f how often the word occurs in all of them.
    """
    clusters = range(int(labels.max()) + 1)
    joined = [
        " ".join(text for text, own in zip(texts, labels, strict=True) if own == one) for one in clusters
    ]
    counter = CountVectorizer(stop_words="english")
    try:
        counts = counter.fit_transform(joined).toarray().astype(float)
    except ValueError:  # nothing but stop words
        return [[] for _ in clusters]
    sizes = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    weights = counts / sizes * np.log(1 + counts.sum(axis=1).mean() / counts.sum(axis=0))
    names = counter.get_feature_names_out()
    order = np.argsort(-weights, axis=1, kind="stable")[:, :words]
    return [
        [str(names[place]) for place in row if weights[number, place] > 0] for number, row in enumerate(order)
    ]
