"""`sentence-experts export`: one route, or the mean of all experts, as a plain dense model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sentence_experts.cli.console import show
from sentence_experts.cli.options import Model, Overwrite, add_verb
from sentence_experts.models.export.export_config import ExportConfig
from sentence_experts.models.sources import check_source


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, export)


def export(
    model: Model,
    out: Annotated[Path, typer.Option(help="Folder to write the dense model to")],
    config: ExportConfig,
    overwrite: Overwrite = False,
) -> None:
    """Write a dense model of the base's family that loads without this package.

    It has the base's tokenizer and number of parameters, and gives the route's vectors. With --all-routes one
    ONNX graph of all routes, its experts' weights beside those that they share.

    Example: sentence-experts export runs/experts/model --route copd --out copd-encoder
    """
    from sentence_experts.models.routes.known_routes import check_route
    from sentence_experts.models.sources import load_quietly

    check_source(model)
    if config.route is not None:
        check_route(model, config.route, or_expert=True)
    load_quietly()
    from sentence_experts.models.export.export import export as export_model

    exported = export_model(model, out, config, overwrite)
    if config.all_routes:
        show(f"{out}: one graph of {len(exported.model.prompts)} routes, {exported.parameters:,} parameters")
        show(f"  largest difference from torch {exported.onnx_difference:.1e}; README.md has a loader")
        return
    show(f"{out}: a {exported.model_type} of {exported.parameters:,} parameters")
    if exported.default_prompt is not None:
        show(f"  default prompt, in front of every text: {exported.default_prompt!r}")
    show("use it: from sentence_transformers import SentenceTransformer")
    show(f'        SentenceTransformer("{out}").encode(texts)')
    if exported.onnx_difference is not None:
        show(
            f"{out / 'model.onnx'}: outputs sentence_embedding (finished vectors) and token_embeddings; "
            f"largest difference from torch {exported.onnx_difference:.1e}"
        )
