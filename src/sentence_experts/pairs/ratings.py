"""Columns of users' tables that rate pairs, which are neither linked nor not."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sentence_experts.errors import InputError

logger = logging.getLogger(__name__)
_RATING = re.compile(r"scor|rat(e|ing)|simil|relate|relevan|gold|grade|stars", re.IGNORECASE)


def check_labels(name: str, table: pa.Table) -> None:
    """Refuse rated pairs: a rating is neither linked nor not.

    Raises:
        InputError: the column `label`, or `score` without one, holds something else than 0 and 1.
    """
    columns = [column for column in ("label", "score") if column in table.column_names]
    if not columns:
        return
    try:
        values = pc.cast(table[columns[0]], pa.float64())
    except pa.ArrowException:
        first = next(value for value in table[columns[0]].to_pylist() if not _is_number(value))
        raise InputError(
            f"{name}: the column {columns[0]} holds {first!r}; a label is 1 (linked) or 0"
        ) from None
    if columns[0] == "score" or not pc.all(pc.is_in(pc.drop_null(values), pa.array([0.0, 1.0]))).as_py():
        low, high = pc.min(values).as_py(), pc.max(values).as_py()
        raise InputError(
            f"{name}: the column {columns[0]} holds ratings from {low:g} to {high:g}, not labels 0 and 1; "
            "rated pairs are evaluated as a task of the kind sts (`compile_tasks`), not trained on"
        )


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return value is None
    return True


def warn_of_ratings(name: str, table: pa.Table, ignored: Iterable[str]) -> None:
    """Warn of a column that is not read and seems to rate the pairs: all of them would count as linked."""
    for column in ignored:
        if not _RATING.search(column):
            continue
        try:
            values = pc.drop_null(pc.cast(table[column], pa.float64()))
        except pa.ArrowException:
            continue
        if len(values) and pc.count_distinct(values).as_py() > 1:
            low, high = pc.min(values).as_py(), pc.max(values).as_py()
            logger.warning(
                f"{name}: the column {column} ({low:g} to {high:g}) is not read: every row counts as linked. "
                "If it rates how similar the texts are, evaluate the file as a task of the kind sts "
                "(`compile_tasks`); if it is 1 for linked and 0 for not, rename it to label"
            )
