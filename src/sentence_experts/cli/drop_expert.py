"""`sentence-experts drop-expert`: drop an expert from a model that has experts."""

from __future__ import annotations

from typing import Annotated

import typer

from sentence_experts.cli.extend import describe
from sentence_experts.cli.options import Model, ModelOut, Overwrite, add_verb
from sentence_experts.models.sources import check_source


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, drop_expert, "drop-expert")


def drop_expert(
    model: Model,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the expert")],
    out: ModelOut,
    overwrite: Overwrite = False,
) -> None:
    """Drop an expert, its routes and its token from a model; all other routes keep their vectors to the bit.

    Example: sentence-experts drop-expert runs/experts/model skin --out without-skin
    """
    check_source(model)
    from sentence_experts.models.surgery.grow import drop_expert as drop

    describe(drop(model, name, out=out, overwrite=overwrite), out)
