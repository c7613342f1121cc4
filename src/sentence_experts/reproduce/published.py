"""The figures that a paper printed, as data: the same schema for all papers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sentence_experts.config import SettingError, unknown_setting
from sentence_experts.errors import InputError
from sentence_experts.yaml_files import read_settings

Model = TypeVar("Model", bound=BaseModel)
AVERAGES = ("average", "mean")
ALL_DOMAINS = "all"


class Strict(BaseModel):
    """A part of a file: an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def checked(model: type[Model], values: Mapping[str, Any], path: Path, inside: str = "") -> Model:
    """Return `values` as `model`; an error names the file and the key, which stands under `inside`.

    Raises:
        InputError: an unknown key, a value that is not allowed, or values that contradict each other.
    """
    try:
        return model.model_validate(dict(values))
    except SettingError as error:
        place, message = [inside, error.name], error.reason
        cause: Exception = error
    except ValidationError as error:
        first, cause = error.errors()[0], error
        place = [inside, *map(str, first["loc"])]
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            known = model.model_fields if len(first["loc"]) == 1 else ()
            message = unknown_setting(str(first["loc"][-1]), known)
        elif first["loc"]:
            message = f"{message} (got {first['input']!r})"
    key = ".".join(filter(None, place))
    raise InputError(f"{path}: {f'{key}: ' if key else ''}{message}") from cause


@dataclass(frozen=True)
class PublishedFigure:
    """One published figure and its place: a printed number, or a bar of a chart.

    Attributes:
        table, row, column: its place in the paper.
        group: shared by several columns: a set of pairs, or a type of task; else "".
        metric: such as "f1_max" or "nDCG@10".
        value: absolute: a gain is added to the figure that it is a gain over. None for a bar.
        printed: as it stands in the paper; None for a bar.
        gain: whether it is printed as a gain.
        decimals: number of printed decimals.
        domain, model, prompt: those of the whole table, if it has one.
        highest: for a bar, whether the paper's text says that it is the highest of its row.
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
        """The table that the figure is shown in."""
        return self.table, self.domain, self.prompt


class PublishedTable(Strict):
    """A table, or a part of one: a figure per row and column. A chart that is only drawn has no rows."""

    table: str | dict[str, str] = Field(description="name, or the name per group of columns")
    domain: str | None = Field(None, description="the domain of all figures, or 'all'")
    model: str | None = None
    prompt: str | None = None
    columns: tuple[str, ...] | dict[str, tuple[str, ...]] = Field(
        description="names in printed order, or group (a set of pairs, a type of task) -> names"
    )
    rows: dict[str, tuple[float, ...]] = {}
    gains_over: str | None = Field(None, description="the column that the others are gains over")
    highest: dict[str, str] = Field({}, description="chart: row -> its highest column by the paper's text")
    decimals: int = 4

    @model_validator(mode="after")
    def _rows_fill_columns(self) -> PublishedTable:
        order = self.order()
        for row, values in self.rows.items():
            if len(values) != len(order):
                raise ValueError(f"row {row} has {len(values)} figures for {len(order)} columns")
        names = [name for _, name in order]
        named = {"gains_over": self.gains_over, **{f"highest: {row}": at for row, at in self.highest.items()}}
        for key, name in named.items():
            if name is not None and name not in names:
                raise ValueError(f"{key}: {name!r} is none of {', '.join(names)}")
        return self

    def order(self) -> list[tuple[str, str]]:
        """Return (group, name) for each column."""
        if isinstance(self.columns, dict):
            return [(group, name) for group, names in self.columns.items() for name in names]
        return [("", name) for name in self.columns]

    def absolute(self, row: str, column: str) -> float:
        """Return a figure; a gain is added to the one that it is a gain over."""
        figures = {name: value for (_, name), value in zip(self.order(), self.rows[row], strict=True)}
        over = 0.0 if self.gains_over in (None, column) else figures[str(self.gains_over)]
        return over + figures[column]


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
    """The figures for all domains that are means of the domains' figures, not figures of all pairs."""

    rows: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()


class Published(Strict):
    """The results of one paper. `notes` names its errors and what was inferred."""

    paper: str
    notes: tuple[str, ...] = ()
    tables: tuple[PublishedTable, ...]
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
        """Return the table of this name."""
        return next(table for table in self.tables if table.table == name)

    def columns(self) -> dict[str, set[str]]:
        """Return the columns of each table by its name."""
        return {str(table.table): {name for _, name in table.order()} for table in self.tables}

    def averaged(self, name: str) -> list[str]:
        """Return the tasks that an average in a table is over."""
        return [task for task in self.table(name).rows or self.tasks if task not in AVERAGES]

    def figures(self) -> Iterator[PublishedFigure]:
        """Return every figure of every table."""
        for table in self.tables:
            drawn = dict.fromkeys(table.highest, (None,) * len(table.order()))
            for row, values in {**table.rows, **drawn}.items():
                for (group, column), printed in zip(table.order(), values, strict=True):
                    yield PublishedFigure(
                        table=table.table if isinstance(table.table, str) else table.table[group],
                        row=row,
                        column=column,
                        group=group,
                        metric=self._metric(row, group, column),
                        value=None if printed is None else table.absolute(row, column),
                        printed=printed,
                        gain=table.gains_over not in (None, column),
                        decimals=table.decimals,
                        domain=table.domain,
                        model=table.model,
                        prompt=table.prompt,
                        highest=table.highest.get(row) == column,
                    )

    def _metric(self, row: str, group: str, column: str) -> str:
        if not self.tasks:
            return column
        task = next((name for name in (row, group, column) if name in self.tasks), None)
        return "average" if task is None else self.tasks[task].metric
