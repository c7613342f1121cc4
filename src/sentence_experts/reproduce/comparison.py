"""Compare our figures with the published ones, at the end of every recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sentence_experts.reproduce.experiment import Experiment, Model, OwnFigure, ReportTable, changed_settings
from sentence_experts.reproduce.published import ALL_DOMAINS, PublishedFigure

if TYPE_CHECKING:
    import pandas as pd

NOT_RUN = "not run"
NONE = "–"
DIFFERS = "differs"
LEGEND = (
    "Each cell has our figure above the printed one. differs: what is not as in the paper (data, base, "
    "scale, protocol). 95% intervals are in brackets. Where the data differ from the published ones, only "
    "orders and gaps can be compared"
)
DRAWN = (
    ". drawn: the paper shows the value in a figure only; highest: its text says that this column is the "
    "highest of the row"
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
class ReproductionResult:
    """The result of a recipe.

    Attributes:
        figures: every published figure beside ours; `tables` are their printed form.
        differences: what differs from the published experiment, in words.
        choices: choices of the protocol that leak, or that the paper leaves open.
        notes: errors in the paper.
    """

    title: str
    paper: str
    scale: str
    legend: str
    figures: tuple[Compared, ...]
    tables: tuple[ReportTable, ...]
    differences: tuple[str, ...]
    choices: tuple[str, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready for `storage.write_json`."""
        return {key: value for key, value in asdict(self).items() if key not in ("legend", "tables")}

    def to_pandas(self) -> pd.DataFrame:
        """A row per published figure: its place, the published value, ours, and what differs."""
        import pandas as pd

        rows = []
        for figure in self.figures:
            place = asdict(figure.published)
            published = place.pop("value")
            low, high = figure.interval or (None, None)
            ours = {"value": figure.value, "gain": figure.gain, "low": low, "high": high}
            rows.append({**place, "published": published, **ours, DIFFERS: ", ".join(figure.differs)})
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        tables = [[table.title, *map("  ".join, (table.headings, *table.lines))] for table in self.tables]
        head = f"{self.title} ({self.paper}; scale: {self.scale})"
        return "\n".join([head, *(line for table in tables for line in table)])


def compare(experiment: Experiment, evaluations: Mapping[str, Any]) -> ReproductionResult:
    """Set the results of a finished experiment's evaluations, by name, beside the published figures."""
    figures = []
    for figure in experiment.published.figures():
        if experiment.applies(figure, evaluations):
            models = experiment.models_of(figure)
            ours = experiment.ours(figure, models, evaluations) if models else OwnFigure()
            here = experiment.routes.get(str(figure.domain), figure.domain)
            marked = _marks(experiment, models[0]) if models else (NOT_RUN,)
            figures.append(Compared(figure, ours.value, ours.gain, ours.interval, here, marked))
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
    """For each row of a drawing, whether ours is the highest where the paper's text says so."""
    highest = [one for one in figures if one.published.highest and one.value is not None]
    for one in highest:
        place = one.published
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


def _marks(experiment: Experiment, model: Model) -> tuple[str, ...]:
    """What is not as in the paper for a model that was run."""
    different = {
        "data": True,
        "base": model.base != model.published_base,
        "scale": experiment.small and (model.run or experiment.recipe.model) is not None,
        "protocol": not experiment.recipe.protocol.faithful,
    }
    return tuple(mark for mark, applies in different.items() if applies)


def differences(experiment: Experiment) -> Iterator[str]:
    """What differs from the published experiment, found by comparing the settings."""
    recipe, small = experiment.recipe, experiment.small
    yield f"data: {experiment.words}"
    yield from experiment.unlike_published
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


def _tables(figures: Sequence[Compared]) -> Iterator[ReportTable]:
    """The tables in printed order, with what differs per row, or per column where models are columns."""
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
        yield ReportTable(_title(own[0]), ("", *names, *([DIFFERS] if per_row else [])), tuple(lines))


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
        return NONE
    text = f"{value:{'+' if published.gain else ''}.{published.decimals}f}"
    if figure.interval is None or published.gain:
        return text
    low, high = (f"{end:.{published.decimals}f}" for end in figure.interval)
    return f"{text} ({low}-{high})"


def _printed(figure: Compared) -> str:
    published = figure.published
    if published.printed is None:
        return "drawn, highest" if published.highest else "drawn"
    return f"{published.printed:{'+' if published.gain else ''}.{published.decimals}f}"
