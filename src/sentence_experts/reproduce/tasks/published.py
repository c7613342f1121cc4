"""The figures that a paper printed of tasks, as data: table, column (a model), row (a task), value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, model_validator

from sentence_experts.reproduce.protocol import Strict
from sentence_experts.reproduce.reading import read_model

AVERAGE = "average"


class PublishedTask(Strict):
    """One type of task of the paper's benchmark.

    Attributes:
        datasets: how many it has; an average over all weighs the tasks by this.
        read_as: for a task that no model was trained on, the task whose instruction its texts get.
    """

    datasets: int
    metric: str
    read_as: str | None = None


class PublishedTable(Strict):
    """One table: a column a model, a row a task, and the average over the datasets of its rows.

    Attributes:
        gains_over: the column that the figures of the others are gains over; None where all are absolute.
    """

    table: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[float, ...]]
    gains_over: str | None = None
    decimals: int = 2

    @model_validator(mode="after")
    def _rows_fill_the_columns(self) -> PublishedTable:
        for row, values in self.rows.items():
            if len(values) != len(self.columns):
                raise ValueError(f"row {row} has {len(values)} figures for {len(self.columns)} columns")
        if self.gains_over is not None and self.gains_over not in self.columns:
            raise ValueError(f"gains_over: {self.gains_over!r} is none of {', '.join(self.columns)}")
        return self

    def absolute(self, row: str, column: str) -> float:
        """A figure, a gain added to what it is over."""
        values = dict(zip(self.columns, self.rows[row], strict=True))
        if self.gains_over in (None, column):
            return values[column]
        return values[str(self.gains_over)] + values[column]


@dataclass(frozen=True)
class PublishedFigure:
    """One printed number and where it stands: `printed` as it is, `value` absolute (in percent)."""

    table: str
    column: str
    task: str
    printed: float
    value: float
    gain: bool
    decimals: int


class Published(Strict):
    """All that is kept of one paper's results. `notes` names its slips and what was inferred."""

    paper: str
    tasks: dict[str, PublishedTask]
    tables: tuple[PublishedTable, ...]
    notes: tuple[str, ...] = Field(())

    @model_validator(mode="after")
    def _rows_are_tasks(self) -> Published:
        for table in self.tables:
            unknown = [row for row in table.rows if row not in (*self.tasks, AVERAGE)]
            if unknown:
                raise ValueError(f"{table.table}: {unknown[0]!r} is none of the tasks")
        return self

    @classmethod
    def read(cls, path: Path) -> Published:
        """Read a `published.yaml`.

        Raises:
            InputError: no such file, or a key or value that does not belong there.
        """
        return read_model(cls, path)

    def table(self, name: str) -> PublishedTable:
        """The table of this name."""
        return next(table for table in self.tables if table.table == name)

    def figures(self) -> Iterator[PublishedFigure]:
        """Every printed figure of every table."""
        for table in self.tables:
            for row, values in table.rows.items():
                for column, printed in zip(table.columns, values, strict=True):
                    gain = table.gains_over not in (None, column)
                    value = table.absolute(row, column)
                    yield PublishedFigure(table.table, column, row, printed, value, gain, table.decimals)
