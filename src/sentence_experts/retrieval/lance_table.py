"""`export_index`: the papers of a corpus and their vectors as one table of LanceDB, for other programs.

One row per paper: what the corpus knows of it, and a column of vectors for each route. The table has indexes
for filters and for words, and above 200,000 papers one for each column of vectors. It may stand in a folder
or on object storage, where DuckDB, Spark and Ray read it.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.errors import InputError, brief, require
from sentence_experts.retrieval import approximate
from sentence_experts.retrieval.build import CorpusIndex
from sentence_experts.retrieval.index import ROWS, VECTORS
from sentence_experts.retrieval.papers import Papers
from sentence_experts.retrieval.vectors import RouteVectors

logger = logging.getLogger(__name__)

DOMAINS = "domains"
_FACTS = (
    *("paper_id", "doi", "pmid", "pmcid", "title", "abstract", "year", "article_type", "journal", "subjects"),
    *("retracted",),
)
# LanceDB's kind of index, by column: ranges and many values, few values, lists, words.
_INDEXES = {
    **dict.fromkeys(("paper_id", "year", "journal"), "BTree"),
    "article_type": "Bitmap",
    **dict.fromkeys(("subjects", DOMAINS), "LabelList"),
    **dict.fromkeys(("title", "abstract"), "FTS"),
}
_ROWS_PER_BATCH = 16_384


def export_index(
    corpus: CorpusIndex | CorpusFolder | Path | str, uri: Path | str, table: str = "papers"
) -> list[str]:
    """Write the papers and vectors of a corpus as one table of LanceDB, for other programs.

    The table has a row for each paper, with a column of vectors for each route, and indexes for filters and
    words. A table of this name is replaced as a whole: a reader sees the old one or the new one. Passages
    are left out, as rows are papers.

    Args:
        corpus: a corpus that `build_index` encoded, its folder, or the index that `build_index` returns.
        uri: a folder, or `file://`, `s3://`, `gs://`, `az://`, `memory://`; credentials come from the
            environment, as for that storage's own tools (AWS_ACCESS_KEY_ID, ...).
        table: name of the table.

    Returns:
        The names of the columns of vectors.

    Raises:
        SentenceExpertsError: LanceDB is not installed.
        InputError: there are no vectors that fit the corpus, or nothing can be written there.

    Example:
        >>> index = build_index("model", "corpus", route=["genomics"], unit="title")
        >>> export_index("corpus", "lance")
        ['genomics']
    """
    os.environ.setdefault("LANCEDB_LOG", "error")  # else it warns that a new table is new
    lancedb: Any = require("lancedb", "index")
    from lancedb import index as kinds

    index = corpus if isinstance(corpus, CorpusIndex) else CorpusIndex.open(corpus)
    columns = _columns(index)
    if not columns:
        raise InputError(
            f"{index.corpus.path} has no vectors of its papers as they are: `build_index` makes them"
        )
    papers = Papers(index.corpus)
    facts = [field for field in pq.read_schema(index.corpus.papers) if field.name in _FACTS]
    if index.corpus.domains is not None:
        facts.append(pa.field(DOMAINS, pa.list_(pa.string())))
    schema = pa.schema([*facts, *(field for field, _ in columns)])
    reader = pa.RecordBatchReader.from_batches(schema, _batches(papers, columns, schema))
    names = [field.name for field, _ in columns]
    try:
        # Papers without text have no vector, which LanceDB must be told to take as null.
        written = lancedb.connect(str(uri)).create_table(
            table, reader, schema=schema, mode="overwrite", on_bad_vectors="null"
        )
        for column in _INDEXES.keys() & {field.name for field in facts}:
            written.create_index(column, config=getattr(kinds, _INDEXES[column])())
        for name, (_, of_route) in zip(names, columns, strict=True):
            if papers.count > approximate.LARGE:
                written.create_index(name, config=approximate.ivf(papers.count, of_route.vectors.shape[1]))
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"{uri}: cannot be written: {brief(error)}") from error
    return names


def _columns(index: CorpusIndex) -> list[tuple[pa.Field, RouteVectors]]:
    """Return the column of each set of vectors, by its route; if routes repeat, by model and unit too."""
    parts = [part for part in index.parts if part["state"] == "whole" and not part["passages"]]
    routes = [part["route"] for part in parts]
    keys = ("route",) if len({*routes}) == len(routes) else ("model", "route", "unit", "folder")
    columns = []
    for part in parts:
        folder = Path(part["folder"])
        name = (
            "_".join(re.sub(r"\W+", "_", Path(str(part[key])).name) for key in keys if part[key]) or "vector"
        )
        name = f"vector_{name}" if name in (*_FACTS, DOMAINS) else name
        vectors = RouteVectors(np.load(folder / VECTORS, mmap_mode="r"), np.load(folder / ROWS))
        noted = {key: str(part[key] or "") for key in ("model", "route", "unit", "fingerprint")}
        kind = pa.list_(pa.float32(), vectors.vectors.shape[1])
        columns.append((pa.field(name, kind, metadata=noted), vectors))
    return columns


def _batches(
    papers: Papers, columns: Sequence[tuple[pa.Field, RouteVectors]], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    start = 0
    facts = [name for name in schema.names if name in _FACTS]
    for batch in pq.ParquetFile(papers.corpus.papers).iter_batches(_ROWS_PER_BATCH, columns=facts):
        rows = np.arange(start, start + len(batch))
        arrays = [batch[name] for name in facts]
        if DOMAINS in schema.names:
            arrays.append(papers.domains[start : start + len(batch)])
        for field, vectors in columns:
            missing = pa.array(~np.isin(rows, vectors.rows))
            values = pa.array(vectors.of_rows(rows).ravel())
            arrays.append(pa.FixedSizeListArray.from_arrays(values, field.type.list_size, mask=missing))
        yield pa.record_batch(arrays, schema=schema)
        start += len(batch)
