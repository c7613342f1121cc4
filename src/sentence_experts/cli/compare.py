"""`sentence-experts compare`: what a change of a model did to each route."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sentence_experts.cli.console import show, show_report
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

    comparison = compare_models(before, after, config, pairs=pairs, texts=texts)
    from sentence_experts.report.write import report_of, write_report  # imports torch: after the checks

    show_report(report_of(comparison))
    if out is not None:
        show(f"report: {write_report(comparison, out)}")
