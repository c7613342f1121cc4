"""`sentence-experts compare`: what a change of a model did to each route."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from sentence_experts.cli.console import results, show
from sentence_experts.cli.options import add_verb
from sentence_experts.evaluation.config import CompareConfig

if TYPE_CHECKING:
    from sentence_experts.evaluation.compare import Comparison, RouteChange

METRICS = {"f1_max": "F1max", "roc_auc": "ROC-AUC"}
MISSING = "–"


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, compare)


def compare(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="Model folder or hub id")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="The same model after a change")],
    config: CompareConfig,
    pairs: Annotated[Path | None, typer.Option(help="Pairs folder: also compare the metrics on it")] = None,
    texts: Annotated[
        Path | None, typer.Option(help="File of texts to compare vectors of, instead of a few built-in ones")
    ] = None,
) -> None:
    """Show for each route whether its vectors changed, and with --pairs what that did to its metrics.

    Example: sentence-experts compare my-model my-model-with-crops --pairs my-pairs
    """
    from sentence_experts.evaluation.compare import compare as compare_models

    comparison = compare_models(before, after, config, pairs=pairs, texts=texts)
    _show_changes(comparison)
    if pairs is not None:
        _show_figures(comparison, config.split)


def _show_changes(found: Comparison) -> None:
    table = _table(f"Vectors of {found.texts:,} texts", "route")
    for heading in ("vectors", "largest difference", "smallest cosine"):
        table.add_column(heading, justify="right")
    for change in found.changes:
        numbers = ("0", "1") if change.bit_equal else _in_numbers(change)
        table.add_row(change.route or "(none)", "bit-equal" if change.bit_equal else "changed", *numbers)
    results.print(table)
    for what, routes in (("only before", found.only_before), ("only after", found.only_after)):
        if routes:
            show(f"{what}: {', '.join(routes)}")
    equal = sum(change.bit_equal for change in found.changes)
    show(f"{equal} of {len(found.changes)} routes are bit-equal")


def _in_numbers(change: RouteChange) -> tuple[str, str]:
    return f"{change.largest_difference:.2e}", f"{change.smallest_cosine:.6f}"


def _show_figures(found: Comparison, split: str) -> None:
    table = _table(f"Figures on the {split} pairs", "domain")
    for name in METRICS.values():
        for heading in (f"{name} before", "after", "change"):
            table.add_column(heading, justify="right")
    for domain, both in found.metrics.items():
        cells = []
        for metric in METRICS:
            first, second = ((metrics or {}).get(metric) for metrics in both)
            change = None if first is None or second is None else second - first
            cells += [_number(first), _number(second), _number(change, "+.4f")]
        table.add_row(domain, *cells)
    results.print(table)


def _number(value: float | None, form: str = ".4f") -> str:
    return MISSING if value is None else format(value, form)


def _table(title: str, corner: str) -> Table:
    table = Table(title=f"\n{title}", title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column(corner, overflow="fold")
    return table
