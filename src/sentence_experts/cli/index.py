"""`sentence-experts index build|show|export`: the vectors of a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from sentence_experts.cli.console import results, show
from sentence_experts.cli.help import Group
from sentence_experts.cli.options import CORPUS, add_verb
from sentence_experts.models.loading import LoadConfig
from sentence_experts.retrieval.config import LANCE_TABLE, IndexConfig

if TYPE_CHECKING:
    from sentence_experts.retrieval.build import CorpusIndex


def register(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    index = typer.Typer(
        cls=Group,
        help="Encode a corpus for search.\n\n"
        "Example: sentence-experts index build runs/experts/model --corpus corpus --route all",
        no_args_is_help=True,
    )
    add_verb(index, build)
    add_verb(index, show_)
    add_verb(index, export)
    app.add_typer(index, name="index")


def build(
    corpus: Annotated[Path, typer.Option(help=CORPUS)],
    config: IndexConfig,
    load_config: LoadConfig,
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="Model folder, hub id, or 'minilm'; or give --vectors"),
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(
            help="File or folder of vectors that `encode` wrote of CORPUS/papers.parquet, instead of a model"
        ),
    ] = None,
) -> None:
    """Encode the papers of a corpus, so that `search` finds their vectors.

    There is one set of vectors for each route. It stays valid when the model gets another expert. When the
    corpus has grown, only new papers are encoded. The same command continues an interrupted build.

    Example: sentence-experts index build runs/experts/model --corpus corpus --route all
    """
    from sentence_experts.compat.imports import allow_deferred_imports
    from sentence_experts.retrieval.build import build_index

    allow_deferred_imports()
    _show(build_index(model, corpus, config, vectors=vectors, load_config=load_config))


def show_(corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help=CORPUS)]) -> None:
    """Show which vectors stand beside a corpus, and whether they fit it.

    Example: sentence-experts index show corpus
    """
    from sentence_experts.retrieval.build import CorpusIndex

    _show(CorpusIndex.open(corpus))


def export(
    corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help=CORPUS)],
    uri: Annotated[
        str, typer.Argument(metavar="URI", help="A folder, or file://, s3://, gs:// or az:// with a path")
    ],
    table: Annotated[str, typer.Option(help="Name of the table; one of this name is replaced")] = LANCE_TABLE,
) -> None:
    """Write papers and vectors as one table of LanceDB, on object storage too, for other programs.

    The table has a row for each paper, with a column of vectors for each route, and indexes for filters and
    words. DuckDB, Spark and Ray read it. Credentials come from the environment (AWS_ACCESS_KEY_ID, ...).

    Example: sentence-experts index export corpus s3://bucket/papers
    """
    from sentence_experts.retrieval.lance_table import export_index

    columns = export_index(corpus, uri, table)
    show(f"{uri}: table {table}, with the vectors {', '.join(columns)}")


def _show(index: CorpusIndex) -> None:
    if not index.parts:
        build = f"sentence-experts index build MODEL --corpus {index.corpus.path}"
        show(f"{index.corpus.path} has no vectors: `{build}` makes some")
        return
    table = Table(title=f"Index of {index.corpus.path}", title_justify="left")
    for name in ("route", "text", "model", "state"):
        table.add_column(name)
    for name in ("tokens", "texts", "dimensions", "MB"):
        table.add_column(name, justify="right")
    for part in index.parts:
        row = (part["route"] or "", part["unit"], part["model"], part["state"])
        table.add_row(
            *row,
            str(part["max_length"] or ""),
            f"{part['texts']:,}",
            str(part["dimensions"]),
            f"{part['megabytes']:,.1f}",
        )
    results.print(table)
