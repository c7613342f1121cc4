from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.baselines import TfidfScorer
from sentence_experts.evaluation.metrics import METRIC_NAMES, pair_metrics
from sentence_experts.evaluation.pairs import (
    checked_table,
    compare,
    cosine_by_text,
    evaluate,
    measure,
    score_pairs,
)
from sentence_experts.pairs.dataset import PairsFolder


class GivenScores:
    """A scorer whose similarity is written in the texts: "0.3|..."."""

    label = "given"

    def settings(self):
        return {}

    def score(self, anchors, positives, domain):
        return np.array([float(text.split("|")[0]) for text in anchors])


def table_of(rows: list[tuple[float, int, str]]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "anchor": f"{score}|a",
                "positive": "b",
                "label": label,
                "domain": domain,
                "count": label,
                "anchor_id": f"a{number}",
                "positive_id": f"b{number}",
            }
            for number, (score, label, domain) in enumerate(rows)
        ]
    )


# "low" is separated at 0.2, "high" at 0.8; no one threshold serves both.
TWO_SCALES = [
    *[(0.3, 1, "low")] * 3,
    *[(0.1, 0, "low")] * 3,
    *[(0.9, 1, "high")] * 1,
    *[(0.7, 0, "high")] * 1,
]


def test_pooled_has_one_threshold_and_the_mean_one_per_domain():
    table = table_of(TWO_SCALES)
    pooled, mean, domains = measure(table, score_pairs(GivenScores(), table), replicates=0)
    assert domains["low"].metrics["f1_max"] == domains["high"].metrics["f1_max"] == 1.0
    assert mean.metrics["f1_max"] == 1.0
    assert mean.metrics["threshold"] == pytest.approx((6 * 0.3 + 2 * 0.9) / 8)
    assert pooled.metrics["f1_max"] == pytest.approx(2 * 4 / (2 * 4 + 1))
    assert (pooled.pairs, pooled.positives, mean.pairs) == (8, 4, 8)
    assert (
        pooled.metrics.items()
        >= pair_metrics([score for score, _, _ in TWO_SCALES], [label for _, label, _ in TWO_SCALES]).items()
    )


def test_order_of_pairs_changes_nothing(pairs_folder):
    table = PairsFolder.open(pairs_folder).split("test")
    shuffled = table.take(pa.array(np.random.default_rng(0).permutation(table.num_rows)))
    found = [evaluate([TfidfScorer({})], rows, replicates=20).to_json() for rows in (table, shuffled)]
    assert json.dumps(found[0]) == json.dumps(found[1])


def test_each_text_is_encoded_once_and_the_cosine_is_symmetric():
    seen = []

    def encode(texts):
        seen.extend(texts)
        return np.array([[len(text), text.count("x")] for text in texts], dtype=np.float32)

    there = cosine_by_text(["ax", "bbb", "ax"], ["bbb", "cxc", "ax"], encode)
    assert sorted(seen) == ["ax", "bbb", "cxc"]
    assert there[2] == pytest.approx(1.0)
    assert np.array_equal(there[:2], cosine_by_text(["bbb", "cxc"], ["ax", "bbb"], encode))


def test_json_has_every_view_metric_and_interval(pairs_folder):
    table = PairsFolder.open(pairs_folder).split("test")
    found = json.loads(json.dumps(evaluate([TfidfScorer({})], table, replicates=30).to_json()))
    model = found["models"][0]
    assert set(model["domains"]) == {"crops", "neuro"}
    for figures in (model["pooled"], model["pair_weighted_mean"], *model["domains"].values()):
        assert set(METRIC_NAMES) < set(figures["metrics"])
        assert set(figures["intervals"]["f1_max"]) == {"low", "high", "replicates"}
        assert "roc_auc" in figures["intervals"]


def test_bad_tables_and_labels_are_refused():
    table = table_of(TWO_SCALES)
    with pytest.raises(InputError, match="no column 'domain'"):
        checked_table(table.drop_columns(["domain"]))
    with pytest.raises(InputError, match="no pairs"):
        checked_table(table.slice(0, 0))
    with pytest.raises(InputError, match="labels must be 0 or 1"):
        checked_table(table_of([(0.1, 2, "d")]))
    empty = table.set_column(0, "anchor", pa.array([None, *["0.1|"] * 7]))
    with pytest.raises(InputError, match="row 0 has no anchor"):
        checked_table(empty)
    with pytest.raises(UsageError, match="two models are called 'given'"):
        evaluate([GivenScores(), GivenScores()], table)
    with pytest.raises(UsageError, match="nothing to evaluate"):
        evaluate([], table)
    with pytest.raises(InputError, match="score nan"):
        evaluate([GivenScores()], table_of([(float("nan"), 1, "d"), (0.1, 0, "d")]))


def test_a_better_model_is_above_with_certainty_and_a_model_is_not_above_itself():
    generator = np.random.default_rng(0)
    table = table_of([(0.5 * label + 0.2 * generator.normal(), label, "d") for label in [0, 1] * 150])

    class Noisy(GivenScores):
        label = "noisy"

        def score(self, anchors, positives, domain):
            return super().score(anchors, positives, domain) + generator.normal(size=len(anchors))

    found = evaluate([GivenScores(), Noisy()], table, replicates=0)
    above = compare(found, "given", "noisy", replicates=200)
    assert set(above) == {"pooled", "pair_weighted_mean", "d"}
    assert above["pooled"]["f1_max"].low > 0
    itself = compare(found, "given", "given", replicates=50)["pooled"]["roc_auc"]
    assert (itself.low, itself.high) == (0, 0)
    with pytest.raises(UsageError, match="no model 'label'; there are given, noisy"):
        compare(found, "given", "label")
