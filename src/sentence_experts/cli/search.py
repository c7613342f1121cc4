"""`sentence-experts search`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from sentence_experts.cli.console import note, results, show
from sentence_experts.cli.options import CORPUS, Model, add_verb
from sentence_experts.models.loading import LoadConfig
from sentence_experts.retrieval.config import SearchConfig


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, search, short={"top_k": "-k"})


def search(
    model: Model,
    queries: Annotated[list[str], typer.Argument(metavar="QUERY...", help="One or more texts to search for")],
    corpus: Annotated[Path, typer.Option(help=CORPUS)],
    config: SearchConfig,
    load_config: LoadConfig,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a list")] = False,
) -> None:
    """Find the papers of a corpus that are nearest to a text.

    The corpus is encoded the first time; its vectors are stored beside it, and computed again when the model
    or the corpus changes. Each line: rank, cosine, year, title, id.

    Example: sentence-experts search runs/experts/model --corpus corpus "drought in rice" --route crops -k 5
    """
    from sentence_experts.compat.imports import allow_deferred_imports
    from sentence_experts.corpus.tables import CorpusFolder
    from sentence_experts.retrieval.search import search as search_corpus

    allow_deferred_imports()
    folder = CorpusFolder.open(corpus)
    result = search_corpus(model, folder, queries, config, load_config=load_config)
    if as_json:
        answers = [{"query": query, "papers": papers} for query, papers in result]
        typer.echo(json.dumps(answers, indent=1, ensure_ascii=False))
        return
    for query, papers in result:
        _show(query, papers)
    if len(result.papers[0]) < config.top_k:
        note(f"the corpus has only {len(result.papers[0])} papers with a {config.unit.replace('+', ' or ')}")


def _show(query: str, papers: list[dict[str, Any]]) -> None:
    results.print(f"\n{query}", style="bold", highlight=False)
    for paper in papers:
        retracted = " [retracted]" if paper.get("retracted") else ""
        line = f"{paper['rank']:>3}  {paper['score']:.3f}  {paper.get('year') or '    '}  "
        show(f"{line}{paper.get('title') or '(no title)'}{retracted}  {paper['paper_id']}")
