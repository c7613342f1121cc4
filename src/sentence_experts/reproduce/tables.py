"""A comparison as tables: for the terminal, as Markdown, as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from rich.table import Table
from rich.text import Text

from sentence_experts.report.page import CSS
from sentence_experts.report.tables import COLUMNS, number
from sentence_experts.reproduce.compare import Compared, Comparison
from sentence_experts.reproduce.published import ALL_DOMAINS

LEGEND = (
    "differs: what is not as in the paper (data, base, scale, protocol). In brackets 95% intervals. Figures "
    "here are of other pairs than the published ones, so only orders and gaps can be compared"
)


@dataclass(frozen=True)
class TableOfRows:
    """One published table: for each row a line of ours and the printed one, cells as text."""

    title: str
    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def tables_of(comparison: Comparison) -> Iterator[TableOfRows]:
    """The tables in their printed order."""
    by_table: dict[tuple[str, str], list[Compared]] = {}
    for figure in comparison.figures:
        by_table.setdefault((figure.published.table, figure.published.domain), []).append(figure)
    for (table, domain), figures in by_table.items():
        columns = list(dict.fromkeys((one.published.pairs, one.published.metric) for one in figures))
        several = len({pairs for pairs, _ in columns}) > 1
        names = [f"{pairs} {COLUMNS[metric]}" if several else COLUMNS[metric] for pairs, metric in columns]
        here = figures[0].domain_here
        of = (
            "all domains" if domain == ALL_DOMAINS else domain + (f" (here {here})" if here != domain else "")
        )
        lines: list[tuple[str, ...]] = []
        for row in dict.fromkeys(one.published.row for one in figures):
            own = {(c.published.pairs, c.published.metric): c for c in figures if c.published.row == row}
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


def for_terminal(table: TableOfRows) -> Table:
    """A rich table, an interval below its figure."""
    drawn = Table(
        title=Text(f"\n{table.title}", style="bold"), title_justify="left", box=None, padding=(0, 1, 0, 0)
    )
    for heading in table.headings:
        figures = heading not in ("", "differs")
        # A set of pairs stands above its metric; an interval, below its figure, goes without brackets.
        above = heading.replace(" ", "\n")
        drawn.add_column(above, justify="right" if figures else "left", no_wrap=heading != "differs")
    for line in table.lines:
        drawn.add_row(*(Text(cell.replace(" (", "\n").replace(")", "")) for cell in line))
    return drawn


def markdown(comparison: Comparison) -> str:
    """The whole comparison as Markdown."""
    parts = [f"# {comparison.title}", f"{comparison.paper}; scale: {comparison.scale}. {LEGEND}."]
    for table in tables_of(comparison):
        rows = ["| " + " | ".join(line) + " |" for line in (table.headings, *table.lines)]
        rule = "|" + "---|" * len(table.headings)
        parts += [f"## {table.title}", "\n".join([rows[0], rule, *rows[1:]])]
    for heading, items in _lists(comparison):
        parts += [f"## {heading}", "\n".join(f"- {item}" for item in items)]
    return "\n\n".join(parts) + "\n"


def html(comparison: Comparison) -> str:
    """The whole comparison as one page, nothing loaded from elsewhere."""
    body = [f"<h1>{escape(comparison.title)}</h1>"]
    body.append(f"<p>{escape(comparison.paper)}; scale: {comparison.scale}. {escape(LEGEND)}.</p>")
    for table in tables_of(comparison):
        head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in table.headings)
        lines = "\n".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in table.lines
        )
        body.append(
            f'<h2>{escape(table.title)}</h2><div class="wide"><table><thead><tr>{head}</tr></thead>\n'
            f"<tbody>{lines}</tbody></table></div>"
        )
    for heading, items in _lists(comparison):
        listed = "".join(f"<li>{escape(item)}</li>" for item in items)
        body.append(f"<h2>{escape(heading)}</h2><ul>{listed}</ul>")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(comparison.title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _lists(comparison: Comparison) -> Iterator[tuple[str, tuple[str, ...]]]:
    lists = {
        "What differs from the published experiment": comparison.differences,
        "Choices of the protocol that leak, or that the paper leaves open": comparison.choices,
        "On the published figures": comparison.notes,
    }
    yield from ((heading, items) for heading, items in lists.items() if items)
