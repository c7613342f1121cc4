"""The tables of a comparison on tasks: rows tasks, columns models, our line above the printed one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sentence_experts.reproduce.comparison import TableOfRows
from sentence_experts.reproduce.tasks.published import PublishedFigure

LEGEND = (
    "In percent. differs: what is not as in the paper (data, base, scale, protocol). In brackets 95% "
    "intervals over seeds. Figures here are of other test sets than the published ones, so only orders and "
    "gaps can be compared"
)
NONE = "–"


@dataclass(frozen=True)
class Compared:
    """One published figure and ours.

    Attributes:
        value: ours, absolute, in percent; None where the model was not run or the task not measured.
        gain: over the model that the published one is a gain over, where it is one.
        interval: low and high end of our 95% interval, where there is one.
        differs: what is not as in the paper: data, base, scale, protocol; or that the model was not run.
    """

    published: PublishedFigure
    value: float | None
    gain: float | None
    interval: tuple[float, float] | None
    differs: tuple[str, ...]


def tables_of(figures: Sequence[Compared]) -> Iterator[TableOfRows]:
    """The tables in their printed order."""
    for table in dict.fromkeys(one.published.table for one in figures):
        own = {
            (one.published.task, one.published.column): one for one in figures if one.published.table == table
        }
        columns = list(dict.fromkeys(column for _, column in own))
        lines: list[tuple[str, ...]] = []
        for task in dict.fromkeys(task for task, _ in own):
            in_order = [own[task, column] for column in columns]
            lines.append((task, *map(_ours, in_order)))
            lines.append(("  published", *map(_printed, in_order)))
        first = [next(one for (_, name), one in own.items() if name == column) for column in columns]
        marks = [", ".join(one.differs) for one in first]
        yield TableOfRows(table, ("", *columns), (*lines, ("differs", *marks)))


def _ours(figure: Compared) -> str:
    decimals = figure.published.decimals
    value = figure.gain if figure.published.gain else figure.value
    if value is None:
        return NONE
    text = f"{value:+.{decimals}f}" if figure.published.gain else f"{value:.{decimals}f}"
    if figure.interval is None or figure.published.gain:
        return text
    low, high = (f"{end:.{decimals}f}" for end in figure.interval)
    return f"{text} ({low}-{high})"


def _printed(figure: Compared) -> str:
    published = figure.published
    sign = "+" if published.gain else ""
    return f"{published.printed:{sign}.{published.decimals}f}"
