"""Training data of any form: folders, tables in memory, or several of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import DatasetDict

from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.storage import read_json
from sentence_experts.tables import to_arrow
from sentence_experts.tasks.dataset import Tasks
from sentence_experts.training.objectives import LinkedPairs, Objective, TaskPairs, groups_of

HELD_OUT_SHARE = 0.1
MAX_HELD_OUT = 1000
SPLITS = ("train", "validation")


def open_data(data: Any) -> list[Objective]:
    """The objectives of training data.

    Args:
        data: a pairs folder or a tasks folder (or its path), a pandas or polars data frame, an Arrow table, a
            `datasets.Dataset` or `DatasetDict`, or a list of several of them. A table has the columns anchor
            and positive, and if wanted route (or domain), split (train or validation) and label (1 linked,
            0 not). Without a validation split a tenth of its groups of pairs is held out.

    Raises:
        InputError: there is no such folder, or a table lacks a column.
        UsageError: no data, or two parts with routes of the same name.
    """
    objectives = [_objective(part) for part in (data if isinstance(data, list | tuple) else [data])]
    if not objectives:
        raise UsageError("no training data: give pairs, tasks or both")
    names = [route.name for objective in objectives for route in objective.routes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"{', '.join(twice)}: a route of two parts of the training data; rename one")
    return objectives


def _objective(data: Any) -> Objective:
    if isinstance(data, str | Path):
        manifest = Path(data) / "manifest.json"
        kind = read_json(manifest).get("kind") if manifest.is_file() else None
        data = Tasks.open(data) if kind == "tasks" else Pairs.open(data)
    if isinstance(data, Tasks):
        return TaskPairs(data)
    if isinstance(data, Objective):
        return data
    return LinkedPairs(data if isinstance(data, Pairs) else Pairs.from_tables(**_splits(data)))


def _splits(data: Any) -> dict[str, pa.Table]:
    """Train and validation pairs of a table in memory."""
    if isinstance(data, DatasetDict):
        tables = {split: _with_domain(to_arrow(data[split])) for split in data if split in SPLITS}
    else:
        table = _with_domain(to_arrow(data))
        tables = {"train": table}
        if "split" in table.column_names:
            tables = {split: table.filter(pc.equal(table["split"], split)) for split in SPLITS}
    if "train" not in tables or not tables["train"].num_rows:
        raise InputError("the pairs have no train split")
    validation = tables.get("validation")
    return tables if validation is not None and validation.num_rows else _held_out(tables["train"])


def _with_domain(table: pa.Table) -> pa.Table:
    names = ["domain" if name == "route" else name for name in table.column_names]
    return table.rename_columns(names)


def _held_out(pairs: pa.Table) -> dict[str, pa.Table]:
    """A train and a validation split of whole groups."""
    if not {"anchor", "positive"} <= set(pairs.column_names):
        return {"train": pairs}  # `Pairs.from_tables` says what is missing
    groups = groups_of(pairs)
    distinct = np.unique(groups)
    count = min(MAX_HELD_OUT, max(1, round(HELD_OUT_SHARE * len(distinct))))
    held = pa.array(np.isin(groups, np.random.default_rng(0).permutation(distinct)[:count]))
    return {"train": pairs.filter(pc.invert(held)), "validation": pairs.filter(held)}
