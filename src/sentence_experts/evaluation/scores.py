"""The metrics of scores that were computed elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sentence_experts.config import with_settings
from sentence_experts.errors import InputError
from sentence_experts.evaluation.config import EvaluateConfig
from sentence_experts.evaluation.metrics import checked_pairs, pair_metrics
from sentence_experts.evaluation.results import Result
from sentence_experts.tables import Table, name_of_table, read_table

logger = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class ScoresEvaluation(Result):
    """The metrics of a table of scores.

    Attributes:
        metrics: the eight of `metrics.METRIC_NAMES`; None where undefined.
        pairs, positives: number of pairs, and of those that are linked.
    """

    metrics: Mapping[str, float | None]
    pairs: int
    positives: int

    def rows(self) -> list[dict[str, Any]]:
        """Return one row: counts and metrics."""
        return [{"pairs": self.pairs, "positives": self.positives, **self.metrics}]


@with_settings(EvaluateConfig)
def evaluate_scores(table: Table, config: EvaluateConfig | None = None, **settings: Any) -> ScoresEvaluation:
    """Measure scores that were computed elsewhere.

    Args:
        table: a file or table with the columns `prediction` and `label` (0 or 1).
        config, settings: an `EvaluateConfig`, or single fields of it; only `threshold_min` matters.

    Raises:
        InputError: no such file, a column is missing or not of numbers, or bad values.

    Example:
        >>> import pandas as pd
        >>> scores = pd.DataFrame({"prediction": [0.9, 0.2], "label": [1, 0]})
        >>> evaluate_scores(scores).metrics["f1_max"]
        1.0
    """
    chosen = EvaluateConfig.of(config, **settings)
    columns, where = read_table(table, ("prediction", "label")), name_of_table(table)
    for name in columns.column_names:
        if columns[name].null_count:
            raise InputError(f"{where}: row {columns[name].to_pylist().index(None) + 1} has no {name}")
    try:
        numbers = (columns[name].cast(pa.float64()).to_numpy() for name in columns.column_names)
        scores, labels = checked_pairs(*numbers)
    except (InputError, pa.ArrowException) as error:
        raise InputError(f"{where}: {error}") from error
    if chosen.threshold_min is None and labels.all():
        logger.info("all labels are 1: the lowest score is a trivial best threshold; see `threshold_min=0.5`")
    metrics = pair_metrics(scores, labels, chosen.threshold_min)
    return ScoresEvaluation(metrics, len(labels), int(labels.sum()))
