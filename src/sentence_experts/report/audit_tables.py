"""An audit of a pairs dataset as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from sentence_experts.evaluation.audit.leaks import LEAKS, WITHOUT
from sentence_experts.evaluation.audit.run import Audit
from sentence_experts.report.tables import UNDEFINED, bounds, number, signed, terminal_table

SHOWN = {"f1_max": "F1max", "roc_auc": "ROC-AUC"}


def audit_tables(audit: Audit) -> Iterator[Table]:
    """What the splits share, the leaks of the test pairs, and the metrics with and without them."""
    yield _overlaps(audit)
    yield _leaks(audit)
    for model in dict.fromkeys(each.model for each in audit.measurements):
        yield _metrics(audit, model)


def _overlaps(audit: Audit) -> Table:
    table = terminal_table("What two splits share", "splits", ("papers", "texts", "near-duplicate texts"))
    for each in audit.leaks.overlaps:
        counts = (each.papers, each.texts, each.near_duplicates)
        table.add_row(f"{each.first}, {each.second}", *(f"{count:,}" for count in counts))
    return table


def _leaks(audit: Audit) -> Table:
    pairs = audit.pairs["test"]
    table = terminal_table(
        f"Test pairs that leak from training ({pairs:,} test pairs)", "leak", ("pairs", "share")
    )
    for kind, meaning in LEAKS.items():
        count = int(audit.leaks.masks[kind].sum())
        table.add_row(meaning, f"{count:,}", f"{count / pairs:.1%}")
    return table


def _metrics(audit: Audit, model: str) -> Table:
    headings = [heading for name in SHOWN.values() for heading in (name, "change")]
    table = terminal_table(
        f"{model}, with and without leaked test pairs", "test pairs", ["left", "used", *headings]
    )
    rows = {each.test_set: each for each in audit.measurements if each.model == model}
    first = rows[next(iter(WITHOUT))].figures
    for name, row in rows.items():
        cells: list[str] = []
        for metric in SHOWN:
            value = row.figures.metrics[metric] if row.figures else None
            before = first.metrics[metric] if first else None
            change = UNDEFINED if value is None or before is None else signed(value - before)
            ends = bounds(row.figures.intervals.get(metric)) if row.figures else ""
            cells += [f"{number(value)}\n{ends}".rstrip(), "" if row.figures is first else change]
        used = row.figures.pairs if row.figures else 0
        table.add_row(name, f"{row.left:,}", f"{used:,}", *cells)
    return table
