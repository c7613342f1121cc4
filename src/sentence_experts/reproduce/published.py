"""The figures that a paper printed, as data: the same schema for all papers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, model_validator

from sentence_experts.config import check_content
from sentence_experts.yaml_files import read_settings

AVERAGES = ("average", "mean")
ALL_DOMAINS = "all"


@dataclass(frozen=True)
class PublishedFigure:
    """One published figure and its place: a printed number, or a bar of a chart."""

    table: str
    row: str
    column: str
    group: str  # group of several columns: a set of pairs, or a type of task; else ""
    metric: str
    value: float | None  # absolute: a gain is added to the figure that it is a gain over; None for a bar
    printed: float | None  # the value as it stands in the paper; None for a bar
    gain: bool
    decimals: int
    domain: str | None = None  # this and the next two hold for the whole table, if at all
    model: str | None = None
    prompt: str | None = None
    highest: bool = False  # whether the paper's text says that a bar is the highest of its row


class PublishedTable(BaseModel, extra="forbid", frozen=True):
    """A table, or a part of one: a figure per row and column. A chart that is only drawn has no rows."""

    table: str | dict[str, str]  # name, or name per group of columns
    domain: str | None = None  # domain of all figures; or "all"
    model: str | None = None
    prompt: str | None = None
    columns: tuple[str, ...] | dict[str, tuple[str, ...]]  # names, or group -> names
    rows: dict[str, tuple[float, ...]] = {}
    gains_over: str | None = None  # the column that the others are gains over
    highest: dict[str, str] = {}  # row of a chart -> its highest column by the paper's text
    decimals: int = 4

    @model_validator(mode="after")
    def _rows_fill_columns(self) -> Self:
        for row, values in self.rows.items():
            if len(values) != len(self.order()):
                raise ValueError(f"row {row} has {len(values)} figures for {len(self.order())} columns")
        return self

    def order(self) -> list[tuple[str, str]]:
        """Return (group, name) for each column."""
        groups = self.columns if isinstance(self.columns, dict) else {"": self.columns}
        return [(group, name) for group, names in groups.items() for name in names]


class PublishedTask(BaseModel, extra="forbid", frozen=True):
    """A type of task of a benchmark."""

    metric: str
    datasets: int | tuple[str, ...]  # names or number; an average over all datasets weighs the types by it
    read_as: str | None = None  # the type whose instruction the texts of an untrained type get


class Published(BaseModel, extra="forbid", frozen=True):
    """The results of one paper."""

    paper: str
    notes: tuple[str, ...] = ()  # errors in the paper, and what was inferred
    tables: tuple[PublishedTable, ...]
    tasks: dict[str, PublishedTask] = {}
    models: dict[str, dict[str, Any]] = {}  # name -> hub id (`hub`) and numbers of parameters
    sizes: dict[str, dict[str, int]] = {}  # domain -> numbers of abstracts and pairs
    # `rows` and `metrics` of the figures for all domains that are means of the domains' figures.
    means_of_domains: dict[str, tuple[str, ...]] = {"rows": (), "metrics": ()}

    @classmethod
    def read(cls, path: Path) -> Published:
        """Read a `published.yaml`; InputError if it cannot be read."""
        return check_content(cls, read_settings(path), path)

    def figures(self) -> Iterator[PublishedFigure]:
        """Return every figure of every table."""
        for table in self.tables:
            drawn = dict.fromkeys(table.highest, (None,) * len(table.order()))
            for row, values in {**table.rows, **drawn}.items():
                names = [name for _, name in table.order()]
                base = values[names.index(table.gains_over)] if table.gains_over else None
                for (group, column), printed in zip(table.order(), values, strict=True):
                    task = next((name for name in (row, group, column) if name in self.tasks), None)
                    gain = table.gains_over not in (None, column)
                    yield PublishedFigure(
                        table=table.table if isinstance(table.table, str) else table.table[group],
                        row=row,
                        column=column,
                        group=group,
                        metric=self.tasks[task].metric if task else "average" if self.tasks else column,
                        value=printed if printed is None else (base or 0.0) * gain + printed,
                        printed=printed,
                        gain=gain,
                        decimals=table.decimals,
                        domain=table.domain,
                        model=table.model,
                        prompt=table.prompt,
                        highest=table.highest.get(row) == column,
                    )
