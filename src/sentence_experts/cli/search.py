"""`sentence-experts index build|teach|screen|search|serve`: encode and search a corpus, and serve models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from sentence_experts.cli.console import note, results, show
from sentence_experts.cli.options import CORPUS, Model, Models, check_there, group
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.loading import LoadConfig
from sentence_experts.retrieval.build import CorpusIndex, IndexConfig, build_index
from sentence_experts.retrieval.papers import Filters
from sentence_experts.retrieval.screening import ScreenConfig
from sentence_experts.retrieval.screening import screen as screen_corpus
from sentence_experts.retrieval.search import SearchConfig, is_table, lines_of
from sentence_experts.retrieval.search import search as search_corpus
from sentence_experts.retrieval.teach import TeachConfig
from sentence_experts.retrieval.teach import teach as teach_route
from sentence_experts.serve.config import ServeConfig
from sentence_experts.storage import write_new_text


def build(
    model: Model,
    corpus: Annotated[Path, typer.Option(help=CORPUS)],
    config: IndexConfig,
    load_config: LoadConfig,
) -> None:
    """Encode the papers of a corpus, so that `search` finds their vectors.

    There is one set of vectors for each route. It stays valid when the model gets another expert. When the
    corpus has grown, only new papers are encoded. The same command continues an interrupted build.

    Example: sentence-experts index build runs/experts/model --corpus corpus --route all
    """
    show_index(build_index(model, corpus, config, load_config=load_config))


def show_index(index: CorpusIndex) -> None:
    """Show which vectors stand beside a corpus, and whether they fit it."""
    show(index)
    if not index.parts:
        show(f"make some: sentence-experts index build MODEL --corpus {index.corpus.path}")


index = group(
    "Encode a corpus for search.\n\n"
    "Example: sentence-experts index build runs/experts/model --corpus corpus --route all",
    build,
)


def teach(
    model: Model,
    examples: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE",
            help="Table of papers of the corpus: paper (DOI, PMID, PMCID or id), similar (yes or no), and "
            "query or like, if they were judged against a text or a paper",
        ),
    ],
    corpus: Annotated[Path, typer.Option(help=CORPUS)],
    config: TeachConfig,
    load_config: LoadConfig,
) -> None:
    """Teach a kind of similarity from papers that are similar in your sense, and papers that are not.

    The route is kept beside the corpus: `search --route NAME` and the search page of `serve` know it, and
    `add-route MODEL NAME --from CORPUS` writes it into a model.

    Example: sentence-experts teach minilm examples.csv --corpus library --name my-method
    """
    check_there(examples)
    result = teach_route(model, corpus, examples, config, load_config=load_config)
    show(result.verdict)
    for way, words in result.words.items():
        show(f"{way}: {', '.join(words) or 'no words'}")
        for each in result.papers[way]:
            show(f"  {each['before']:>6,} -> {each['after']:<6,} {each['title']}  {each['paper_id']}")
    if result.missing:
        note(f"{result.missing:,} of the papers are not in the corpus, or have no text")


def screen(
    model: Model,
    examples: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE",
            help="Table as for `teach`; `similar` is empty for papers that were not read",
        ),
    ],
    corpus: Annotated[Path, typer.Option(help=CORPUS)],
    out: Annotated[Path, typer.Option(help="CSV file to write the list to")],
    config: ScreenConfig,
    load_config: LoadConfig,
) -> None:
    """List the papers of a corpus in the order in which to read them, by those that were read.

    Fill in the column similar (yes or no) as far as you read; the file is the table of the next round. To
    know how many relevant papers are unread, have a random sample put first, and read all of it (--sample).
    Columns of your own are not written on.

    Example: sentence-experts screen minilm read.csv --corpus library --out list.csv
    """
    from sentence_experts.retrieval.citation_export import export_papers

    check_there(examples)
    if out.suffix.lower() != ".csv":  # the next round would read it as its ending says
        raise UsageError(f"`out`: the list is a CSV file: give a name that ends in .csv, not {out.name}")
    if out.exists():  # it may hold marks
        raise InputError(f"{out} exists; give another `out`")
    result = screen_corpus(model, corpus, examples, config, load_config=load_config)
    write_new_text(out, export_papers(result.papers, "csv"))
    show(result.verdict)
    if result.missing:
        note(f"{result.missing:,} of the papers are not in the corpus; {out} does not have their marks")


def search(
    model: Model,
    corpus: Annotated[Path, typer.Option(help=CORPUS)],
    config: SearchConfig,
    load_config: LoadConfig,
    queries: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUERY", help="One or more texts to search for; or give --like"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a list")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a CSV table")] = False,
    as_ris: Annotated[bool, typer.Option("--ris", help="Print RIS, for reference managers")] = False,
    as_bibtex: Annotated[bool, typer.Option("--bibtex", help="Print BibTeX")] = False,
) -> None:
    """Find the papers of a corpus that are nearest to a text, or to other papers (--like).

    The corpus is encoded the first time, or before by `index build`; its vectors are stored beside it. Each
    hit: rank, how near it is (close, fair or weak), cosine, year, title, id, authors, journal, link,
    keywords, and the sentence of the abstract that is nearest to the query; with --passages the best
    passage instead.

    Example: sentence-experts search runs/experts/model --corpus corpus "drought in rice" --route crops -k 5

    Papers like one: sentence-experts search minilm --corpus corpus --like 10.7554/eLife.00013 --year 2014..

    To a reference manager: sentence-experts search minilm --corpus corpus "sleep" --hybrid --ris > sleep.ris
    """
    from sentence_experts.corpus.corpus_folder import CorpusFolder
    from sentence_experts.corpus.formats.markup import without_controls
    from sentence_experts.retrieval.citation_export import export_papers

    forms = {"json": as_json, "csv": as_csv, "ris": as_ris, "bibtex": as_bibtex}
    if len(chosen := [form for form, given in forms.items() if given]) > 1:
        raise UsageError(f"give one of --{' and --'.join(chosen)}")
    if files := [query for query in queries or () if is_table(query)]:
        raise UsageError(f"QUERY: {files[0]!r} is a file; give texts here (tables from Python: search)")
    result = search_corpus(model, CorpusFolder.open(corpus), queries or None, config, load_config=load_config)
    if as_json:
        answers = [{"query": query, "papers": papers} for query, papers in result]
        typer.echo(without_controls(json.dumps(answers, indent=1, ensure_ascii=False)))
    elif chosen:
        rows = [{"query": query, **paper} for query, papers in result for paper in papers]
        typer.echo(export_papers(rows, chosen[0]), nl=False)  # type: ignore[arg-type]
    else:
        for query, papers in result:
            results.print(f"\n{query}", style="bold", highlight=False)
            for line in (line for paper in papers for line in lines_of(paper)):
                show(line)
    for number, (query, _) in enumerate(result):
        if result.is_nothing_close(number):
            note(f"no paper found is close to {query!r}")
    if result.hidden:
        note(f"corrections, editorials and other notices left out: {result.hidden:,}; --notices finds them")
    if (
        len(result.papers[0]) < config.top_k
        and config.filters == Filters(notices=config.notices)
        and not config.like
    ):
        count = len(result.papers[0])
        note(f"the corpus has only {count} {'paper' if count == 1 else 'papers'} with such a text")
    elif not result.papers[0]:
        note("no paper passes all filters")


def serve(config: ServeConfig, load_config: LoadConfig, models: Models = None) -> None:
    """Serve models over HTTP, in OpenAI's and TEI's form, and a search page with --corpus.

    MODEL can be NAME=MODEL, by which requests then name it. Requests of all routes and protocols share
    batches. SIGTERM finishes what was accepted; SIGHUP loads the models again.

    Example: sentence-experts serve demo=runs/experts/model minilm --port 8000
    """
    from sentence_experts.serve.run import serve as serve_models

    if not models:
        raise UsageError("give at least one model to serve")
    serve_models(models, config, load_config=load_config)
