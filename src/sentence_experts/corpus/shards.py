"""What parsing leaves behind: papers and references as they state themselves, in small files beside the
corpus.

A shard holds some consecutive documents of a source. Its three files are written, then renamed, the papers
last: a shard whose papers are there is whole, and an interrupted run need not parse it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sentence_experts.corpus.paper import Citation, Deletion, Paper, Rejection
from sentence_experts.storage import replacing, write_text

_TEXTS = pa.list_(pa.string())
_IDS = [("doi", pa.string()), ("pmid", pa.string()), ("pmcid", pa.string()), ("other", pa.string())]

STATED_PAPERS = pa.schema([
    ("source", pa.int32()), ("shard", pa.int32()), ("record", pa.int32()), ("member", pa.string()), *_IDS,
    ("title", pa.string()), ("abstract", pa.string()), ("year", pa.int32()), ("article_type", pa.string()),
    ("subjects", _TEXTS), ("mesh", _TEXTS), ("keywords", _TEXTS), ("journal", pa.string()),
    ("licence", pa.string()), ("retracted", pa.bool_()), ("references", pa.int32()),
    ("version", pa.int32()), ("deleted", pa.bool_()),
])  # fmt: skip
STATED_REFERENCES = pa.schema([
    ("source", pa.int32()), ("shard", pa.int32()), ("record", pa.int32()), ("position", pa.int32()), *_IDS,
    ("title", pa.string()), ("year", pa.int32()), ("retracts", pa.bool_()), ("citing", pa.string()),
    ("citing_key", pa.string()),
])  # fmt: skip

_PAPER_FIELDS = (
    "doi", "pmid", "pmcid", "other", "title", "abstract", "year", "article_type", "subjects", "mesh",
    "keywords",
    "journal", "licence", "retracted",
)  # fmt: skip
_NOTHING = Paper()


class Shard:
    """Collects the papers, references and rejections of some documents and writes them."""

    def __init__(self, source: int, number: int) -> None:
        self._key = (source, number)
        self._papers: list[tuple[Any, ...]] = []
        self._references: list[tuple[Any, ...]] = []
        self.rejections: list[Rejection] = []

    def add(self, paper: Paper, member: str | None) -> None:
        """One paper with its references; `member` names the document it came from."""
        record = len(self._papers)
        values = tuple(getattr(paper, name) for name in _PAPER_FIELDS)
        self._papers.append((*self._key, record, member, *values, len(paper.citations), paper.version, False))
        for position, citation in enumerate(paper.citations):
            self._add(record, position, citation)
        for position, citation in enumerate(paper.retracts):
            self._add(record, position, citation, retracts=True)

    def delete(self, deletion: Deletion, member: str | None) -> None:
        """Note in its place among the papers that an earlier record is no more."""
        empty = {name: getattr(_NOTHING, name) for name in _PAPER_FIELDS} | {"pmid": deletion.pmid}
        self._papers.append(
            (*self._key, len(self._papers), member, *empty.values(), 0, deletion.version, True)
        )

    def add_loose(self, citing: str, citing_key: str | None, position: int, citation: Citation) -> None:
        """A citation from a table: its citing paper is named as the user does, and by its canonical id if
        known."""
        self._add(None, position, citation, citing=(citing, citing_key))

    def _add(
        self, record: int | None, position: int, citation: Citation,
        retracts: bool = False, citing: tuple[str | None, str | None] = (None, None),
    ) -> None:  # fmt: skip
        ids = (citation.doi, citation.pmid, citation.pmcid, citation.other)
        self._references.append(
            (*self._key, record, position, *ids, citation.title, citation.year, retracts, *citing)
        )

    def write(self, folder: Path) -> int:
        """Write the shard's files; returns how many papers it holds."""
        stem = folder / f"{self._key[0]:04d}-{self._key[1]:06d}"
        if self.rejections:
            write_rejections(stem.with_suffix(".rejected.jsonl"), self.rejections)
        _write(stem.with_suffix(".references.parquet"), self._references, STATED_REFERENCES)
        _write(papers_file(folder, *self._key), self._papers, STATED_PAPERS)
        return len(self._papers)


def papers_file(folder: Path, source: int, number: int) -> Path:
    """The file that shows a shard to be whole."""
    return folder / f"{source:04d}-{number:06d}.papers.parquet"


def _write(path: Path, rows: list[tuple[Any, ...]], schema: pa.Schema) -> None:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    with replacing(path) as temporary:
        pq.write_table(
            pa.Table.from_arrays(arrays, schema=schema), temporary, compression="lz4", use_dictionary=False
        )


def write_links(folder: Path, source: int, number: int, citing: pa.Array, cited: pa.Array) -> None:
    """A shard of citations alone, without a loop over rows.

    Args:
        folder: of the shards.
        source: which source they are of.
        number: of the shard.
        citing: text of shape (citations,): `doi:...`, `pmid:...` or `pmc:...`.
        cited: as `citing`.
    """
    rows = len(citing)
    columns = {
        "source": pa.array([source] * rows, pa.int32()), "shard": pa.array([number] * rows, pa.int32()),
        "position": pa.array(range(rows), pa.int32()), "citing": citing, "citing_key": citing,
        "retracts": pa.array([False] * rows, pa.bool_()),
    }  # fmt: skip
    for column, prefix in (("doi", "doi:"), ("pmid", "pmid:"), ("pmcid", "pmc:")):
        of_kind = pc.starts_with(cited, prefix)
        columns[column] = pc.if_else(of_kind, pc.utf8_slice_codeunits(cited, len(prefix)), None)
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(rows, field.type)
        for field in STATED_REFERENCES
    ]
    stem = folder / f"{source:04d}-{number:06d}"
    with replacing(stem.with_suffix(".references.parquet")) as temporary:
        pq.write_table(pa.Table.from_arrays(arrays, schema=STATED_REFERENCES), temporary, compression="lz4")
    _write(papers_file(folder, source, number), [], STATED_PAPERS)


def write_rejections(path: Path, rejections: Iterable[Rejection]) -> None:
    """One JSON object a line: source, member, record, reason, detail."""
    lines = (json.dumps(asdict(rejection), ensure_ascii=False, sort_keys=True) for rejection in rejections)
    write_text(path, "".join(f"{line}\n" for line in lines))


def read_rejections(path: Path) -> list[Rejection]:
    """The rejections of one file."""
    with open(path, encoding="utf-8") as file:
        return [Rejection(**json.loads(line)) for line in file]
