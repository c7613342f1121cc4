"""`sentence-experts encode`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sentence_experts.cli.console import show
from sentence_experts.cli.options import Model, add_verb
from sentence_experts.encoding.config import EncodeConfig
from sentence_experts.models.loading import LoadConfig


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, encode)


def encode(
    model: Model,
    input: Annotated[
        Path, typer.Option(help="Texts: .txt (one per line), .csv, .tsv, .jsonl, each also .gz, or .parquet")
    ],
    out: Annotated[Path, typer.Option(help="Vectors: .parquet (row, id, vector) or .npy (one array)")],
    config: EncodeConfig,
    load_config: LoadConfig,
) -> None:
    """Encode the texts of a file, in their order.

    An interrupted run continues when the same command is given again.

    Example: sentence-experts encode runs/experts/model --input papers.csv --column text --out v.npy
    """
    from sentence_experts.encoding import encode as encoding
    from sentence_experts.models.loading import load
    from sentence_experts.tables import TextTable

    encoding.check_out(TextTable(input, config.column, config.id_column), out, config)
    encoded = encoding.encode(load(model, load_config), input, config, out)
    empty = f", {encoded.empty:,} of them empty" if encoded.empty else ""
    show(f"{encoded.path}: {encoded.texts:,} texts{empty}, {encoded.dimension} dimensions")
