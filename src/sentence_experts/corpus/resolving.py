"""Resolve parsed papers and references into one row per work: identifiers, duplicates, linked citations.

Everything is SQL on DuckDB over the parts, so memory stays bounded and the rest goes to disk.

Which identifiers name the same work is learned in one step, never chained: from the articles' own records
first, then, for works that these do not settle, from references with several identifiers. A pair counts only
if each side names the other most often (ties: the smallest), so that one wrong reference cannot join two
works.

PubMed's files revise each other: they are applied in the order of their names, and the last version of a
record counts, unless it was deleted after that. Of an OpenAlex work that stands in several partitions the
latest record counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from sentence_experts.corpus import resolving_sql as sql
from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.parts import BODIES, MENTIONS, REFERENCES
from sentence_experts.storage import PartStore

SCRATCH = "resolving"  # folder of temporary files
_MEMORY = "256MB"
_ROWS_IN_A_BATCH = 8192

_SPOT = "((source::BIGINT << 44) | (part::BIGINT << 20) | record)"


class Resolved:
    """A resolved corpus inside DuckDB; `has_bodies` tells whether any full text was kept."""

    def __init__(self, database: duckdb.DuckDBPyConnection, has_bodies: bool) -> None:
        self._database, self.has_bodies = database, has_bodies

    def papers(self) -> Iterator[pa.RecordBatch]:
        """The papers in the order of their ids, as in `PAPERS_SCHEMA`."""
        return self._stream(sql.PAPERS_IN_ORDER)

    def citations(self) -> Iterator[pa.RecordBatch]:
        """The citations, ordered by citing paper and place in its list, as in `CITATIONS_SCHEMA`."""
        return self._stream(sql.CITATIONS_IN_ORDER)

    def mentions(self) -> Iterator[pa.RecordBatch]:
        """The mentions, ordered by citing paper and place in its text, as in `MENTIONS_SCHEMA`."""
        return self._stream(sql.MENTIONS_IN_ORDER)

    def bodies(self) -> Iterator[pa.RecordBatch]:
        """The full texts in the order of the papers, as in `BODIES_SCHEMA`, if there are any."""
        return self._stream(sql.BODIES_IN_ORDER)

    def stated_papers(self) -> int:
        """The number of all records that were read, before duplicates are found."""
        (count,) = self._database.execute("SELECT count(*) FROM all_papers").fetchone() or (0,)
        return int(count)

    def duplicates(self) -> list[Rejection]:
        """The records of works that another record describes better, and the PubMed records that a later file
        replaces or deletes."""
        queries = (sql.DUPLICATES, sql.REVISED)
        return [Rejection(*row) for query in queries for row in self._database.execute(query).fetchall()]

    def counts(self) -> dict[str, Any]:
        """The counts for the manifest."""
        counts: dict[str, Any] = {}
        for query in sql.COUNTS:
            counts |= self._database.sql(query).to_arrow_table().to_pylist()[0]
        for name, query in sql.TALLIES.items():
            counts[name] = {str(key): number for key, number in self._database.execute(query).fetchall()}
        return counts

    def _stream(self, query: str) -> Iterator[pa.RecordBatch]:
        yield from self._database.sql(query).to_arrow_reader(_ROWS_IN_A_BATCH)


@contextmanager
def resolving(
    parts: PartStore, source_names: list[str], threads: int, memory: str | None = None
) -> Iterator[Resolved]:
    """Resolve parts; while this runs, their folder also holds the database's temporary files."""
    scratch = parts.folder / SCRATCH
    settings: Any = {
        "memory_limit": memory or _MEMORY, "temp_directory": str(scratch), "threads": threads,
        "preserve_insertion_order": False, "autoinstall_known_extensions": False,
    }  # fmt: skip
    with duckdb.connect(":memory:", config=settings) as database:
        database.execute("SET enable_progress_bar = false")
        database.execute("CREATE TABLE source_names (source INTEGER, name VARCHAR)")
        database.executemany("INSERT INTO source_names VALUES (?, ?)", list(enumerate(source_names)))
        views = [("papers", None), ("references", REFERENCES), ("mentions", MENTIONS)]
        has_bodies = bool(parts.keys(BODIES))
        for view, suffix in views + [("bodies", BODIES)] * has_bodies:
            files = _quoted(parts.path("*", suffix))
            database.execute(
                f'CREATE VIEW "all_{view}" AS SELECT *, {_SPOT} AS spot FROM read_parquet({files})'
            )
        for statement in sql.REVISIONS:
            database.execute(statement)
        for statement in sql.records(lambda query: database.sql(query).fetchall()):
            database.execute(statement)
        for statement in (*sql.REFERENCE_IDS, *sql.LINKS, sql.COMPLETE):
            database.execute(statement)
        yield Resolved(database, has_bodies)


def _quoted(path: Path) -> str:
    """A path as an SQL string in which only the file name is a pattern."""
    folder = re.sub(r"([\[\]*?])", r"[\1]", str(path.parent))
    return "'" + f"{folder}/{path.name}".replace("'", "''") + "'"
