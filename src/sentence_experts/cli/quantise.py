"""`sentence-experts quantise`: a model that computes in 8 bits on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentence_experts.cli.console import results
from sentence_experts.errors import UsageError

if TYPE_CHECKING:
    from sentence_experts.encoding.encoder import BatchEncoder

READ = 512  # texts of a file that are read
CHECKED_EVERY = 4  # one in so many is kept out of the calibration, for the check


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("quantise")(quantise)


def quantise(
    model: Annotated[str, typer.Argument(help="folder or hub id of a model, with experts or dense")],
    texts: Annotated[
        Path, typer.Option(help="a file of texts like those to encode, as `encode --input`; 500 are enough")
    ],
    out: Annotated[Path, typer.Option(help="folder to write the model to")],
    column: Annotated[str | None, typer.Option(help="column with the texts; not for .txt")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the model in that folder")] = False,
) -> None:
    """Calibrate a model for 8 bits: encode, search and evaluate then compute so on a CPU.

    The folder holds the model's weights as they were, and int8.safetensors beside them, which stock
    sentence-transformers does not read. Ends with the cosines to the vectors of full precision, on texts that
    were not calibrated on.

    Example: sentence-experts quantise runs/experts/model --texts papers.csv --column abstract --out moe-int8
    """
    from sentence_experts.encoding.encoder import BatchEncoder
    from sentence_experts.models.encoder import save
    from sentence_experts.models.export import int8
    from sentence_experts.models.loading import load
    from sentence_experts.tables import TextTable

    if out.exists() and not overwrite:
        raise UsageError(f"{out} is there already; choose another --out, or replace it with --overwrite")
    source = TextTable(texts, column)
    source.check()
    read = [row.text for rows in source.chunks(READ) for row in rows if row.text.strip()][:READ]
    held = read[::CHECKED_EVERY]
    kept = [text for number, text in enumerate(read) if number % CHECKED_EVERY]
    encoder = BatchEncoder(load(model, device="cpu", dtype="float32"))
    leads = list(encoder.routes.values()) if encoder.has_experts else [""]
    calibration = [lead + text for lead in leads for text in kept]
    found = int8.calibrate(encoder.model, calibration)
    save(encoder.model, out)
    int8.write(found, out)
    _compare(encoder, BatchEncoder(load(out, device="cpu")), held, out)


def _compare(whole: BatchEncoder, eight: BatchEncoder, texts: list[str], out: Path) -> None:
    import numpy as np

    from sentence_experts.encoding.encoder import cosines

    routes = list(whole.routes) if whole.has_experts else [None]
    found = np.concatenate([cosines(whole.encode(texts, one), eight.encode(texts, one)) for one in routes])
    results.print(
        f"{out}: 8 bits; cosine to full precision on {len(texts):,} other texts: mean {found.mean():.4f}, "
        f"least {found.min():.4f}",
        markup=False,
        highlight=False,
    )
