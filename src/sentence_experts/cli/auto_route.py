"""`sentence-experts auto-route`: teach a model to choose the routes of texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from pydantic import Field

from sentence_experts.cli.console import results, show
from sentence_experts.cli.options import Model, add_verb
from sentence_experts.config import Config
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.routing.config import AutoRouteConfig

if TYPE_CHECKING:
    from sentence_experts.evaluation.auto_route import Labelled
    from sentence_experts.pairs.dataset import Pairs

HELD_OUT = 5  # of a file of texts, every fifth measures the accuracy


class Learning(Config):
    """Which texts teach the routes, and which measure them."""

    column: str = Field("text", description="Column with the texts of `texts`")
    route_column: str = Field("domain", description="Column with their routes")
    texts_per_route: int = Field(2000, ge=2, description="Maximum number of texts to learn from, per route")
    split: Literal["train", "validation", "test"] = Field(
        "validation", description="Pairs on which the cost of mistakes is measured"
    )
    seed: int = Field(0, ge=0, description="Random seed of the sample of texts")
    device: str | None = Field(None, description="cpu, cuda, ... Default: the best one that this machine has")


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, auto_route, "auto-route")


def auto_route(
    model: Model,
    config: AutoRouteConfig,
    learning: Learning,
    pairs: Annotated[
        Path | None, typer.Option(help="Pairs folder: its training texts and their domains teach the routes")
    ] = None,
    texts: Annotated[
        Path | None, typer.Option(help="File of texts and routes to learn from, instead of pairs")
    ] = None,
) -> None:
    """Teach a model to choose routes; then `--route auto` and prompt_name="auto" encode any text.

    The classifier is stored in the model's folder. Shows how often texts that were not learned from get the
    route of their domain, and what the mistakes cost: F1max with the true routes and with automatic ones.

    Example: sentence-experts auto-route runs/experts/model --pairs my-pairs
    """
    from sentence_experts.evaluation.auto_route import choices, cost_of_mistakes
    from sentence_experts.models.encoder import check_experts
    from sentence_experts.models.loading import load
    from sentence_experts.models.routing.automatic import fit_auto_routes
    from sentence_experts.models.sources import load_quietly
    from sentence_experts.pairs.dataset import Pairs
    from sentence_experts.report.model_tables import choice_table, cost_table

    if pairs is None and texts is None:
        raise UsageError("give `pairs`, or `texts` with a file of texts and routes")
    folder = None if pairs is None else Pairs.of(pairs)
    known, unseen = _learned_and_unseen(folder, texts, learning)
    load_quietly()
    encoder = check_experts(load(model, device=learning.device, int8=False))
    fitted = fit_auto_routes(encoder, [text for text, _ in known], [route for _, route in known], config)
    fitted.write_auto_routes(Path(model))
    show(f"{model}: automatic routes, learned from {len(known):,} texts")
    if unseen:
        results.print(choice_table(choices(fitted, unseen), config.confidence))
    if folder is not None:
        cost = cost_of_mistakes(fitted, folder.split(learning.split))
        results.print(cost_table(cost, learning.split))


def _learned_and_unseen(
    folder: Pairs | None, file: Path | None, learning: Learning
) -> tuple[list[Labelled], list[Labelled]]:
    """Texts to learn from, and others to measure on."""
    from sentence_experts.evaluation.auto_route import labelled_texts

    if file is None:
        assert folder is not None  # one of the two is given
        known = labelled_texts(folder.split("train"), learning.texts_per_route, learning.seed)
    else:
        known = _read_labelled(file, learning.column, learning.route_column)
    if folder is None:
        return [one for number, one in enumerate(known) if number % HELD_OUT], known[::HELD_OUT]
    learned = {text for text, _ in known}
    return known, labelled_texts(
        folder.split("validation"), learning.texts_per_route, learning.seed, without=learned
    )


def _read_labelled(file: Path, column: str, route_column: str) -> list[Labelled]:
    """The texts and routes of a file, in an order that does not depend on the routes."""
    from sentence_experts.evaluation.auto_route import sampled
    from sentence_experts.tables import TextTable

    routes: dict[str, str] = {}
    for number, row in enumerate(TextTable(file, column, route_column).rows(), start=1):
        if not row.id:
            raise InputError(f"{file}: record {number} has no {route_column}")
        routes[row.text] = row.id
    return [(text, routes[text]) for text in sampled(routes, None, seed=0)]
