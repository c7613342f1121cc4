"""`export_index`: the papers of a corpus and their vectors as one table of LanceDB, for other programs.

One row per paper: what the corpus knows of it, and a column of vectors for each route. The table has indexes
for filters and for words, and above 200,000 papers one for each column of vectors. It may stand in a folder
or on object storage, where DuckDB, Spark and Ray read it.
"""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.encoding.chunks import Vectors
from sentence_experts.errors import InputError, brief, require
from sentence_experts.retrieval import approximate
from sentence_experts.retrieval.build import CorpusIndex
from sentence_experts.retrieval.config import LANCE_TABLE
from sentence_experts.retrieval.index import ROWS, VECTORS
from sentence_experts.retrieval.papers import Papers

logger = logging.getLogger(__name__)

DOMAINS = "domains"
_FACTS = (
    *("paper_id", "doi", "pmid", "pmcid", "title", "abstract", "year", "article_type", "journal", "subjects"),
    *("retracted",),
)
# LanceDB's kind of index, by column: ranges and many values, few values, lists, words.
_INDEXES = {
    "paper_id": "BTree",
    "year": "BTree",
    "journal": "BTree",
    "article_type": "Bitmap",
    "subjects": "LabelList",
    DOMAINS: "LabelList",
    "title": "FTS",
    "abstract": "FTS",
}
_ROWS_PER_BATCH = 16_384


@dataclass(frozen=True)
class _Column:
    """The vectors of one route."""

    field: pa.Field
    vectors: Vectors
    rows: Any

    def part(self, start: int, stop: int) -> pa.Array:
        """Return the vectors of the papers in these rows; null for those without text."""
        dimensions = self.vectors.shape[1]
        first, last = np.searchsorted(self.rows, (start, stop))
        present = self.rows[first:last] - start
        values = np.zeros((stop - start, dimensions), np.float32)
        values[present] = self.vectors[first:last]
        missing = np.ones(stop - start, bool)
        missing[present] = False
        return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), dimensions, mask=pa.array(missing))


def export_index(
    corpus: CorpusIndex | CorpusFolder | Path | str, uri: Path | str, table: str = LANCE_TABLE
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
    index = corpus if isinstance(corpus, CorpusIndex) else CorpusIndex.open(corpus)
    columns = _columns(index)
    if not columns:
        raise InputError(
            f"{index.corpus.path} has no vectors of its papers as they are: `build_index` makes them"
        )
    papers = Papers(index.corpus)
    present = [column for column in _FACTS if column in pq.read_schema(index.corpus.papers).names]
    facts = [pq.read_schema(index.corpus.papers).field(column) for column in present]
    has_domains = index.corpus.domains is not None
    domains = [pa.field(DOMAINS, pa.list_(pa.string()))] * has_domains
    schema = pa.schema([*facts, *domains, *(column.field for column in columns)])
    batches = _batches(papers, present, has_domains, columns, schema)
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    try:
        # Papers without text have no vector, which LanceDB must be told to take as null.
        written = lancedb.connect(str(uri)).create_table(
            table, reader, schema=schema, mode="overwrite", on_bad_vectors="null"
        )
        _add_indexes(written, [*present, *[DOMAINS] * has_domains], columns, papers.count)
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"{uri}: cannot be written: {brief(error)}") from error
    return [column.field.name for column in columns]


def _columns(index: CorpusIndex) -> list[_Column]:
    parts = [part for part in index.parts if part["state"] == "whole" and not part["passages"]]
    columns = []
    for part, name in zip(parts, _names(parts), strict=True):
        folder = Path(part["folder"])
        vectors = np.load(folder / VECTORS, mmap_mode="r")
        noted = {key: str(part[key] or "") for key in ("model", "route", "unit", "fingerprint")}
        field = pa.field(name, pa.list_(pa.float32(), vectors.shape[1]), metadata=noted)
        columns.append(_Column(field, vectors, np.load(folder / ROWS)))
    return columns


def _names(parts: Sequence[dict[str, Any]]) -> list[str]:
    """Name each set of vectors by its route; where that is not distinct, by model, unit and folder too."""
    chosen: list[str] = []
    for keys in (("route",), ("model", "route"), ("model", "route", "unit", "folder")):
        chosen = [
            "_".join(re.sub(r"\W+", "_", Path(str(part[key])).name) for key in keys if part[key]) or "vector"
            for part in parts
        ]
        chosen = [f"vector_{each}" if each in (*_FACTS, DOMAINS) else each for each in chosen]
        if max(Counter(chosen).values(), default=1) == 1:
            break
    return chosen


def _batches(
    papers: Papers, present: list[str], has_domains: bool, columns: list[_Column], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    start = 0
    for batch in pq.ParquetFile(papers.corpus.papers).iter_batches(_ROWS_PER_BATCH, columns=present):
        arrays = [batch[column] for column in present]
        if has_domains:
            arrays.append(papers.domains[start : start + len(batch)])
        arrays += [column.part(start, start + len(batch)) for column in columns]
        yield pa.record_batch(arrays, schema=schema)
        start += len(batch)


def _add_indexes(table: Any, present: list[str], columns: list[_Column], count: int) -> None:
    from lancedb import index

    for column, kind in _INDEXES.items():
        if column in present:
            table.create_index(column, config=getattr(index, kind)())
    for each in columns if count > approximate.LARGE else ():
        table.create_index(each.field.name, config=approximate.ivf(count, each.vectors.shape[1]))
