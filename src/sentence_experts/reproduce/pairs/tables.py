"""The tables of a comparison on pairs: for each row a line of ours and the printed one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sentence_experts.report.tables import COLUMNS, number
from sentence_experts.reproduce.comparison import TableOfRows
from sentence_experts.reproduce.pairs.published import ALL_DOMAINS, PublishedFigure

LEGEND = (
    "differs: what is not as in the paper (data, base, scale, protocol). In brackets 95% intervals. Figures "
    "here are of other pairs than the published ones, so only orders and gaps can be compared"
)


@dataclass(frozen=True)
class Compared:
    """One published figure and ours.

    Attributes:
        domain_here: the domain that ours is of.
        value: ours, None where it is undefined or the model was not run.
        interval: low and high end of our 95% interval, where there is one.
        differs: what is not as in the paper: data, base, scale, protocol; or that the model was not run.
    """

    published: PublishedFigure
    domain_here: str
    value: float | None
    interval: tuple[float, float] | None
    differs: tuple[str, ...]


def tables_of(figures: Sequence[Compared]) -> Iterator[TableOfRows]:
    """The tables in their printed order."""
    by_table: dict[tuple[str, str], list[Compared]] = {}
    for figure in figures:
        by_table.setdefault((figure.published.table, figure.published.domain), []).append(figure)
    for (table, domain), own_figures in by_table.items():
        columns = list(dict.fromkeys((one.published.pairs, one.published.metric) for one in own_figures))
        several = len({pairs for pairs, _ in columns}) > 1
        names = [f"{pairs} {COLUMNS[metric]}" if several else COLUMNS[metric] for pairs, metric in columns]
        here = own_figures[0].domain_here
        of = (
            "all domains" if domain == ALL_DOMAINS else domain + (f" (here {here})" if here != domain else "")
        )
        lines: list[tuple[str, ...]] = []
        for row in dict.fromkeys(one.published.row for one in own_figures):
            own = {(c.published.pairs, c.published.metric): c for c in own_figures if c.published.row == row}
            in_order = [own[column] for column in columns]
            lines += [_ours(row, in_order), _printed(in_order)]
        yield TableOfRows(f"{table}: {of}", ("", *names, "differs"), tuple(lines))


def _ours(row: str, figures: Sequence[Compared]) -> tuple[str, ...]:
    return (row, *map(_cell, figures), ", ".join(figures[0].differs))


def _printed(figures: Sequence[Compared]) -> tuple[str, ...]:
    printed = [f"{one.published.value:.{one.published.decimals}f}" for one in figures]
    return ("  published", *printed, "")


def _cell(figure: Compared) -> str:
    if figure.interval is None:
        return number(figure.value)
    low, high = (f"{end:.3f}".removeprefix("0") for end in figure.interval)
    return f"{number(figure.value)} ({low}-{high})"
