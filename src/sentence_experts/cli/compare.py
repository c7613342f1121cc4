"""`sentence-experts compare`: what a change of a model did to each route."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from sentence_experts.cli.console import results
from sentence_experts.cli.options import BATCH_SIZE_HELP

if TYPE_CHECKING:
    from sentence_experts.encoding.encoder import BatchEncoder
    from sentence_experts.evaluation.metrics import Metrics
    from sentence_experts.evaluation.regression import RouteChange

METRICS = {"f1_max": "F1max", "roc_auc": "ROC-AUC"}
MISSING = "–"


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("compare")(compare)


def compare(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="model folder or hub id")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="the same model after a change")],
    pairs: Annotated[
        Path | None, typer.Option(help="folder written by `pairs`: also compare the figures on it")
    ] = None,
    split: Annotated[str, typer.Option(help="the split of the pairs: train, validation or test")] = "test",
    texts: Annotated[
        Path | None, typer.Option(help="file of texts to compare vectors of; without, a few built-in ones")
    ] = None,
    column: Annotated[str | None, typer.Option(help="column with the texts; not for .txt")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help=BATCH_SIZE_HELP)] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, ...; chosen by itself when not given")
    ] = None,
) -> None:
    """Say for each route whether its vectors changed, and with --pairs what that did to its figures.

    Example: sentence-experts compare my-model my-model-with-crops --pairs my-pairs
    """
    from sentence_experts.encoding.encoder import BatchEncoder
    from sentence_experts.evaluation.regression import TEXTS, route_changes
    from sentence_experts.models.loading import load
    from sentence_experts.pairs.dataset import PairsFolder
    from sentence_experts.tables import TextTable

    compared: Sequence[str] = TEXTS
    if texts is not None:
        compared = TextTable(texts, column).texts()
    table = None if pairs is None else PairsFolder.open(pairs).split(split)
    encoders = [BatchEncoder(load(model, device=device), batch_size) for model in (before, after)]
    _show_changes(route_changes(encoders[0], encoders[1], compared), len(compared), encoders)
    if table is not None:
        from sentence_experts.evaluation.regression import figures_by_domain

        first, second = (figures_by_domain(encoder, table) for encoder in encoders)
        _show_figures(first, second, split)


def _show_changes(changes: Sequence[RouteChange], texts: int, encoders: Sequence[BatchEncoder]) -> None:
    table = _table(f"Vectors of {texts:,} texts", "route")
    for heading in ("vectors", "largest difference", "smallest cosine"):
        table.add_column(heading, justify="right")
    for change in changes:
        numbers = ("0", "1") if change.bit_equal else _in_numbers(change)
        table.add_row(change.route or "(none)", "bit-equal" if change.bit_equal else "changed", *numbers)
    results.print(table)
    before, after = (encoder.routes.keys() for encoder in encoders)
    for what, routes in (("only before", before - after), ("only after", after - before)):
        if routes:
            results.print(f"{what}: {', '.join(sorted(routes))}", markup=False, highlight=False)
    equal = sum(change.bit_equal for change in changes)
    results.print(f"{equal} of {len(changes)} routes are bit-equal", highlight=False)


def _in_numbers(change: RouteChange) -> tuple[str, str]:
    return f"{change.largest_difference:.2e}", f"{change.smallest_cosine:.6f}"


def _show_figures(before: dict[str, Metrics | None], after: dict[str, Metrics | None], split: str) -> None:
    table = _table(f"Figures on the {split} pairs", "domain")
    for name in METRICS.values():
        for heading in (f"{name} before", "after", "change"):
            table.add_column(heading, justify="right")
    for domain in before:
        cells = []
        for metric in METRICS:
            first, second = ((figures or {}).get(metric) for figures in (before[domain], after[domain]))
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
