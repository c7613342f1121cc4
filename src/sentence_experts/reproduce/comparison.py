"""Compare our figures with the published ones, at the end of every recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sentence_experts.evaluation.results import Result
from sentence_experts.report.content import Report, Table, Verdict
from sentence_experts.reproduce.experiment import Compared, Experiment, changed_settings

DIFFERS = "differs"
LEGEND = (
    "Each cell has our figure, with its 95% interval, above the printed one. differs: what is not as in the "
    "paper (data, base, scale, protocol). Where the data differ from the published ones, only orders and "
    "gaps can be compared."
)
DRAWN = (
    " drawn: the paper shows the value in a figure only; highest: its text says that this column is the "
    "highest of the row."
)


@dataclass(frozen=True, repr=False)
class ReproductionResult(Result):
    """The result of a recipe.

    Attributes:
        figures: every published figure beside ours; `tables` are their printed form.
        differences: from the published experiment, in words.
        choices: choices of the protocol that leak, or that the paper leaves open.
        notes: errors in the paper.
    """

    title: str
    paper: str
    scale: str
    legend: str
    figures: tuple[Compared, ...]
    tables: tuple[Table, ...]
    differences: tuple[str, ...]
    choices: tuple[str, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, ready for `storage.write_json`."""
        return {key: value for key, value in asdict(self).items() if key not in ("legend", "tables")}

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


def compare(experiment: Experiment, evaluations: Mapping[str, Any]) -> ReproductionResult:
    """Set the results of a finished experiment's evaluations, by name, beside the published figures."""
    figures = tuple(experiment.compared(evaluations))
    return ReproductionResult(
        title=experiment.recipe.title,
        paper=experiment.published.paper,
        scale="small" if experiment.small else "full",
        legend=LEGEND + (DRAWN if any(one.published.printed is None for one in figures) else ""),
        figures=figures,
        tables=tuple(_tables(figures)),
        differences=(*differences(experiment), *experiment.notes(evaluations)),
        choices=tuple(
            f"{each.what} ({each.kind}). Here: {each.here}" for each in experiment.protocol.choices
        ),
        notes=(*orders(figures), *experiment.published.notes),
    )


def orders(figures: Sequence[Compared]) -> Iterator[str]:
    """Return for each row of a drawing whether ours is the highest where the paper's text says so."""
    rows: dict[tuple[str, str], list[Compared]] = {}
    for one in figures:
        if one.value is not None:
            rows.setdefault((one.published.table, one.published.row), []).append(one)
    for (table, name), row in rows.items():
        for one in row:
            if one.published.highest:
                best = max(row, key=lambda other: other.value or 0)
                agrees = "here too" if best is one else f"here {best.published.column}"
                measured = ", ".join(f"{other.published.column} {other.ours}" for other in row)
                claim = f"{table}, {name}: {one.published.column} is the highest by the paper's text"
                yield f"{claim}; {agrees} ({measured})"


def differences(experiment: Experiment) -> Iterator[str]:
    """Return the differences from the published experiment, found by comparing the settings."""
    recipe, small = experiment.recipe, experiment.small
    yield from experiment.differences
    models = experiment.models
    if bases := {f"{one.base} for {one.published_base}" for one in models if one.base != one.published_base}:
        yield f"base: {', '.join(sorted(bases))}"
    changed: set[str] = set()
    for run in recipe.runs:
        settings = (recipe.train_settings(run, scale) for scale in (False, small))
        changed.update(changed_settings("training", *settings))
    yield from sorted(changed)
    if not experiment.protocol.faithful:
        yield "protocol: not the published one; see the choices"
    if experiment.left_out:
        names = ", ".join(baseline.model for baseline in experiment.left_out)
        yield f"not run, since only the hub has them: {names}"


def _tables(figures: Sequence[Compared]) -> Iterator[Table]:
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
