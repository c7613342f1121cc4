"""`sentence-experts encode`."""

from __future__ import annotations

from pathlib import Path

import typer

from sentence_experts.cli.console import results
from sentence_experts.cli.options import BATCH_SIZE_HELP, only_route


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("encode")(encode)


def encode(
    model: str = typer.Argument(..., help="Model folder or hub id."),
    input: Path = typer.Option(
        ..., help="Texts: .txt (one a line), .csv, .tsv, .jsonl, each also .gz, or .parquet."
    ),
    out: Path = typer.Option(..., help="Vectors: .parquet (row, id, vector) or .npy (a float32 matrix)."),
    route: str | None = typer.Option(None, help="Route to encode with; needed where the model has routes."),
    column: str | None = typer.Option(None, help="Column with the texts; not for .txt."),
    id_column: str | None = typer.Option(None, help="Column to carry along as id (.parquet output)."),
    normalize: bool = typer.Option(False, help="Scale every vector to length 1."),
    chunk_size: int = typer.Option(1024, min=1, help="Texts encoded between two saves."),
    batch_size: int | None = typer.Option(None, min=1, help=BATCH_SIZE_HELP),
    one_route: bool = typer.Option(
        False, "--one-route", help="Load only the expert of --route; the vectors are the same, to the bit."
    ),
    precision: str = typer.Option(
        "float32", help="Of the vectors in .npy: float32, float16, int8, uint8, binary or ubinary."
    ),
    dtype: str | None = typer.Option(
        None,
        help="Compute in float16 or bfloat16, for a GPU, or float32; otherwise in the model's own, or in the "
        "8 bits that it is calibrated for.",
    ),
    padded: bool = typer.Option(
        False, "--padded", help="Compute the padding of batches too: the plain path, slower on a CPU."
    ),
    device: str | None = typer.Option(None, help="cpu, cuda, cuda:1, mps; chosen by itself when not given."),
) -> None:
    """Turn the texts of a file into vectors, one a text, in the same order.

    An interrupted run goes on where it stopped when the same command is given again.

    Example: sentence-experts encode runs/experts/model --input papers.csv --column text --out v.npy
    """
    from sentence_experts.encoding.encoder import BatchEncoder
    from sentence_experts.encoding.files import encode_file
    from sentence_experts.encoding.inputs import TextFile
    from sentence_experts.encoding.precisions import check_precision
    from sentence_experts.models.loading import load

    source = TextFile(input, column, id_column)
    source.check()
    check_precision(precision, out)
    encoder = BatchEncoder(
        load(model, device=device, packed=not padded, dtype=dtype, routes=only_route(one_route, route)),
        batch_size,
    )
    found = encode_file(encoder, source, out, route, normalize, chunk_size, precision)
    empty = f", {found.empty:,} of them empty" if found.empty else ""
    results.print(
        f"{found.path}: {found.texts:,} texts{empty}, {found.dimension} dimensions",
        markup=False,
        highlight=False,
    )
