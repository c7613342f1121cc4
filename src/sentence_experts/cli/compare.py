"""`sentence-experts compare`: what a change of a model did to each route."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sentence_experts.cli.console import results, show, show_verdict
from sentence_experts.cli.options import add_verb
from sentence_experts.evaluation.config import CompareConfig


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
    out: Annotated[Path | None, typer.Option(help="Folder for report.html")] = None,
) -> None:
    """Show for each route whether its vectors changed, and with --pairs what that did to its metrics.

    Example: sentence-experts compare my-model my-model-with-crops --pairs my-pairs
    """
    from sentence_experts.evaluation.compare import compare as compare_models
    from sentence_experts.report.model_tables import comparison_tables
    from sentence_experts.report.verdict import of_comparison

    comparison = compare_models(before, after, config, pairs=pairs, texts=texts)
    for table in comparison_tables(comparison):
        results.print(table)
    show_verdict(of_comparison(comparison).lines())
    if out is not None:
        from sentence_experts.report.write import write_report  # imports torch: after the checks

        show(f"report: {write_report(comparison, out)}")
