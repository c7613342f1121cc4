"""Our figures beside the published ones: the result of a recipe, and its tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sentence_experts.evaluation.results import Result
from sentence_experts.report.content import Report, Table, Verdict
from sentence_experts.report.wording import UNDEFINED
from sentence_experts.reproduce.published import ALL_DOMAINS, PublishedFigure

DIFFERS = "differs"
LEGEND = (
    "Each cell has our figure, with a 95% interval if there is one, above the printed one. differs: what is "
    "not as in the paper (data, base, scale, protocol). Where the data differ from the published ones, only "
    "orders and gaps can be compared."
)
DRAWN = (
    " drawn: the paper shows the value in a figure only; highest: its text says that this column is the "
    "highest of the row."
)


@dataclass(frozen=True)
class Compared:
    """One published figure and ours, None if undefined or the model was not run."""

    published: PublishedFigure
    value: float | None = None
    gain: float | None = None  # our figure as a gain, where the published one is a gain
    interval: tuple[float, float] | None = None  # the 95% interval of `value`
    domain_here: str | None = None
    differs: tuple[str, ...] = ()  # data, base, scale, protocol; or that the model was not run

    @property
    def ours(self) -> str:
        """Our figure as text, with its interval below it."""
        value = self.gain if self.published.gain else self.value
        if value is None:
            return UNDEFINED
        ends = () if self.published.gain else self.interval or ()
        return "\n".join(filter(None, [self._text(value), "-".join(map(self._text, ends))]))

    @property
    def printed(self) -> str:
        """The published figure as text."""
        if self.published.printed is None:
            return "drawn, highest" if self.published.highest else "drawn"
        return self._text(self.published.printed)

    def _text(self, value: float) -> str:
        return f"{value:{'+' if self.published.gain else ''}.{self.published.decimals}f}"

    @property
    def title(self) -> str:
        """The title of the table that the figure is shown in."""
        place = self.published
        title = place.table
        if place.domain is not None:
            here = f" (here {self.domain_here})" if self.domain_here != place.domain else ""
            title += ": all domains" if place.domain == ALL_DOMAINS else f": {place.domain}{here}"
        return title if place.prompt is None else f"{title}, prompt {place.prompt}"


@dataclass(frozen=True, repr=False)
class ReproductionResult(Result):
    """The result of a recipe.

    Attributes:
        figures: every published figure beside ours; `tables` are their printed form.
        differences: differences from the published experiment, in words.
        choices: choices of the protocol that leak, or that the paper leaves open.
        notes: errors in the paper.
    """

    title: str
    paper: str
    scale: str
    figures: tuple[Compared, ...]
    differences: tuple[str, ...]
    choices: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def tables(self) -> list[Table]:
        """The published tables, with our figures above the printed ones."""
        return list(_order_tables(self.figures))

    @property
    def legend(self) -> str:
        """The explanation of the tables."""
        return LEGEND + (DRAWN if any(one.published.printed is None for one in self.figures) else "")

    def to_json(self) -> dict[str, Any]:
        """Return plain values, ready for `storage.write_json`."""
        return asdict(self)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per published figure: its place, the published value, ours, and what differs."""
        rows = []
        for one in self.figures:
            place = asdict(one.published)
            low, high = one.interval or (None, None)
            ours = {"value": one.value, "gain": one.gain, "low": low, "high": high}
            rows.append({**place, "published": place.pop("value"), **ours, DIFFERS: ", ".join(one.differs)})
        return rows

    def report(self) -> Report:
        """Return the tables, then the differences, the choices and the notes."""
        notes = {
            "Different here": self.differences,
            "Choice of the protocol": self.choices,
            "On the published figures": self.notes,
        }
        verdict = Verdict(f"{self.paper}; scale: {self.scale}.", [self.legend], [])
        lines = [f"{heading}: {line}" for heading, lines in notes.items() for line in lines]
        return Report(self.title, verdict, self.tables, notes=lines)


def _order_tables(figures: Sequence[Compared]) -> Iterator[Table]:
    """Return the tables in printed order; differences stand in a column, or a row if models are columns."""
    for title in dict.fromkeys(one.title for one in figures):
        at = {
            (one.published.row, (one.published.group, one.published.column)): one
            for one in figures
            if one.title == title
        }
        columns = list(dict.fromkeys(column for _, column in at))
        several = len({group for group, _ in columns}) > 1
        names = [f"{group} {column}" if several else column for group, column in columns]
        rows = {row: [at[row, column] for column in columns] for row, _ in at}
        per_row = all(len({one.differs for one in row}) == 1 for row in rows.values())
        lines: list[tuple[str, ...]] = []
        for name, row in rows.items():
            differs = ((", ".join(row[0].differs),), ("",)) if per_row else ((), ())
            lines.append((name, *(one.ours for one in row), *differs[0]))
            lines.append(("  published", *(one.printed for one in row), *differs[1]))
        if not per_row:
            lines.append((DIFFERS, *(", ".join(one.differs) for one in next(iter(rows.values())))))
        yield Table(title, ("", *names, *((DIFFERS,) if per_row else ())), lines, fold=True)
