"""`sentence-experts search`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from sentence_experts.cli.console import note, results
from sentence_experts.cli.options import BATCH_SIZE_HELP, only_route
from sentence_experts.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("search")(search)


def search(
    model: str = typer.Argument(..., help="Model folder or hub id."),
    queries: list[str] = typer.Argument(
        ..., metavar="QUERY...", help="What to look for; several are allowed."
    ),
    corpus: Path = typer.Option(..., help="Folder written by `sentence-experts corpus`."),
    route: str | None = typer.Option(
        None, help="Route for papers and queries; needed where the model has routes."
    ),
    k: int = typer.Option(10, "-k", "--neighbours", min=1, help="How many papers to show for each query."),
    unit: str = typer.Option("title+abstract", help="Text of a paper: title+abstract, abstract or title."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a list."),
    batch_size: int | None = typer.Option(None, min=1, help=BATCH_SIZE_HELP),
    one_route: bool = typer.Option(
        False, "--one-route", help="Load only the expert of --route; the vectors are the same, to the bit."
    ),
    device: str | None = typer.Option(None, help="cpu, cuda, cuda:1, mps; chosen by itself when not given."),
) -> None:
    """Find the papers of a corpus that are nearest to a text.

    The corpus is encoded the first time; its vectors are kept beside it and made again when the model or the
    corpus changes. Each line: rank, cosine, year, title, id.

    Example: sentence-experts search runs/experts/model --corpus corpus "drought in rice" --route crops -k 5
    """
    from sentence_experts.corpus.tables import CorpusFolder
    from sentence_experts.encoding.encoder import BatchEncoder
    from sentence_experts.models.loading import load
    from sentence_experts.retrieval.search import find_papers

    if not all(query.strip() for query in queries):
        raise UsageError("a query is empty")
    folder = CorpusFolder.open(corpus)
    encoder = BatchEncoder(load(model, device=device, routes=only_route(one_route, route)), batch_size)
    found = find_papers(encoder, folder, queries, route, unit, k)
    if as_json:
        import json

        typer.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return
    for answer in found:
        _show(answer)
    if len(found[0]["papers"]) < k:
        note(f"the corpus has only {len(found[0]['papers'])} papers with a {unit.replace('+', ' or ')}")


def _show(answer: dict[str, Any]) -> None:
    results.print(f"\n{answer['query']}", style="bold", markup=False, highlight=False)
    for paper in answer["papers"]:
        retracted = " [retracted]" if paper.get("retracted") else ""
        line = f"{paper['rank']:>3}  {paper['score']:.3f}  {paper.get('year') or '    '}  "
        results.print(
            f"{line}{paper.get('title') or '(no title)'}{retracted}  {paper['paper_id']}",
            markup=False,
            highlight=False,
        )
