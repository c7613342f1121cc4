"""`sentence-experts encode`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sentence_experts.cli.console import show
from sentence_experts.cli.options import TEXTS, Model, Overwrite, one_of
from sentence_experts.encoding.config import EncodeConfig
from sentence_experts.errors import UsageError
from sentence_experts.models.loading import LoadConfig


def encode(
    model: Model,
    out: Annotated[
        str,
        typer.Option(help="Vectors: .parquet (row, id, vector), .npy (one array), or a folder"),
    ],
    config: EncodeConfig,
    load_config: LoadConfig,
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="Into a folder: files, folders and patterns ('papers/*.parquet')",
        ),
    ] = None,
    input_file: Annotated[Path | None, typer.Option("--input", help=TEXTS)] = None,
    overwrite: Overwrite = False,
) -> None:
    """Encode the texts of a file, in their order, or of many files.

    An interrupted run continues when the same command is given again.

    Example: sentence-experts encode runs/experts/model --input papers.csv --column text --out v.npy

    Example: sentence-experts encode runs/experts/model papers/ --column text --id-column id --route all
    --out vectors
    """
    from sentence_experts.encoding.encode import encode as encode_texts
    from sentence_experts.encoding.vector_files import is_folder

    texts = one_of(sources=sources, input_file=input_file and [input_file])
    if len(texts) > 1 and not is_folder(out):
        raise UsageError(f"{out}: several inputs are encoded into a folder: give one as `out`")
    source = texts[0] if len(texts) == 1 else texts
    encoded = encode_texts(model, source, config, out=out, overwrite=overwrite, load_config=load_config)
    empty = f", {encoded.empty:,} of them empty" if encoded.empty else ""
    columns = f" ({', '.join(encoded.routes)})" if is_folder(out) else ""
    show(f"{encoded.path}: {encoded.texts:,} texts{empty}, {encoded.dimension} dimensions{columns}")
