"""Reports: a verdict, tables, figures and text, to be shown as a page, as Markdown or on a terminal.

A page is one file without scripts, and loads nothing from elsewhere.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import rich.table
from rich.text import Text

from sentence_experts.errors import require

MAX_ADVICE = 3


@dataclass(frozen=True)
class Verdict:
    """Sentences: what was compared, what was found, how certain that is, and what to try next."""

    compared: str
    findings: Sequence[str]
    advice: Sequence[str]

    def lines(self) -> list[str]:
        """Return one line per sentence."""
        return [self.compared, *self.findings, *(f"Next: {each}" for each in self.advice[:MAX_ADVICE])]


@dataclass(frozen=True)
class Table:
    """A table with a title. Lines of a cell after the first are small print.

    Attributes:
        headings: headings of the columns, the one of the row names first.
        rows: rows of a name, then a cell per column.
        fold: whether a terminal may fold the cells.
    """

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    fold: bool = False


@dataclass(frozen=True)
class Figure:
    """A drawing, its description in words, and its caption. `draw` returns SVG."""

    draw: Callable[[], str]
    alternative: str
    caption: str


Item = str | Table | Figure


@dataclass(frozen=True)
class Report:
    """A report: its verdict, what answers the main questions, and the details.

    Attributes:
        main: content that is shown at once.
        details: heading -> content that a reader may open.
        notes: sentences for the end of the tables.
        settings: plain values, shown as JSON.
    """

    title: str
    verdict: Verdict
    main: Sequence[Item]
    details: Mapping[str, Sequence[Item]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    def tables(self) -> Iterator[Table]:
        """Return the tables, the details' last."""
        for items in (self.main, *self.details.values()):
            yield from (item for item in items if isinstance(item, Table))


def html(report: Report) -> str:
    """Return a report as a page: the verdict, the main tables and figures, then the closed details."""
    return _render(report, "report.html")


def markdown(report: Report) -> str:
    """Return the verdict, the tables and the notes of a report as Markdown."""
    return _render(report, "report.md")


def _render(report: Report, template: str) -> str:
    jinja2 = require("jinja2", "report")
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("sentence_experts.report"),
        autoescape=lambda name: name.endswith(".html"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.tests["table"] = lambda item: isinstance(item, Table)
    templates.tests["figure"] = lambda item: isinstance(item, Figure)
    templates.filters["base64"] = lambda text: base64.b64encode(text.encode()).decode()
    templates.filters["json"] = lambda values: json.dumps(values, indent=1, ensure_ascii=False)
    page: str = templates.get_template(template).render(report=report)
    return page


def for_terminal(table: Table) -> rich.table.Table:
    """Return a table without frame: a column of names to the left, columns of numbers to the right."""
    title = Text(f"\n{table.title}", style="bold")
    shown = rich.table.Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    corner, *headings = table.headings
    shown.add_column(corner, overflow="fold")
    for heading in headings:
        shown.add_column(
            heading, justify="right", no_wrap=not table.fold, overflow="fold" if table.fold else "ellipsis"
        )
    for row in table.rows:
        shown.add_row(*map(Text, row))
    return shown
