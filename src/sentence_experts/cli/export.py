"""`sentence-experts export`: one route, or the mean of all experts, as a plain dense model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sentence_experts.cli.console import results
from sentence_experts.errors import UsageError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("export")(export)


def export(
    model: Annotated[str, typer.Argument(help="folder or hub id of a model with experts")],
    out: Annotated[Path, typer.Option(help="folder to write the dense model to")],
    route: Annotated[
        str | None, typer.Option(help="the route to export; an expert's name where the model has no routes")
    ] = None,
    average: Annotated[
        bool, typer.Option("--average", help="export the mean of all experts and of their tokens (MoTE)")
    ] = False,
    weights: Annotated[
        str | None, typer.Option(help="with --average: copd=2,cvd=1; experts not named are left out")
    ] = None,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="also write model.onnx, checked against the vectors of torch")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the model in that folder")] = False,
) -> None:
    """Write a dense model of the base's family that loads without this package.

    It has the base's tokenizer and number of parameters, and gives the route's vectors.

    Example: sentence-experts export runs/experts/model --route copd --out copd-encoder
    """
    if (route is None) != average:
        raise UsageError("give one of --route NAME and --average")
    if weights is not None and not average:
        raise UsageError("--weights is for --average")
    if out.exists() and not overwrite:
        raise UsageError(f"{out} is there already; choose another --out, or replace it with --overwrite")
    shares = None if weights is None else _parse_weights(weights)

    from sentence_experts.models.encoder import check_experts, save
    from sentence_experts.models.loading import load
    from sentence_experts.models.sources import load_quietly
    from sentence_experts.models.surgery.merge import average_experts, export_route

    load_quietly()
    encoder = check_experts(load(model, device="cpu", int8=False))
    dense = average_experts(encoder, shares) if route is None else export_route(encoder, route)
    save(dense, out)
    _describe(dense, out)
    if onnx:
        from sentence_experts.models.export.onnx import write_onnx

        difference = write_onnx(dense, out)
        results.print(
            f"{out / 'model.onnx'}: outputs sentence_embedding (finished vectors) and token_embeddings; "
            f"largest difference from torch {difference:.1e}",
            markup=False,
        )


def _describe(dense: SentenceTransformer, out: Path) -> None:
    transformer: Any = dense[0]
    parameters = sum(parameter.numel() for parameter in dense.parameters())
    results.print(f"{out}: a {transformer.config.model_type} of {parameters:,} parameters", markup=False)
    if dense.default_prompt_name:
        prompt = dense.prompts[dense.default_prompt_name]
        results.print(f"  default prompt, in front of every text: {prompt!r}", markup=False)
    results.print(
        "use it: from sentence_transformers import SentenceTransformer\n"
        f'        SentenceTransformer("{out}").encode(texts)',
        markup=False,
    )


def _parse_weights(given: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for one in given.split(","):
        name, _, number = one.partition("=")
        try:
            weights[name.strip()] = float(number)
        except ValueError as error:
            raise UsageError(f"--weights {one!r}: write EXPERT=NUMBER, as in copd=2,cvd=1") from error
    return weights
