"""`sentence-experts auto-route`: have a model choose the routes of texts by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentence_experts.cli.console import results
from sentence_experts.errors import InputError, UsageError

if TYPE_CHECKING:
    from sentence_experts.evaluation.auto_route import Labelled
    from sentence_experts.pairs.dataset import Pairs

HELD_OUT = 5  # of a file of texts, every fifth measures the accuracy


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("auto-route")(auto_route)


def auto_route(
    model: Annotated[
        Path, typer.Argument(help="folder of a model with experts; the routes are stored in it")
    ],
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="folder written by `pairs`: its training texts, and their domains, teach the routes"
        ),
    ] = None,
    texts: Annotated[
        Path | None, typer.Option(help="file of texts and routes to learn from in place of the pairs")
    ] = None,
    column: Annotated[str, typer.Option(help="column with the texts of that file")] = "text",
    route_column: Annotated[str, typer.Option(help="column with their routes")] = "domain",
    texts_per_route: Annotated[int, typer.Option(min=2, help="texts to learn from, at most, a route")] = 2000,
    confidence: Annotated[float, typer.Option(help="probability from which a choice is followed")] = 0.5,
    fallback: Annotated[
        str, typer.Option(help="below that: average (the mean of all experts encodes the text) or error")
    ] = "average",
    split: Annotated[str, typer.Option(help="the pairs on which the cost is measured")] = "validation",
    seed: Annotated[int, typer.Option(help="of the draw of texts")] = 0,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, ...; chosen by itself when not given")
    ] = None,
) -> None:
    """Teach a model to choose routes; then `--route auto` and prompt_name="auto" encode any text.

    Shows how often texts that were not learned from get their domain's route, and what the mistakes cost:
    F1max with the true routes and with automatic ones.

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
        raise UsageError("give --pairs, or --texts with a file of texts and routes")
    folder = None if pairs is None else Pairs.open(pairs)
    measured_on = None if folder is None else folder.split(split)
    known, unseen = _learned_and_unseen(folder, texts, column, route_column, texts_per_route, seed)
    load_quietly()
    encoder = check_experts(load(model, device=device, int8=False))
    fitted = fit_auto_routes(
        encoder,
        [text for text, _ in known],
        [route for _, route in known],
        confidence=confidence,
        fallback=fallback,
    )
    fitted.write_auto_routes(model)
    results.print(f"{model}: automatic routes, learned from {len(known):,} texts", highlight=False)
    if unseen:
        results.print(choice_table(choices(fitted, unseen), confidence))
    if measured_on is not None:
        results.print(cost_table(cost_of_mistakes(fitted, measured_on), split))


def _learned_and_unseen(
    folder: Pairs | None, file: Path | None, column: str, route_column: str, of_each: int, seed: int
) -> tuple[list[Labelled], list[Labelled]]:
    """Texts to learn from, and others to measure on."""
    from sentence_experts.evaluation.auto_route import labelled_texts

    if file is None:
        assert folder is not None  # one of the two is given
        known = labelled_texts(folder.split("train"), of_each, seed)
    else:
        known = _read_labelled(file, column, route_column)
    if folder is None:
        return [one for number, one in enumerate(known) if number % HELD_OUT], known[::HELD_OUT]
    learned = {text for text, _ in known}
    return known, labelled_texts(folder.split("validation"), of_each, seed, without=learned)


def _read_labelled(file: Path, column: str, route_column: str) -> list[Labelled]:
    """The texts and routes of a file, in an order that says nothing of theirs."""
    from sentence_experts.evaluation.auto_route import sampled
    from sentence_experts.tables import TextTable

    routes: dict[str, str] = {}
    for number, row in enumerate(TextTable(file, column, route_column).rows(), start=1):
        if not row.id:
            raise InputError(f"{file}: record {number} has no {route_column}")
        routes[row.text] = row.id
    return [(text, routes[text]) for text in sampled(routes, None, seed=0)]
