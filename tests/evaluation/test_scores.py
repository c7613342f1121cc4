"""`evaluate_scores`: metrics of scores that were computed elsewhere."""

from __future__ import annotations

import logging
from pathlib import Path

import pandas as pd
import pytest

from sentence_experts import evaluate_scores
from sentence_experts.errors import InputError
from sentence_experts.evaluation.metrics import pair_metrics


def test_scores_of_a_table() -> None:
    table = pd.DataFrame({"prediction": [0.9, 0.25, 0.5, 0.6], "label": [1, 0, 1, 0]})
    found = evaluate_scores(table)
    assert found.metrics == pair_metrics(table["prediction"], table["label"])
    assert found.to_pandas().iloc[0].to_dict() == {"pairs": 4, "positives": 2, **found.metrics}


def test_linked_pairs_alone_get_a_note_on_the_threshold(caplog: pytest.LogCaptureFixture) -> None:
    table = pd.DataFrame({"prediction": [0.9, 0.2], "label": [1, 1]})
    with caplog.at_level(logging.INFO, "sentence_experts"):
        assert evaluate_scores(table).metrics["f1_max"] == 1
        assert "`threshold_min=0.5`" in caplog.text
        caplog.clear()
        assert evaluate_scores(table, threshold_min=0.5).metrics["threshold"] == 0.9
    assert not caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("score,label\n0.1,1\n", "lacks the column prediction; it has: score, label"),
        ("prediction,label\n0.1,2\n", "label 2 is not 0 or 1"),
        ("prediction,label\n,1\n", "row 1 has no prediction"),
        ("prediction,label\nmuch,1\n", "much"),
        ("prediction,label\n", "no pairs"),
        (None, "no such file"),
    ],
)
def test_bad_file_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "scores.csv"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InputError, match=f"scores.csv.*{message}"):
        evaluate_scores(file)
