"""`sentence-experts auto-route`: teach a model to choose the routes of texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sentence_experts.cli.console import results, show
from sentence_experts.cli.options import Overwrite, add_verb, check_there
from sentence_experts.models.routes.auto_route_config import AutoRouteConfig
from sentence_experts.models.sources import check_source


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, auto_route, "auto-route")


def auto_route(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a model with experts")],
    config: AutoRouteConfig,
    pairs: Annotated[
        Path | None,
        typer.Option(help="Pairs folder; the routes are learned from its training texts and their domains"),
    ] = None,
    texts: Annotated[
        Path | None, typer.Option(help="File of texts and routes to learn from, instead of pairs")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Teach a model to choose routes; then `--route auto` and prompt_name="auto" encode any text.

    The classifier is stored in the model's folder. Shows how often texts that were not learned from get the
    route of their domain, and what the mistakes cost: F1max with the true routes and with automatic ones.

    Example: sentence-experts auto-route runs/experts/model --pairs my-pairs
    """
    check_source(model)
    check_there(pairs, texts)
    from sentence_experts.evaluation.auto_route import auto_route as teach
    from sentence_experts.report.models import auto_route_tables
    from sentence_experts.report.tables import for_terminal

    result = teach(model, pairs, config, texts=texts, save=True, overwrite=overwrite)
    show(f"{model}: automatic routes, learned from {result.learned:,} texts")
    for table in auto_route_tables(result, config.confidence, config.split):
        results.print(for_terminal(table))
