"""The HTML pages of an audit and of a comparison of two versions of a model: the verdict, then the tables."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from rich.table import Table
from rich.text import Text

from sentence_experts.evaluation.audit.run import Audit
from sentence_experts.evaluation.compare import Comparison
from sentence_experts.report import html
from sentence_experts.report.model_tables import audit_notes, audit_tables, comparison_tables
from sentence_experts.report.verdict import Verdict, of_audit, of_comparison


def audit_page(audit: Audit) -> str:
    """What the splits share, what of the test pairs leaks, and the metrics with and without these pairs."""
    lead = (
        "What training and test pairs share, and how metrics change without the test pairs that leak. The "
        "pairs left are balanced as all test pairs are; below a value is its 95% interval.",
        *audit_notes(audit),
    )
    return _page(f"Audit of {audit.name}", of_audit(audit), lead, audit_tables(audit))


def comparison_page(comparison: Comparison) -> str:
    """The change of each route's vectors, and of the metrics on each domain's pairs."""
    lead = ["The same texts, encoded by both versions of a model with each route that both have."]
    title = "A model before and after a change" + (f", on {comparison.pairs}" if comparison.pairs else "")
    return _page(title, of_comparison(comparison), lead, comparison_tables(comparison))


def _page(title: str, verdict: Verdict, lead: Iterable[str], tables: Iterable[Table]) -> str:
    texts = "\n".join(f"<p>{escape(text)}</p>" for text in lead)
    body = "\n".join(_from_terminal(each) for each in tables)
    return html.document(title, f"{html.verdict(verdict.lines())}\n{texts}\n{body}")


def _from_terminal(table: Table) -> str:
    """A table of the terminal as HTML: the first column names the rows."""
    names, *columns = ([_plain(cell) for cell in column.cells] for column in table.columns)
    rows = (
        (escape(name), "".join(html.cell([escape(value), *below]) for value, *below in cells))
        for name, *cells in zip(
            names, *([(each or " ").splitlines() for each in one] for one in columns), strict=True
        )
    )
    return html.table(_plain(table.title).strip(), (_plain(column.header) for column in table.columns), rows)


def _plain(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell or "")
