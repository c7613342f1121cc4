from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score

from sentence_experts.errors import InputError
from sentence_experts.evaluation.metrics import METRIC_NAMES, class_means, pair_metrics, pair_weighted_mean

# Few distinct values, so that ties between scores and between F1s are common.
scored_pairs = st.lists(st.tuples(st.integers(-8, 8), st.integers(0, 1)), min_size=1, max_size=40).map(
    lambda pairs: (np.array([score / 8 for score, _ in pairs]), np.array([label for _, label in pairs]))
)


def brute_force(scores: np.ndarray, labels: np.ndarray, threshold_min: float = -math.inf) -> tuple:
    """(best F1, lowest threshold with it), by trying every score as threshold."""
    best = (0.0, math.nan)
    for threshold in sorted({float(score) for score in scores if score >= threshold_min}):
        tp = sum(1 for score, label in zip(scores, labels, strict=True) if score >= threshold and label)
        fp = sum(1 for score, label in zip(scores, labels, strict=True) if score >= threshold and not label)
        f1 = 2 * tp / (tp + fp + labels.sum())
        if f1 > best[0]:
            best = (f1, threshold)
    return best


@given(scored_pairs, st.sampled_from([None, -0.5, 0.0, 0.5]))
def test_f1_max_is_the_best_over_all_scores_and_ties_take_the_lowest(pairs, threshold_min):
    scores, labels = pairs
    found = pair_metrics(scores, labels, threshold_min)
    if labels.sum() == 0:
        assert found["f1_max"] is found["threshold"] is found["accuracy"] is None
        return
    f1, threshold = brute_force(scores, labels, -math.inf if threshold_min is None else threshold_min)
    assert found["f1_max"] == pytest.approx(f1)
    if not math.isnan(threshold):
        assert found["threshold"] == threshold
    assert found["accuracy"] == accuracy_score(labels, scores >= found["threshold"])


@given(scored_pairs)
def test_a_monotone_transformation_keeps_f1_max_and_auc(pairs):
    scores, labels = pairs
    before, after = pair_metrics(scores, labels), pair_metrics(np.exp(3 * scores) - 5, labels)
    for name in ("f1_max", "precision", "recall", "roc_auc", "accuracy"):
        assert before[name] == pytest.approx(after[name])


def test_metrics_equal_values_by_hand():
    scores, labels = [0.9, 0.7, 0.6, 0.2], [1, 1, 0, 0]
    assert pair_metrics(scores, labels) == pytest.approx(
        {
            "f1_max": 1.0,
            "precision": 1.0,
            "recall": 1.0,
            "threshold": 0.7,
            "accuracy": 1.0,
            "ratio": 2.0,
            "roc_auc": 1.0,
            "mean_distance": (0.1 + 0.3 + 0.6 + 0.2) / 4,
        }
    )
    assert class_means(scores, labels) == pytest.approx({"mean_positive": 0.8, "mean_negative": 0.4})
    assert tuple(sorted(pair_metrics(scores, labels))) == tuple(sorted(METRIC_NAMES))


def test_equal_f1_takes_the_lowest_threshold():
    # 0.5: tp 2, fp 2; 0.9: tp 1, fp 0. Both have F1 = 2/3.
    assert pair_metrics([0.9, 0.5, 0.6, 0.7], [1, 1, 0, 0])["threshold"] == 0.5


def test_all_positive_set_has_a_trivial_threshold_unless_limited():
    scores, labels = [0.9, 0.6, 0.45, -0.2], [1, 1, 1, 1]
    free = pair_metrics(scores, labels)
    assert (free["f1_max"], free["threshold"], free["accuracy"]) == (1.0, -0.2, 1.0)
    limited = pair_metrics(scores, labels, threshold_min=0.5)
    assert (limited["threshold"], limited["accuracy"]) == (0.6, 0.5)
    assert limited["f1_max"] == pytest.approx(2 / 3)
    assert limited["roc_auc"] is None
    assert limited["ratio"] is None


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([], [], "one of each per pair"),
        ([0.1], [1, 0], "one of each per pair"),
        ([0.1, math.nan], [1, 0], "pair 1 .*score nan"),
        ([0.1, math.inf], [1, 0], "pair 1 .*score inf"),
        ([0.1, 0.2], [1, 2], "pair 1 .*label 2"),
        ([0.1, 0.2], [1, -1], "label -1"),
        ([0.1, 0.2], [1, math.nan], "label nan"),
        (["a", "b"], [1, 0], "must be numbers"),
        ([[0.1, 0.2]], [1, 0], "one of each per pair"),
    ],
)
def test_bad_input_errors(scores, labels, message):
    with pytest.raises(InputError, match=message):
        pair_metrics(scores, labels)


def test_pair_weighted_mean_of_an_undefined_metric_is_undefined():
    domains = {"a": {"f1_max": 0.5, "roc_auc": None}, "b": {"f1_max": 1.0, "roc_auc": 0.7}}
    assert pair_weighted_mean(domains, {"a": 3, "b": 1}) == {"f1_max": 0.625, "roc_auc": None}
