"""The content of a report: a verdict, tables, figures and text, to be shown as a page or on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sentence_experts.report.verdict import Verdict


@dataclass(frozen=True)
class Table:
    """A table with a title. Lines of a cell after the first are small print.

    Attributes:
        headings: that of the row names first.
        rows: a name, then a cell per column.
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
        main: shown at once.
        details: heading -> what a reader may open.
        notes: sentences for the end of the tables.
        preformatted: heading -> text to show as it is, such as settings.
    """

    title: str
    verdict: Verdict
    main: Sequence[Item]
    details: Mapping[str, Sequence[Item]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    preformatted: Mapping[str, str] = field(default_factory=dict)

    def tables(self) -> Iterator[Table]:
        """Return the tables, those of the details last."""
        for items in (self.main, *self.details.values()):
            yield from (item for item in items if isinstance(item, Table))
