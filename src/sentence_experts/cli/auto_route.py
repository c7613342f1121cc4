"""`sentence-experts auto-route`: teach a model to choose the routes of texts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from sentence_experts.cli.console import results, show
from sentence_experts.cli.options import Overwrite, add_verb
from sentence_experts.errors import UsageError
from sentence_experts.models.routing.config import AutoRouteConfig


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, auto_route, "auto-route")


def auto_route(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a model with experts")],
    config: AutoRouteConfig,
    pairs: Annotated[
        Path | None, typer.Option(help="Pairs folder: its training texts and their domains teach the routes")
    ] = None,
    texts: Annotated[
        Path | None, typer.Option(help="File of texts and routes to learn from, instead of pairs")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Teach a model to choose routes; then `--route auto` and prompt_name="auto" encode any text.

    The classifier is stored in the model's folder. Shows how often texts that were not learned from get the
    route of their domain, and what the mistakes cost: F1max with the true routes and with automatic ones.

    Example: sentence-experts auto-route runs/experts/model --pairs my-pairs
    """
    from sentence_experts.evaluation.auto_route import auto_route as teach
    from sentence_experts.models.routing.route_classifier import auto_route_output
    from sentence_experts.models.storage.fingerprint import path_fingerprint
    from sentence_experts.report.model_tables import choice_table, cost_table
    from sentence_experts.storage import locked, note_changes, sha256_file

    if pairs is None and texts is None:
        raise UsageError("give `pairs`, or `texts` with texts and their routes")
    read = {name: path for name, path in (("pairs", pairs), ("texts", texts)) if path is not None}
    with locked(model, "auto-route"), auto_route_output(model, overwrite) as place:
        inputs = {name: partial(path_fingerprint, path) for name, path in read.items()}
        weights = {file.name: sha256_file(file) for file in sorted(model.glob("*.safetensors"))}
        chosen = config.model_dump(mode="json", exclude={"device"})
        if place.begin({"weights": weights, "config": chosen}, inputs) == "finished":
            return
        found = teach(model, pairs, config, texts=texts)
        changed = found.model.write_auto_routes(model)
        place.finish()
        note_changes(model, changed)
    show(f"{model}: automatic routes, learned from {found.learned:,} texts")
    if found.choices is not None:
        results.print(choice_table(found.choices, config.confidence))
    if found.cost is not None:
        results.print(cost_table(found.cost, config.split))
