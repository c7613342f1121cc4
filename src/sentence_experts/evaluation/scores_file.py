"""Scores that were computed elsewhere: a CSV with the columns `prediction` and `label`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
from numpy.typing import NDArray

from sentence_experts.errors import InputError
from sentence_experts.evaluation.metrics import checked_pairs

COLUMNS = ("prediction", "label")


def read_scores(path: Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Scores and labels, each of shape (rows,); further columns are ignored, `.gz` is unpacked.

    Raises:
        InputError: no such file, not a CSV, a column is missing or not of numbers, or bad values
            (`metrics.checked_pairs`).
    """
    types = {column: pa.float64() for column in COLUMNS}
    try:
        table = csv.read_csv(path, convert_options=csv.ConvertOptions(column_types=types))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: not a CSV of numbers: {error}") from error
    for column in COLUMNS:
        if table.column_names.count(column) != 1:
            found = ", ".join(map(repr, table.column_names))
            raise InputError(f"{path}: one column must be called {column!r}; columns are {found}")
        if table[column].null_count:
            row = table[column].to_pylist().index(None)
            raise InputError(f"{path}: row {row + 1} has no {column}")
    try:
        return checked_pairs(table["prediction"].to_numpy(), table["label"].to_numpy())
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
