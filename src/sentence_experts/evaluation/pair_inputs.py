"""Labelled pairs of any form: a folder, a table file, tables in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sentence_experts.errors import InputError
from sentence_experts.evaluation.metrics import checked_pairs
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.splits import NOT_WORDS, SPLITS
from sentence_experts.tables import Table, is_path, name_of_table, read_columns, read_table, to_arrow

TEXTS = ("anchor", "positive")
OTHER_NAMES = {"val": "validation", "valid": "validation", "dev": "validation"}


def open_pairs(data: Any, split: str | None = None) -> Pairs:
    """Pairs of any form.

    Tables have the columns anchor, positive and label (which training pairs may lack: 1), and domain,
    anchor_id and positive_id if there are any. The default id of a text is the text itself without case,
    punctuation and white space.

    Args:
        data: a `Pairs`; a folder written by `compile_pairs`; the file of a table, or a table (pandas, polars,
            Arrow, `datasets.Dataset`); or a mapping from split to one of these.
        split: the split of a table without a column `split`.

    Raises:
        InputError: a file cannot be read, or a column or a value is missing.
    """
    if isinstance(data, Pairs):
        return data
    if is_path(data) and (Path(data).is_dir() or not Path(data).suffix):
        return Pairs.open(data)
    if isinstance(data, Mapping):
        tables = {name: _table(each) for name, each in data.items()}
    else:
        table = _table(data)
        tables = (
            _by_split(table, name_of_table(data))
            if split is None or "split" in table.column_names
            else {split: table}
        )
    return Pairs.from_tables(**{name: _completed(table, name) for name, table in tables.items()})


def read_scores(source: Table) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Scores that were computed elsewhere: the columns `prediction` and `label` of a table, each (rows,).

    Raises:
        InputError: no such file, a column is missing or not of numbers, or bad values
            (`metrics.checked_pairs`).
    """
    table = read_table(source, ("prediction", "label"))
    where = name_of_table(source)
    for name in table.column_names:
        if table[name].null_count:
            raise InputError(f"{where}: row {table[name].to_pylist().index(None) + 1} has no {name}")
    try:
        return checked_pairs(*(table[name].cast(pa.float64()).to_numpy() for name in table.column_names))
    except (InputError, pa.ArrowException) as error:
        raise InputError(f"{where}: {error}") from error


def fold_texts(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """The texts without case, punctuation and white space."""
    return pc.utf8_trim_whitespace(pc.replace_substring_regex(pc.utf8_lower(texts), NOT_WORDS, " "))


def _table(data: Any) -> pa.Table:
    return read_table(data, read_columns(data)) if is_path(data) else to_arrow(data)


def _by_split(table: pa.Table, where: str) -> dict[str, pa.Table]:
    if "split" not in table.column_names:
        raise InputError(f"{where}: no column 'split'; columns are {', '.join(table.column_names)}")
    names = [OTHER_NAMES.get(name, name) for name in table["split"].to_pylist()]
    if unknown := [name for name in dict.fromkeys(names) if name not in SPLITS]:
        raise InputError(f"{where}: split {unknown[0]!r} is none of {', '.join(SPLITS)}")
    column = pa.array(names, pa.string())
    return {split: table.filter(pc.equal(column, split)) for split in SPLITS if split in names}


def _completed(table: pa.Table, split: str) -> pa.Table:
    """The table with ids of its texts."""
    if split != "train" and "label" not in table.column_names:
        raise InputError(f"{split}: no column 'label'; columns are {', '.join(table.column_names)}")
    for name in TEXTS:
        if name in table.column_names and f"{name}_id" not in table.column_names:
            table = table.append_column(f"{name}_id", fold_texts(table[name].cast(pa.string())))
    return table
