"""Training data of any form: folders, files, tables in memory, or several of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import DatasetDict
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sentence_transformers import SentenceTransformer

from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.storage import read_json, sha256_text
from sentence_experts.tables import to_arrow
from sentence_experts.tasks.dataset import Tasks
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.objectives import (
    Defaults,
    GroupedPairs,
    LinkedPairs,
    Objective,
    TaskPairs,
    codes,
    prompt_of,
)

HELD_OUT_SHARE = 0.1
MAX_HELD_OUT = 1000
SPLITS = ("train", "validation")


@dataclass(frozen=True)
class TablePairs(GroupedPairs):
    """Pairs of tables in memory, a route for each value of their column `route` (or `domain`).

    Pairs that share a text, directly or through other pairs, are of one group.

    Attributes:
        tables: route -> split -> columns anchor, positive, negative, group.
    """

    kind: ClassVar[str] = "route"
    tables: Mapping[str, Mapping[str, pa.Table]]

    @classmethod
    def of(cls, splits: Mapping[str, pa.Table]) -> TablePairs:
        """From one table per split; without a validation split some groups of the train split are held out.

        Raises:
            InputError: a column is missing, or a text.
        """
        tables = {split: _normalised(table) for split, table in splits.items()}
        if "validation" not in tables:
            tables |= _held_out(tables["train"])
        routes = pc.unique(tables["train"]["route"]).to_pylist()
        return cls(
            {
                route: {
                    split: tables[split].filter(pc.equal(tables[split]["route"], route)) for split in SPLITS
                }
                for route in sorted(routes)
            }
        )

    @property
    def names(self) -> list[str]:
        """The routes, sorted."""
        return list(self.tables)

    def sources(self, name: str) -> tuple[str, ...]:
        """The route itself."""
        return (name,)

    def defaults(self, name: str) -> Defaults:
        """Batches of one route, temperature 0.05."""
        return Defaults("homogeneous", 0.05)

    def prompts(self, name: str, model: SentenceTransformer, config: TrainConfig) -> tuple[str, str]:
        """The model's prompt of the route; none for a model without prompts."""
        return (prompt_of(model, name, "the pairs of"),) * 2

    def table(self, name: str, source: str, split: str) -> pa.Table:
        """The pairs of a split."""
        return self.tables[name][split]

    @property
    def where(self) -> str:
        """Nothing but that it is a table."""
        return "the table of pairs"

    def fingerprint(self) -> str:
        """Of all texts."""
        return sha256_text(
            *(
                str(value)
                for splits in self.tables.values()
                for table in splits.values()
                for column in table.columns
                for value in column.to_pylist()
            )
        )

    def describe(self) -> str:
        """That they were given as a table."""
        return f"pairs of a table ({self.fingerprint()[:12]})"


def open_data(data: Any) -> list[Objective]:
    """The objectives of training data.

    Args:
        data: a pairs folder or a tasks folder (or its path), a pandas or polars data frame, an Arrow table, a
            `datasets.Dataset` or `DatasetDict`, or a list of several of them. A table has the columns anchor
            and positive, and if wanted negative, route (or domain) and split (train or validation). One with
            a column label (1 linked, 0 not) and a validation split holds linked pairs.

    Raises:
        InputError: there is no such folder, or a table lacks a column.
        UsageError: data of an unknown form, or two parts with routes of the same name.
    """
    parts = list(data) if isinstance(data, list | tuple) else [data]
    objectives = [_objective(part) for part in parts]
    if not objectives:
        raise UsageError("no training data: give pairs, tasks or both")
    seen: set[str] = set()
    for objective in objectives:
        if twice := sorted(seen.intersection(objective.names)):
            raise UsageError(f"{', '.join(twice)}: a route of two parts of the training data; rename one")
        seen.update(objective.names)
    return objectives


def _objective(data: Any) -> Objective:
    if isinstance(data, Objective):
        return data
    if isinstance(data, str | Path):
        return _of_folder(Path(data))
    if isinstance(data, Pairs):
        return LinkedPairs(data)
    if isinstance(data, Tasks):
        return TaskPairs(data)
    tables = _splits(data)
    if "validation" in tables and all("label" in table.column_names for table in tables.values()):
        return LinkedPairs(Pairs.from_tables(**tables))
    return TablePairs.of(tables)


def _of_folder(path: Path) -> Objective:
    manifest = path / "manifest.json"
    kind = read_json(manifest).get("kind") if manifest.is_file() else None
    return TaskPairs(Tasks.open(path)) if kind == "tasks" else LinkedPairs(Pairs.open(path))


def _splits(data: Any) -> dict[str, pa.Table]:
    """The tables of train and, if there is one, validation."""
    if isinstance(data, DatasetDict):
        tables = {split: to_arrow(data[split]) for split in data if split in SPLITS}
    else:
        table = to_arrow(data)
        tables = {"train": table}
        if "split" in table.column_names:
            found = {split: table.filter(pc.equal(table["split"], split)) for split in SPLITS}
            tables = {split: rows for split, rows in found.items() if rows.num_rows}
    if "train" not in tables:
        raise InputError("the pairs have no train split")
    return tables


def _normalised(table: pa.Table) -> pa.Table:
    for name in ("anchor", "positive"):
        if name not in table.column_names:
            raise InputError(
                f"training pairs: column {name!r} is missing, found {', '.join(table.column_names)}"
            )
        if table[name].null_count:
            raise InputError(
                f"training pairs: column {name!r} has {table[name].null_count} rows without a text"
            )
    columns = {name: table[name].cast(pa.string()) for name in ("anchor", "positive")}
    rows = table.num_rows
    has_negative = "negative" in table.column_names
    columns["negative"] = table["negative"].cast(pa.string()) if has_negative else pa.nulls(rows, pa.string())
    route = next((name for name in ("route", "domain") if name in table.column_names), None)
    columns["route"] = table[route].cast(pa.string()) if route else pa.array(["pairs"] * rows, pa.string())
    columns["group"] = pa.array(_groups(columns["anchor"], columns["positive"]))
    return pa.table(columns)


def _groups(anchors: pa.ChunkedArray, positives: pa.ChunkedArray) -> np.ndarray:
    """The connected component of each pair, where pairs are joined by a common text."""
    texts = codes(pa.chunked_array([*anchors.chunks, *positives.chunks], pa.string()))
    ends = texts.reshape(2, -1)
    count = int(texts.max(initial=-1)) + 1
    graph = coo_array((np.ones(ends.shape[1], dtype=np.int8), tuple(ends)), (count, count))
    components = connected_components(graph, directed=False)[1]
    found: np.ndarray = components[ends[0]]
    return found


def _held_out(train: pa.Table) -> dict[str, pa.Table]:
    """A train and a validation split of whole groups."""
    groups = np.unique(train["group"].to_numpy())
    count = min(MAX_HELD_OUT, max(1, round(HELD_OUT_SHARE * len(groups))))
    chosen = np.random.default_rng(0).permutation(groups)[:count]
    held = pa.array(np.isin(train["group"].to_numpy(), chosen))
    return {"train": train.filter(pc.invert(held)), "validation": train.filter(held)}
