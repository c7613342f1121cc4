"""Compare our figures with the published ones, at the end of every recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sentence_experts.evaluation.results import Result
from sentence_experts.report.content import Report, Table
from sentence_experts.report.tables import UNDEFINED
from sentence_experts.report.verdict import Verdict
from sentence_experts.reproduce.experiment import Experiment, Model, OwnFigure, changed_settings
from sentence_experts.reproduce.published import ALL_DOMAINS, PublishedFigure

NOT_RUN = "not run"
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


@dataclass(frozen=True)
class Compared:
    """One published figure and ours (`experiment.OwnFigure`), None if undefined or the model was not run.

    Attributes:
        domain_here: the domain of ours.
        differs: what is not as in the paper: data, base, scale, protocol; or that the model was not run.
    """

    published: PublishedFigure
    value: float | None
    gain: float | None
    interval: tuple[float, float] | None
    domain_here: str | None
    differs: tuple[str, ...]


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

    def summary(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        """Return a line per published figure."""
        lines = [
            (f"{one.published.table}, {one.published.row}, {one.published.column}", _printed(one), _ours(one))
            for one in self.figures
        ]
        return f"{self.title} ({self.paper}; scale: {self.scale})", ("figure", "published", "here"), lines

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per published figure: its place, the published value, ours, and what differs."""
        rows = []
        for figure in self.figures:
            place = asdict(figure.published)
            published = place.pop("value")
            low, high = figure.interval or (None, None)
            ours = {"value": figure.value, "gain": figure.gain, "low": low, "high": high}
            rows.append({**place, "published": published, **ours, DIFFERS: ", ".join(figure.differs)})
        return rows

    def report(self) -> Report:
        """Return the tables, then the differences, the choices and the notes."""
        notes = {
            "Different here": self.differences,
            "Choice of the protocol": self.choices,
            "On the published figures": self.notes,
        }
        return Report(
            self.title,
            Verdict(f"{self.paper}; scale: {self.scale}.", [self.legend], []),
            self.tables,
            notes=[f"{what}: {line}" for what, lines in notes.items() for line in lines],
        )


def compare(experiment: Experiment, evaluations: Mapping[str, Any]) -> ReproductionResult:
    """Set the results of a finished experiment's evaluations, by name, beside the published figures."""
    figures = []
    for figure in experiment.published.figures():
        if experiment.applies(figure, evaluations):
            models = experiment.models_of(figure)
            ours = experiment.ours(figure, models, evaluations) if models else OwnFigure()
            here = experiment.routes.get(str(figure.domain), figure.domain)
            marked = _marks(experiment, models[0]) if models else (NOT_RUN,)
            figures.append(Compared(figure, *ours, here, marked))
    recipe = experiment.recipe
    return ReproductionResult(
        title=recipe.title,
        paper=experiment.published.paper,
        scale="small" if experiment.small else "full",
        legend=LEGEND + (DRAWN if any(one.published.printed is None for one in figures) else ""),
        figures=tuple(figures),
        tables=(*_tables(figures), *experiment.more_tables(evaluations)),
        differences=(*differences(experiment), *experiment.notes(evaluations)),
        choices=tuple(f"{each.what} ({each.kind}). Here: {each.here}" for each in recipe.protocol.choices),
        notes=(*orders(figures), *experiment.published.notes),
    )


def orders(figures: Sequence[Compared]) -> Iterator[str]:
    """Return for each row of a drawing whether ours is the highest where the paper's text says so."""
    for one in figures:
        place = one.published
        if not place.highest or one.value is None:
            continue
        row = [
            other
            for other in figures
            if (other.published.table, other.published.row) == (place.table, place.row)
            and other.value is not None
        ]
        ours = max(row, key=lambda other: other.value or 0)
        measured = ", ".join(f"{other.published.column} {_ours(other)}" for other in row)
        agrees = "here too" if ours is one else f"here {ours.published.column}"
        claim = f"{place.table}, {place.row}: {place.column} is the highest by the paper's text"
        yield f"{claim}; {agrees} ({measured})"


def differences(experiment: Experiment) -> Iterator[str]:
    """Return the differences from the published experiment, found by comparing the settings."""
    recipe, small = experiment.recipe, experiment.small
    yield from experiment.differences
    models = experiment.models
    bases = {f"{one.base} for {one.published_base}" for one in models if one.base != one.published_base}
    if bases:
        yield f"base: {', '.join(sorted(bases))}"
    changed = {
        line
        for run in recipe.runs
        for line in changed_settings(
            "training", recipe.train_settings(run, False), recipe.train_settings(run, small)
        )
    }
    yield from sorted(changed)
    if not recipe.protocol.faithful:
        yield "protocol: not the published one; see the choices"
    if experiment.left_out:
        names = ", ".join(baseline.model for baseline in experiment.left_out)
        yield f"not run, since only the hub has them: {names}"


def _marks(experiment: Experiment, model: Model) -> tuple[str, ...]:
    """Return what is not as in the paper for a model that was run."""
    different = {
        "data": True,
        "base": model.base != model.published_base,
        "scale": experiment.small and (model.run or experiment.recipe.model) is not None,
        "protocol": not experiment.recipe.protocol.faithful,
    }
    return tuple(mark for mark, applies in different.items() if applies)


def _tables(figures: Sequence[Compared]) -> Iterator[Table]:
    """Return the tables in printed order; differences stand in a column, or a row if models are columns."""
    for block in dict.fromkeys(one.published.block for one in figures):
        own = [one for one in figures if one.published.block == block]
        rows = list(dict.fromkeys(one.published.row for one in own))
        columns = list(dict.fromkeys((one.published.group, one.published.column) for one in own))
        at = {(one.published.row, one.published.group, one.published.column): one for one in own}
        several = len({group for group, _ in columns}) > 1
        names = [f"{group} {column}" if several else column for group, column in columns]
        per_row = all(len({at[(row, *column)].differs for column in columns}) == 1 for row in rows)
        lines: list[tuple[str, ...]] = []
        for row in rows:
            cells = [at[(row, *column)] for column in columns]
            differs = ([", ".join(cells[0].differs)], [""]) if per_row else ([], [])
            lines.append((row, *map(_ours, cells), *differs[0]))
            lines.append(("  published", *map(_printed, cells), *differs[1]))
        if not per_row:
            lines.append((DIFFERS, *(", ".join(at[(rows[0], *column)].differs) for column in columns)))
        yield Table(_title(own[0]), ("", *names, *([DIFFERS] if per_row else [])), lines, fold=True)


def _title(figure: Compared) -> str:
    published = figure.published
    title = published.table
    if published.domain == ALL_DOMAINS:
        title += ": all domains"
    elif published.domain is not None:
        here = figure.domain_here
        title += f": {published.domain}" + (f" (here {here})" if here != published.domain else "")
    return title if published.prompt is None else f"{title}, prompt {published.prompt}"


def _ours(figure: Compared) -> str:
    published = figure.published
    value = figure.gain if published.gain else figure.value
    if value is None:
        return UNDEFINED
    text = f"{value:{'+' if published.gain else ''}.{published.decimals}f}"
    if figure.interval is None or published.gain:
        return text
    low, high = (f"{end:.{published.decimals}f}" for end in figure.interval)
    return f"{text}\n{low}-{high}"


def _printed(figure: Compared) -> str:
    published = figure.published
    if published.printed is None:
        return "drawn, highest" if published.highest else "drawn"
    return f"{published.printed:{'+' if published.gain else ''}.{published.decimals}f}"
