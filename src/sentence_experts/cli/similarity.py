"""`sentence-experts similarity`: how similar the vectors of a text are under different routes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sentence_experts.cli.console import results, show
from sentence_experts.cli.options import Input, Model, Overwrite, add_verb
from sentence_experts.evaluation.config import SimilarityConfig

FIGURES, FIGURE = "similarity.json", "similarity.png"


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, similarity)


def similarity(
    model: Model,
    texts: Input,
    out: Annotated[Path, typer.Option(help=f"Folder for {FIGURES} and {FIGURE}")],
    config: SimilarityConfig,
    against: Annotated[
        str | None,
        typer.Option(help="Another model with the same routes: test whether the cosines of MODEL are lower"),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Measure the cosine of one text's vectors under every pair of routes (MoTE, section 5.2).

    With --against, a one-sided Welch test for each pair of routes: is the mean of MODEL lower, are its routes
    more specialised? p-values are shown raw, and corrected for the number of pairs (Holm).

    Example: sentence-experts similarity mote --against ic --texts articles.txt --out similarity
    """
    from sentence_experts.errors import require
    from sentence_experts.models.routes.known_routes import check_route

    for source in filter(None, (model, against)):
        for route in config.routes or ():
            check_route(source, route)
    from sentence_experts.evaluation.similarity import similarity as measure

    require("matplotlib", "report")  # before anything is encoded
    measured = measure(model, texts, config, out, overwrite, against=against)
    from sentence_experts.report.models import similarity_table  # imports torch: after the checks
    from sentence_experts.report.tables import for_terminal
    from sentence_experts.report.write import write_report

    figure = write_report(measured, out)
    results.print(for_terminal(similarity_table(measured)))
    show(f"{out / FIGURES}, {figure}")
