"""The pair metrics of both papers: F1max and those reported with it.

A pair is called positive when its score is at least the threshold. Candidate thresholds are, as in
scikit-learn's `precision_recall_curve`, all distinct scores. F1max is the best F1 of them (2025 paper,
"Evaluation strategy"; preprint, section 3.4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sentence_experts.errors import InputError, UsageError

Metrics = dict[str, float | None]

LOWEST_OF_LINKED = 0.5  # of thresholds, where no pair is unlinked (Hallee et al. 2024, 3.4)
METRIC_NAMES = ("f1_max", "precision", "recall", "threshold", "ratio", "roc_auc", "mean_distance", "accuracy")


def pair_metrics(scores: ArrayLike, labels: ArrayLike, threshold_min: float | None = None) -> Metrics:
    """Return the eight metrics of scored pairs (`METRIC_NAMES`).

    Args:
        scores: similarities, shape (pairs,); larger means more similar. Not clipped to [-1, 1].
        labels: 1 for linked pairs and 0 for the others, shape (pairs,).
        threshold_min: only thresholds of at least this are candidates. A set without negatives has a
            trivial threshold (its lowest score: F1 = 1); the preprint (section 3.4) therefore searches
            [0.5, 1] there, which is `threshold_min=0.5`, and reports the accuracy.

    Returns:
        A dict with these keys; undefined metrics are None.

        - `f1_max`, `precision`, `recall`, `threshold`, `accuracy`: the best F1 = 2 tp / (2 tp + fp + fn),
          and the other metrics at its threshold, the lowest with exactly this F1, as in the published code.
          If no score reaches `threshold_min`, the threshold is `threshold_min` itself, and F1, precision and
          recall are 0. All five are None without positives.
        - `ratio`: mean score of the positives / mean score of the negatives (signed). None if either
          class is missing or the mean of the negatives is 0.
        - `roc_auc`: None if either class is missing.
        - `mean_distance`: mean of abs(label - score) (preprint, section 3.4).

    Raises:
        InputError: no pairs, different lengths, a score that is not a finite number, a label not 0 or 1.
        UsageError: `threshold_min` is not a finite number.
    """
    from sklearn.metrics import roc_auc_score

    if threshold_min is not None and not np.isfinite(threshold_min):
        raise UsageError(f"the lowest threshold must be a number, not {threshold_min}")
    values, truth = check_pairs(scores, labels)
    both_classes = 0 < truth.sum() < truth.size
    positive, negative = class_means(values, truth).values()
    return {
        **_find_best_cut(values, truth, threshold_min),
        "ratio": positive / negative if positive is not None and negative else None,
        "roc_auc": float(roc_auc_score(truth, values)) if both_classes else None,
        "mean_distance": _compute_exact_mean(np.abs(truth - values)),
    }


def lowest_threshold(labels: ArrayLike, threshold_min: float | None) -> float | None:
    """Return the lowest threshold of a set of pairs: the one that is given, if any.

    Of linked pairs alone it is 0.5, or any model would call all of them linked, and be right.
    """
    return LOWEST_OF_LINKED if threshold_min is None and np.all(labels) else threshold_min


def class_means(scores: ArrayLike, labels: ArrayLike) -> Metrics:
    """Return `mean_positive` and `mean_negative`: the mean score of each class, None without pairs."""
    values, truth = check_pairs(scores, labels)
    return {
        name: _compute_exact_mean(values[truth == label]) if (truth == label).any() else None
        for name, label in (("mean_positive", 1), ("mean_negative", 0))
    }


def check_pairs(scores: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return scores as float64 and labels as 0/1 integers, both of shape (pairs,).

    Raises:
        InputError: no pairs, different lengths, a score that is not a finite number, a label not 0 or 1.
    """
    try:
        values, truth = (np.asarray(each, dtype=np.float64) for each in (scores, labels))
    except (TypeError, ValueError) as error:
        raise InputError(f"scores and labels must be numbers: {error}") from error
    if values.ndim != 1 or values.shape != truth.shape or not values.size:
        raise InputError(
            f"scores of shape {values.shape} and labels of {truth.shape}: give one of each per pair"
        )
    for name, given, good in (
        ("score", values, np.isfinite(values)),
        ("label", truth, np.isin(truth, (0, 1))),
    ):
        if not good.all():
            first, wanted = int(np.argmin(good)), "a finite number" if name == "score" else "0 or 1"
            raise InputError(f"pair {first} (counted from 0): {name} {given[first]:g} is not {wanted}")
    return values, truth.astype(np.int64)


def pair_weighted_mean(
    domains: Mapping[str, Mapping[str, float | None]], pairs: Mapping[str, int]
) -> Metrics:
    """Return the mean of each metric over domains, weighted by their numbers of pairs.

    Table 3 of the 2025 paper reports F1, precision, recall, threshold and ratio of the paper's models in this
    way; it is not the metric of the pooled pairs. A metric that is undefined in any domain is None.
    """
    total, means = sum(pairs[domain] for domain in domains), Metrics()
    for name in next(iter(domains.values())):
        known = [
            each * pairs[domain] for domain, figures in domains.items() if (each := figures[name]) is not None
        ]
        means[name] = sum(known) / total if len(known) == len(domains) else None
    return means


def _compute_exact_mean(values: NDArray[np.float64]) -> float:
    # Rounded once, so that the order of the pairs does not change the last digit.
    return math.fsum(values) / values.size


def _find_best_cut(
    scores: NDArray[np.float64], labels: NDArray[np.int64], threshold_min: float | None
) -> Metrics:
    positives = int(labels.sum())
    if positives == 0:
        return dict.fromkeys(("f1_max", "precision", "recall", "threshold", "accuracy"))
    # With every distinct score as threshold, ascending; a score that reaches it is called positive.
    order = np.argsort(scores, kind="stable")
    ascending = scores[order]
    first_of_value = np.flatnonzero(np.diff(ascending, prepend=-np.inf))
    thresholds, called = ascending[first_of_value], labels.size - first_of_value
    true_positives = positives - np.concatenate([[0], np.cumsum(labels[order])])[first_of_value]
    allowed = slice(0 if threshold_min is None else int(np.searchsorted(thresholds, threshold_min)), None)
    if thresholds[allowed].size == 0:
        assert threshold_min is not None
        missed = {"threshold": float(threshold_min), "accuracy": float((labels == 0).mean())}
        return {"f1_max": 0.0, "precision": 0.0, "recall": 0.0, **missed}
    # From integers, so that equal F1s are equal floats and argmax returns the lowest of their thresholds.
    f1 = 2 * true_positives[allowed] / (called[allowed] + positives)
    best = int(np.argmax(f1))
    tp, chosen = int(true_positives[allowed][best]), int(called[allowed][best])
    true_negatives = labels.size - chosen - (positives - tp)
    return {
        "f1_max": float(f1[best]),
        "precision": tp / chosen,
        "recall": tp / positives,
        "threshold": float(thresholds[allowed][best]),
        "accuracy": (tp + true_negatives) / labels.size,
    }
