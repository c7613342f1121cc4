"""`evaluate_scores`: metrics of scores that were computed elsewhere."""

from __future__ import annotations

import logging

import pandas as pd
import pytest

from sentence_experts import evaluate_scores
from sentence_experts.evaluation.metrics import pair_metrics


def test_scores_of_a_table() -> None:
    table = pd.DataFrame({"prediction": [0.9, 0.25, 0.5, 0.6], "label": [1, 0, 1, 0]})
    found = evaluate_scores(table)
    assert found.metrics == pair_metrics(table["prediction"], table["label"])
    assert found.to_pandas().iloc[0].to_dict() == {"pairs": 4, "positives": 2, **found.metrics}
    assert "4 pairs, 2 of them linked" in repr(found)


def test_linked_pairs_alone_get_a_note_on_the_threshold(caplog: pytest.LogCaptureFixture) -> None:
    table = pd.DataFrame({"prediction": [0.9, 0.2], "label": [1, 1]})
    with caplog.at_level(logging.INFO, "sentence_experts"):
        assert evaluate_scores(table).metrics["f1_max"] == 1
        assert "`threshold_min=0.5`" in caplog.text
        caplog.clear()
        assert evaluate_scores(table, threshold_min=0.5).metrics["threshold"] == 0.9
    assert not caplog.text
