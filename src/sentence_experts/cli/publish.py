"""`sentence-experts publish`: a model as a repository of the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from sentence_experts.cli.console import show
from sentence_experts.cli.options import Model, Overwrite, add_verb, check_there
from sentence_experts.hub.config import PublishConfig
from sentence_experts.models.sources import check_source


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, publish)


def publish(
    model: Model,
    repo: Annotated[str, typer.Option(help="Id of the repository, such as me/name")],
    config: PublishConfig,
    evaluation: Annotated[
        Path | None, typer.Option(help="Folder that `evaluate` wrote for pairs; the card shows its figures")
    ] = None,
    data: Annotated[
        list[str], Field(description="Folders of the pairs and tasks that the model was trained on")
    ] = [],  # noqa: B006
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to assemble the repository in, to look at it before the upload"),
    ] = None,
    upload: Annotated[
        bool, typer.Option("--upload", help="Upload the files; without, they are only shown")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Put a model on the Hugging Face hub: shows card, files, sizes and checksums; --upload uploads them.

    The repository holds one file per expert, so that `load(..., routes=[...])` fetches only what it needs,
    and a card with routes, base, data, results and limits. The access token is the hub's own (`hf auth
    login`, or HF_TOKEN).

    Example: sentence-experts publish runs/experts/model --repo me/name --dense all --evaluation results
    """
    check_source(model)
    check_there(evaluation, *map(Path, data))
    from sentence_experts.models.sources import load_quietly

    load_quietly()
    from sentence_experts.hub.publish import publish as publish_model

    done = publish_model(
        model, repo, config, evaluation=evaluation, data=data, out=out, upload=upload, overwrite=overwrite
    )
    show(done.card)
    width = max(len(f"{file.size:,}") for file in done.files)
    for file in done.files:
        show(f"{file.sha256}  {f'{file.size:,}':>{width}}  {file.path}")
    where = "" if out is None else f", in {out}"
    show(f"{repo}: {len(done.files)} files, {done.size:,} bytes{where}")
    show(f"uploaded: {done.commit}" if done.commit else "nothing was uploaded; --upload does")
