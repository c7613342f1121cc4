"""Training data of any form: folders, tables, or several of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.tasks.dataset import Tasks, open_dataset
from sentence_experts.training.objectives import LinkedPairs, Objective, TaskPairs, groups_of

HELD_OUT_SHARE = 0.1
MAX_HELD_OUT = 1000


def open_data(data: Any) -> list[Objective]:
    """The objectives of training data.

    Args:
        data: tasks or their folder, pairs of any form (`Pairs.of`), or a list of several of them. If a table
            of pairs has no validation split, a tenth of its groups of pairs is held out.

    Raises:
        InputError: there is no such folder, or a table lacks a column.
        UsageError: no data, or two parts with routes of the same name.
    """
    rows = isinstance(data, list | tuple) and data and all(isinstance(row, Mapping) for row in data)
    parts = data if isinstance(data, list | tuple) and not rows else [] if data is None else [data]
    objectives = [_objective(part) for part in parts]
    if not objectives:
        raise UsageError("no training data: give pairs, tasks or both")
    names = [route.name for objective in objectives for route in objective.routes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"{', '.join(twice)}: a route of two parts of the training data; rename one")
    return objectives


def _objective(data: Any) -> Objective:
    if isinstance(data, Objective):
        return data
    dataset = open_dataset(data)
    if isinstance(dataset, Tasks):
        return TaskPairs(dataset)
    if dataset.path is not None or dataset is data:
        return LinkedPairs(dataset)
    if not dataset.split("train").num_rows:
        raise InputError("the pairs have no train split")
    return LinkedPairs(dataset if dataset.split("validation").num_rows else _held_out(dataset.split("train")))


def _held_out(pairs: pa.Table) -> Pairs:
    """A train and a validation split of whole groups."""
    groups = groups_of(pairs)
    distinct = np.unique(groups)
    count = min(MAX_HELD_OUT, max(1, round(HELD_OUT_SHARE * len(distinct))))
    held_out = pa.array(np.isin(groups, np.random.default_rng(0).permutation(distinct)[:count]))
    return Pairs.from_tables(train=pairs.filter(pc.invert(held_out)), validation=pairs.filter(held_out))
