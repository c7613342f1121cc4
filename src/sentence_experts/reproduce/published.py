"""The figures that a paper printed, as data: the same schema for all papers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sentence_experts.config import SettingError, unknown_setting
from sentence_experts.errors import InputError
from sentence_experts.yaml_files import read_settings

Model = TypeVar("Model", bound=BaseModel)


class Strict(BaseModel):
    """A part of a file: an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def checked(model: type[Model], values: Mapping[str, Any], path: Path, inside: str = "") -> Model:
    """`values` as `model`; an error names the file and the key, which stands under `inside`.

    Raises:
        InputError: an unknown key, a value that is not allowed, or values that contradict each other.
    """
    try:
        return model.model_validate(dict(values))
    except SettingError as error:
        key = ".".join(part for part in (inside, error.name) if part)
        raise InputError(f"{path}: {f'{key}: ' if key else ''}{error.reason}") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in (*([inside] if inside else []), *first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            known = model.model_fields if len(first["loc"]) == 1 else ()
            message = unknown_setting(str(first["loc"][-1]), known)
        elif first["loc"]:
            message = f"{message} (got {first['input']!r})"
        raise InputError(f"{path}: {f'{key}: ' if key else ''}{message}") from error


AVERAGES = ("average", "mean")
ALL_DOMAINS = "all"


@dataclass(frozen=True)
class PublishedFigure:
    """One published figure and where it stands: a printed number, or a bar of a chart.

    Attributes:
        table, row, column: its place in the paper.
        group: what several columns have in common: a set of pairs, or a type of task; else "".
        metric: what was measured, such as "f1_max" or "nDCG@10".
        value: absolute: a gain is added to the figure that it is a gain over. None of a bar.
        printed: as it stands in the paper; None of a bar.
        gain: whether it is printed as a gain.
        decimals: number of printed decimals.
        domain, model, prompt: what the whole table is of, if it is of one.
        highest: of a bar, whether the paper's text says that it is the highest of its row.
    """

    table: str
    row: str
    column: str
    group: str
    metric: str
    value: float | None
    printed: float | None
    gain: bool
    decimals: int
    domain: str | None = None
    model: str | None = None
    prompt: str | None = None
    highest: bool = False

    @property
    def block(self) -> tuple[str, str | None, str | None]:
        """The figures of one block are printed as one table."""
        return self.table, self.domain, self.prompt


class PublishedTable(Strict):
    """A table, or a part of one: a figure per row and column."""

    table: str | dict[str, str] = Field(description="name, or the name per group of columns")
    domain: str | None = Field(None, description="the domain of all figures, or 'all'")
    model: str | None = None
    prompt: str | None = None
    columns: tuple[str, ...] | dict[str, tuple[str, ...]] = Field(
        description="names in printed order, or group (a set of pairs, a type of task) -> names"
    )
    rows: dict[str, tuple[float, ...]]
    gains_over: str | None = Field(None, description="the column that the others are gains over")
    decimals: int = 4
    named_by_us: tuple[str, ...] = Field((), description="rows that the paper prints without their full name")

    @model_validator(mode="after")
    def _rows_fill_columns(self) -> PublishedTable:
        order = self.order()
        for row, values in self.rows.items():
            if len(values) != len(order):
                raise ValueError(f"row {row} has {len(values)} figures for {len(order)} columns")
        names = [name for _, name in order]
        if self.gains_over is not None and self.gains_over not in names:
            raise ValueError(f"gains_over: {self.gains_over!r} is none of {', '.join(names)}")
        return self

    def order(self) -> list[tuple[str, str]]:
        """(group, name) of each column."""
        if isinstance(self.columns, dict):
            return [(group, name) for group, names in self.columns.items() for name in names]
        return [("", name) for name in self.columns]

    def name_of(self, group: str) -> str:
        """The name of the printed table that has this group of columns."""
        return self.table if isinstance(self.table, str) else self.table[group]

    def absolute(self, row: str, column: str) -> float:
        """A figure; a gain is added to what it is over."""
        names = [name for _, name in self.order()]
        values = self.rows[row]
        value = values[names.index(column)]
        if self.gains_over in (None, column):
            return value
        return values[names.index(str(self.gains_over))] + value


class PublishedDrawing(Strict):
    """A chart whose values the paper does not print: what its text says about them.

    Attributes:
        figure: its name.
        columns: what it compares.
        highest: row that the text speaks of -> the column that it says is the highest there.
        decimals: with which ours are printed.
    """

    figure: str
    columns: tuple[str, ...]
    highest: dict[str, str]
    decimals: int = 2

    @model_validator(mode="after")
    def _columns_are_known(self) -> PublishedDrawing:
        if unknown := sorted({*self.highest.values()} - {*self.columns}):
            raise ValueError(f"highest: {unknown[0]!r} is none of {', '.join(self.columns)}")
        return self

    def figures(self) -> Iterator[PublishedFigure]:
        """A figure without a number for each row and column."""
        for row, highest in self.highest.items():
            for column in self.columns:
                yield PublishedFigure(
                    table=self.figure,
                    row=row,
                    column=column,
                    group="",
                    metric="",
                    value=None,
                    printed=None,
                    gain=False,
                    decimals=self.decimals,
                    highest=column == highest,
                )


class PublishedCase(Strict):
    """A pair of texts that a paper prints because one part of its model is right about it: "hs" or "rw"."""

    right: str
    first: str
    second: str


class PublishedTask(Strict):
    """A type of task of a benchmark.

    Attributes:
        datasets: their names or number; an average over all datasets weighs the types by it.
        read_as: for a type that no model was trained on, the type whose instruction its texts get.
    """

    metric: str
    datasets: int | tuple[str, ...]
    read_as: str | None = None


class PublishedModel(Strict):
    """A model that a paper lists: hub id, parameters in millions."""

    hub: str
    parameters: int | None = None
    active: int | None = None


class DomainSizes(Strict):
    """Number of abstracts and pairs of a domain."""

    abstracts: int
    training_pairs: int
    evaluation_pairs: int


class MeansOfDomains(Strict):
    """Which figures for all domains are means of the domains' figures, not figures of all pairs together."""

    rows: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()


class Published(Strict):
    """All that is recorded of one paper's results. `notes` names its errors and what was inferred."""

    paper: str
    notes: tuple[str, ...] = ()
    tables: tuple[PublishedTable, ...]
    drawings: tuple[PublishedDrawing, ...] = ()
    cases: tuple[PublishedCase, ...] = ()
    tasks: dict[str, PublishedTask] = Field(default_factory=dict)
    models: dict[str, PublishedModel] = Field(default_factory=dict)
    sizes: dict[str, DomainSizes] = Field(default_factory=dict)
    means_of_domains: MeansOfDomains = MeansOfDomains()

    @model_validator(mode="after")
    def _tasks_are_known(self) -> Published:
        known = {*self.tasks, *AVERAGES}
        for table in self.tables if self.tasks else ():
            groups = {group or name for group, name in table.order()}
            if not (groups <= known or set(table.rows) <= known):
                unknown = next(row for row in table.rows if row not in known)
                raise ValueError(f"{table.table}: {unknown!r} is none of the tasks")
        return self

    @classmethod
    def read(cls, path: Path) -> Published:
        """Read a `published.yaml`.

        Raises:
            InputError: no such file, or a key or value that does not belong there.
        """
        return checked(cls, read_settings(path), path)

    def table(self, name: str) -> PublishedTable:
        """The table of this name."""
        return next(table for table in self.tables if table.table == name)

    def columns(self) -> dict[str, set[str]]:
        """Name of a table or drawing -> its columns."""
        tables = {str(table.table): {name for _, name in table.order()} for table in self.tables}
        return tables | {drawing.figure: set(drawing.columns) for drawing in self.drawings}

    def averaged(self, name: str) -> list[str]:
        """The tasks that an average in a table is over; in a drawing all tasks."""
        is_drawing = any(drawing.figure == name for drawing in self.drawings)
        rows = self.tasks if is_drawing else self.table(name).rows
        return [task for task in rows if task not in AVERAGES]

    def figures(self) -> Iterator[PublishedFigure]:
        """Every printed figure of every table, then those of the drawings."""
        for table in self.tables:
            for row, values in table.rows.items():
                for (group, column), printed in zip(table.order(), values, strict=True):
                    yield PublishedFigure(
                        table=table.name_of(group),
                        row=row,
                        column=column,
                        group=group,
                        metric=self._metric(row, group, column),
                        value=printed if table.gains_over is None else table.absolute(row, column),
                        printed=printed,
                        gain=table.gains_over not in (None, column),
                        decimals=table.decimals,
                        domain=table.domain,
                        model=table.model,
                        prompt=table.prompt,
                    )
        for drawing in self.drawings:
            for figure in drawing.figures():
                yield replace(figure, metric=self._metric(figure.row, "", figure.column))

    def _metric(self, row: str, group: str, column: str) -> str:
        if not self.tasks:
            return column
        task = next((name for name in (row, group, column) if name in self.tasks), None)
        return "average" if task is None else self.tasks[task].metric
