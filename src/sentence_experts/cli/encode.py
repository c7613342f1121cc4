"""`sentence-experts encode`."""

from __future__ import annotations

import typer

from sentence_experts.cli.console import show
from sentence_experts.cli.options import Input, Model, Overwrite, Vectors, add_verb
from sentence_experts.encoding.config import EncodeConfig
from sentence_experts.models.loading import LoadConfig


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, encode)


def encode(
    model: Model,
    input: Input,
    out: Vectors,
    config: EncodeConfig,
    load_config: LoadConfig,
    overwrite: Overwrite = False,
) -> None:
    """Encode the texts of a file, in their order.

    An interrupted run continues when the same command is given again.

    Example: sentence-experts encode runs/experts/model --input papers.csv --column text --out v.npy
    """
    from sentence_experts.compat.imports import allow_deferred_imports
    from sentence_experts.encoding import encode as encoding

    allow_deferred_imports()
    encoded = encoding.encode(model, input, config, out, overwrite, load_config=load_config)
    empty = f", {encoded.empty:,} of them empty" if encoded.empty else ""
    show(f"{encoded.path}: {encoded.texts:,} texts{empty}, {encoded.dimension} dimensions")
