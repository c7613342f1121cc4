"""The corpus on disk: two tables, a manifest that describes them, and the records that were set aside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.errors import InputError
from sentence_experts.storage import read_json, replacing, sha256_file, sha256_text

FORMAT = "sentence-experts corpus"
FORMAT_VERSION = 1
PAPERS = "papers.parquet"
CITATIONS = "citations.parquet"
MANIFEST = "manifest.json"
REJECTED = "rejected.jsonl"
DOMAINS = "domains.parquet"
PROVENANCE = "provenance.parquet"

_ROWS_IN_A_GROUP = 1 << 14

PAPERS_SCHEMA = pa.schema([
    pa.field("paper_id", pa.string(), nullable=False),
    pa.field("pmid", pa.string()),
    pa.field("pmcid", pa.string()),
    pa.field("doi", pa.string()),
    pa.field("title", pa.string()),
    pa.field("abstract", pa.string()),
    pa.field("year", pa.int32()),
    pa.field("article_type", pa.string()),
    pa.field("subjects", pa.list_(pa.string())),
    pa.field("mesh", pa.list_(pa.string())),
    pa.field("keywords", pa.list_(pa.string())),
    pa.field("journal", pa.string()),
    pa.field("licence", pa.string()),
    pa.field("retracted", pa.bool_(), nullable=False),
])  # fmt: skip
"""One row a work, ordered by `paper_id`: `doi:10...` (lower case), else `pmid:123`, else `pmc:PMC123`, else
the user's own id or `file:...`."""

CITATIONS_SCHEMA = pa.schema([
    pa.field("citing", pa.string(), nullable=False),
    pa.field("cited", pa.string()),
    pa.field("cited_title", pa.string()),
    pa.field("cited_year", pa.int32()),
])  # fmt: skip
"""One row a reference, in the order of each citing paper's list. `cited` is null for a work without
identifier."""


DOMAINS_SCHEMA = pa.schema([
    pa.field("paper_id", pa.string(), nullable=False),
    pa.field("domain", pa.string(), nullable=False),
])  # fmt: skip
"""Of a fetched corpus: one row for each domain whose query found the paper, ordered by both."""

PROVENANCE_SCHEMA = pa.schema([
    pa.field("record", pa.string(), nullable=False),
    pa.field("address", pa.string(), nullable=False),
    pa.field("version", pa.string()),
    pa.field("licence_code", pa.string()),
    pa.field("sha256", pa.string(), nullable=False),
])  # fmt: skip
"""Of a fetched corpus: one row a record that was kept, by its id: where it came from, the version of the
article, the licence that the service states, the SHA-256 of what was fetched."""


@dataclass(frozen=True)
class CorpusFolder:
    """A finished corpus: where its tables are, and what its manifest says."""

    path: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, path: Path | str) -> CorpusFolder:
        """The corpus in a folder.

        Raises:
            InputError: the folder holds no finished corpus, or one of another format version.
        """
        path = Path(path)
        if not (path / MANIFEST).is_file():
            began = (path / ".partial").is_dir()
            raise InputError(
                f"{path} holds no {'finished ' if began else ''}corpus (no {MANIFEST}): "
                + ("give the same `corpus` command again, it goes on where it stopped" if began
                   else f"make one with `sentence-experts corpus import SOURCE... --out {path}`, or with "
                   "`corpus fetch`")
            )  # fmt: skip
        manifest = read_json(path / MANIFEST)
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise InputError(
                f"{path / MANIFEST} does not describe a corpus; this folder was made by something else"
            )
        if manifest.get("format_version") != FORMAT_VERSION:
            raise InputError(
                f"{path} has corpus format version {manifest.get('format_version')}, this program reads "
                f"{FORMAT_VERSION}: import it again with --overwrite"
            )
        missing = [name for name in (PAPERS, CITATIONS) if not (path / name).is_file()]
        if missing:
            raise InputError(f"{path} lacks {' and '.join(missing)}: import it again with --overwrite")
        return cls(path, manifest)

    @property
    def papers(self) -> Path:
        """The table of papers (`PAPERS_SCHEMA`)."""
        return self.path / PAPERS

    @property
    def citations(self) -> Path:
        """The table of citations (`CITATIONS_SCHEMA`)."""
        return self.path / CITATIONS

    @property
    def rejected(self) -> Path:
        """The records that were set aside, one JSON object a line."""
        return self.path / REJECTED

    @property
    def domains(self) -> Path | None:
        """The table of the domains whose queries found the papers (`DOMAINS_SCHEMA`), of a fetched corpus."""
        path = self.path / DOMAINS
        return path if DOMAINS in self.manifest.get("tables", {}) and path.is_file() else None

    def fingerprint(self) -> str:
        """A hash of the tables' contents, equal for equal corpora wherever they lie.

        Of the files as they are now: what is kept under the hash must not outlive a table that was changed.
        """
        tables = (PAPERS, CITATIONS, *([DOMAINS] if self.domains else []))
        hashes = {name: sha256_file(self.path / name) for name in tables}
        return sha256_text(*(f"{name}={hashes[name]}" for name in sorted(hashes)))


def write_stream(path: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    """Write record batches as Parquet in row groups of one size, whatever size they arrive in."""
    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= _ROWS_IN_A_GROUP:
                table = pa.Table.from_batches(waiting).cast(schema)
                whole = rows - rows % _ROWS_IN_A_GROUP
                writer.write_table(table.slice(0, whole), row_group_size=_ROWS_IN_A_GROUP)
                waiting, rows = table.slice(whole).to_batches(), rows - whole
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting).cast(schema))
