"""`sentence-experts add-expert`: add an expert to a model that has experts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sentence_experts.cli.extend import describe
from sentence_experts.cli.options import Model, ModelOut, Overwrite, add_verb, check_there
from sentence_experts.models.sources import check_source
from sentence_experts.models.surgery.extend_config import AddExpertConfig


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, add_expert, "add-expert")


def add_expert(
    model: Model,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new expert and its route")],
    out: ModelOut,
    config: AddExpertConfig,
    tasks: Annotated[
        Path | None, typer.Option(help="Task file or tasks folder that has the route's instruction")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(help="With --seed-from base: the base that the model was made from, such as minilm"),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Add an expert and its route to a model; all other routes keep their vectors to the bit.

    Then train it alone: sentence-experts train OUT --only-expert NAME --routes NAME ...

    Example: sentence-experts add-expert runs/experts/model skin --out grown
    """
    check_source(model, base)
    check_there(tasks)
    from sentence_experts.models.surgery.grow import add_expert as add

    describe(add(model, name, config, tasks=tasks, base=base, out=out, overwrite=overwrite), out)
