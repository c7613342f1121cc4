"""`sentence-experts quantize`: a model that computes in 8 bits on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sentence_experts.cli.console import show
from sentence_experts.cli.options import Model, ModelOut, Overwrite, add_verb
from sentence_experts.models.export.export_config import QuantizeConfig
from sentence_experts.models.sources import check_source


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, quantize)


def quantize(
    model: Model,
    texts: Annotated[
        Path, typer.Option(help="Texts like those to encode (as `encode --input`); 500 are enough")
    ],
    out: ModelOut,
    config: QuantizeConfig,
    overwrite: Overwrite = False,
) -> None:
    """Calibrate a model for 8 bits, in which encode, search and evaluate then compute on a CPU.

    The folder holds the weights as they were, and int8.safetensors beside them, which stock
    sentence-transformers does not read. Shows the cosines to the vectors of full precision, on texts that
    were not calibrated on.

    Example: sentence-experts quantize runs/experts/model --texts papers.csv --column abstract --out moe-int8
    """
    from sentence_experts.tables import TextTable

    TextTable(texts, config.column).check()
    check_source(model)
    from sentence_experts.models.export.quantize import quantize as quantize_model

    quantized = quantize_model(model, texts, out, config, overwrite)
    show(
        f"{out}: 8 bits; cosine to full precision on {quantized.texts:,} other texts: mean "
        f"{quantized.mean_cosine:.4f}, minimum {quantized.min_cosine:.4f}"
    )
