"""Tables of any library as Arrow, and a corpus of two such tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from sentence_experts.corpus.tables import (
    CITATIONS,
    CITATIONS_SCHEMA,
    DOMAINS,
    DOMAINS_SCHEMA,
    FORMAT,
    FORMAT_VERSION,
    PAPERS,
    PAPERS_SCHEMA,
    CorpusFolder,
)
from sentence_experts.errors import InputError
from sentence_experts.storage import write_parquet


def as_arrow(table: Any) -> pa.Table:
    """A pandas or polars DataFrame, an Arrow table or a `datasets.Dataset` as an Arrow table.

    Raises:
        InputError: it is none of these.
    """
    if isinstance(table, pa.Table):
        return table
    if hasattr(table, "with_format") and hasattr(table, "features"):  # datasets.Dataset
        table = table.with_format("arrow")[:]
    try:
        rows = pa.table(table)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise InputError(
            f"a table is expected (pandas, polars, Arrow or datasets), not {type(table).__name__}"
        ) from error
    return rows.select([name for name in rows.column_names if not name.startswith("__index_level_")])


@contextmanager
def opened_corpus(corpus: CorpusFolder | Path | str | tuple[Any, Any]) -> Iterator[CorpusFolder]:
    """A corpus given as such, by its folder, or as two tables: papers and citations.

    `papers` needs a column `paper_id`; any other of `PAPERS_SCHEMA` may be missing, and a column `domain`
    stands for the domain of each paper. `citations` needs `citing` and `cited`.

    Raises:
        InputError: the folder holds no corpus, or a table lacks a column.
    """
    if isinstance(corpus, CorpusFolder):
        yield corpus
    elif isinstance(corpus, str | Path):
        yield CorpusFolder.open(corpus)
    else:
        papers, citations = map(as_arrow, corpus)
        with TemporaryDirectory(prefix="sentence-experts-") as name:
            folder = Path(name)
            if "retracted" not in papers.column_names:
                papers = papers.append_column("retracted", pa.array([False] * papers.num_rows))
            write_parquet(folder / PAPERS, _with_schema(papers, PAPERS_SCHEMA, "papers"))
            write_parquet(folder / CITATIONS, _with_schema(citations, CITATIONS_SCHEMA, "citations"))
            tables: dict[str, Any] = {PAPERS: {}, CITATIONS: {}}
            if "domain" in papers.column_names:
                known = papers.select(["paper_id", "domain"]).drop_null()
                write_parquet(folder / DOMAINS, _with_schema(known, DOMAINS_SCHEMA, "papers"))
                tables[DOMAINS] = {}
            manifest = {"format": FORMAT, "format_version": FORMAT_VERSION, "counts": {}, "tables": tables}
            yield CorpusFolder(folder, manifest)


def _with_schema(table: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    """The columns of a schema; those that may be null are filled with nulls where the table lacks them."""
    needed = [field.name for field in schema if not field.nullable]
    needed += ["cited"] if schema is CITATIONS_SCHEMA else []
    missing = [column for column in needed if column not in table.column_names]
    if missing:
        raise InputError(f"{name}: column {missing[0]!r} is missing, found {', '.join(table.column_names)}")
    columns = [
        table[field.name] if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    try:
        return pa.table(columns, names=schema.names).cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise InputError(f"{name}: {' '.join(str(error).split())}") from error
