"""Resolve parsed papers and references into one row per work: identifiers, duplicates, linked citations.

Everything is SQL on DuckDB over the parts, so memory stays bounded and the rest goes to disk. Papers are
sorted and references linked range by range, in the order of the ids: a range that fits in memory costs less
than a sort on disk, which would need more memory, too.

Which identifiers name the same work is learned in one step, never chained: from the articles' own records
first, then, for works that these do not settle, from references with several identifiers. A pair counts only
if each side names the other most often (ties: the smallest), so that one wrong reference cannot join two
works.

PubMed's files revise each other: they are applied in the order of their names, and the last version of a
record counts, unless it was deleted after that. Of an OpenAlex work that stands in several partitions the
latest record counts.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.config import memory_bytes
from sentence_experts.corpus import records_sql
from sentence_experts.corpus import resolving_sql as sql
from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.parts import BODIES, COMPLETING, MENTIONS, REFERENCES
from sentence_experts.corpus.sql_files import quote, scan_parquet
from sentence_experts.errors import InputError
from sentence_experts.storage import PartStore

logger = logging.getLogger(__name__)

SCRATCH = "resolving"  # folder of temporary files
_MEMORY = "256MB"
# Share of `memory`; the rest is for what the database does not count, and for Python.
_SHARE_OF_DATABASE = 0.75
_BYTES_PER_LINK = 600  # memory while a range of links is numbered and sorted
_SPACE_OF_PAPERS = 4  # memory that a range of papers may need while it is sorted, in sizes of its texts
_SAMPLED = 20_000  # names from which the ranges are taken
_ROWS_IN_A_BATCH = 8192
_SHOWN = 60  # characters of a title in a message

_SPOT = "((source::BIGINT << 44) | (part::BIGINT << 20) | record)"


def spots_of(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Return a number per row that names its record; 0 if it has none."""
    source, part, record = (
        batch[name].fill_null(0).to_numpy().astype(np.int64) for name in ("source", "part", "record")
    )
    spots: NDArray[np.int64] = (source << 44) | (part << 20) | record
    return spots


class Resolved:
    """A resolved corpus inside DuckDB.

    Attributes:
        has_bodies: whether any full text was kept.
        memory: the bytes that a range of papers or links may take.
    """

    def __init__(
        self, database: duckdb.DuckDBPyConnection, has_bodies: bool, size_of_papers: int, memory: int
    ) -> None:
        self._database, self.has_bodies = database, has_bodies
        self._size_of_papers, self.memory = size_of_papers, memory
        self._link_counts: Counter[str] = Counter()

    def papers(self) -> Iterator[pa.RecordBatch]:
        """Yield the papers in the order of their ids, as in `PAPERS_SCHEMA`."""
        ranges = self._size_of_papers * _SPACE_OF_PAPERS // self.memory + 1
        for first, end in self._ranges(ranges, "SELECT paper_id FROM identified"):
            yield from self._stream(sql.select_papers(sql.limit_range("paper_id", first, end)))

    def citations(self) -> Iterator[pa.RecordBatch]:
        """Yield the citations, ordered by citing paper and place in its list, as in `CITATIONS_SCHEMA`."""
        self._link_counts.clear()
        ((links,),) = self._database.execute("SELECT count(*) FROM linked").fetchall()
        names = (
            "SELECT citing FROM linked WHERE NOT retracts"  # a notice's other records are not in the corpus
        )
        for first, end in self._ranges(links * _BYTES_PER_LINK // self.memory + 1, names):
            self._database.execute(sql.make_links(sql.limit_range("citing", first, end)))
            self._link_counts.update(self._row(sql.COUNT_LINKS))
            yield from self._stream(sql.LINKS_IN_ORDER)

    def _ranges(self, number: int, names: str) -> Iterator[tuple[str | None, str | None]]:
        """Return about equal ranges of names in their order: the first name of each, and of the next one, as
        SQL strings; None at the ends."""
        bounds: list[str] = []
        if number > 1:
            sample = f"SELECT * FROM ({names}) USING SAMPLE reservoir({_SAMPLED} ROWS)"
            sampled = sorted(name for (name,) in self._database.execute(sample).fetchall())
            bounds = sorted({sampled[len(sampled) * one // number] for one in range(1, number)})
        return itertools.pairwise([None, *map(quote, bounds), None])

    def mentions(self) -> Iterator[pa.RecordBatch]:
        """Return the mentions, ordered by citing paper and place in its text, as in `MENTIONS_SCHEMA`."""
        return self._stream(sql.MENTIONS_IN_ORDER)

    def bodies(self) -> Iterator[pa.RecordBatch]:
        """Return the full texts in the order of the papers, as in `BODIES_SCHEMA`, if there are any."""
        return self._stream(sql.BODIES_IN_ORDER)

    def copies(self) -> NDArray[np.int64]:
        """Return the records that others equal, as in `spots_of`."""
        return np.array(self._database.execute("SELECT spot FROM copies").fetchnumpy()["spot"], np.int64)

    def citations_of_tables(self) -> Iterator[pa.RecordBatch]:
        """Yield the citations that belong to no record, without repeated ones."""
        return self._stream(records_sql.CITATIONS_OF_TABLES)

    def duplicates(self) -> list[Rejection]:
        """Return the records of works that another record describes as well or better, and the PubMed records
        that a later file replaces or deletes."""
        queries = (records_sql.COPIES, records_sql.DUPLICATES, records_sql.REPLACED_RECORDS)
        return [Rejection(*row) for query in queries for row in self._database.execute(query).fetchall()]

    def counts(self, papers: Path, citations: Path, mentions: Path) -> dict[str, Any]:
        """Return the counts for the manifest, after the tables were written to these files."""
        for view, path in (("papers", papers), ("citations", citations), ("mentions", mentions)):
            self._database.execute(f"CREATE OR REPLACE VIEW {view} AS FROM {scan_parquet(path)}")
        counts: dict[str, Any] = {}
        for query in (sql.COUNT_WORKS, sql.COUNT_PAPERS, sql.COUNT_LISTED, sql.COUNT_CITED, sql.COUNT_LINKED):
            counts |= self._row(query)
        counts |= self._link_counts
        for name, query in sql.TALLIES.items():
            counts[name] = {str(key): number for key, number in self._database.execute(query).fetchall()}
        return counts

    def _row(self, query: str) -> dict[str, int]:
        row: dict[str, int] = self._database.sql(query).to_arrow_table().to_pylist()[0]
        return row

    def _stream(self, query: str) -> Iterator[pa.RecordBatch]:
        yield from self._database.sql(query).to_arrow_reader(_ROWS_IN_A_BATCH)


@contextmanager
def resolving(
    parts: PartStore,
    sources: Sequence[Mapping[str, Any]],
    corpus_of: Mapping[int, int],
    threads: int,
    memory: str | None = None,
) -> Iterator[Resolved]:
    """Resolve the parts of described sources; their folder also holds the database's temporary files.

    `corpus_of` has the number of a source -> the number of the corpus that it comes from, if it does.
    """
    scratch = parts.folder / SCRATCH
    limit = int(_SHARE_OF_DATABASE * memory_bytes(memory)) if memory else memory_bytes(_MEMORY)
    settings: Any = {
        "memory_limit": f"{limit}B", "temp_directory": str(scratch), "threads": threads,
        "preserve_insertion_order": False,
        # Its estimates of joined files are far off, and the larger side must not be the one in memory.
        "disabled_optimizers": "join_order,build_side_probe_side", "autoinstall_known_extensions": False,
    }  # fmt: skip
    with duckdb.connect(":memory:", config=settings) as database:
        database.execute("SET enable_progress_bar = false")
        database.execute(
            "CREATE TABLE source_names (source INTEGER, name VARCHAR, completes BOOLEAN, corpus INTEGER)"
        )
        rows = [
            (number, str(each["name"]), each["kind"] == COMPLETING, corpus_of.get(number))
            for number, each in enumerate(sources)
        ]
        database.executemany("INSERT INTO source_names VALUES (?, ?, ?, ?)", rows)
        views = [("papers", None), ("references", REFERENCES), ("mentions", MENTIONS)]
        has_bodies = bool(parts.keys(BODIES))
        for view, suffix in views + [("bodies", BODIES)] * has_bodies:
            files = scan_parquet(parts.path("*", suffix), is_pattern=True)
            database.execute(f'CREATE VIEW "all_{view}" AS SELECT *, {_SPOT} AS spot FROM {files}')
        for statement in (*records_sql.FIND_COPIES, *records_sql.MAKE_REVISIONS):
            database.execute(statement)
        for statement in records_sql.choose_records(lambda query: database.sql(query).fetchall()):
            database.execute(statement)
        _warn_of_ids(database)
        for statement in (*sql.REFERENCE_IDS, *sql.LINKS, sql.TOGETHER):
            database.execute(statement)
        size = sum(map(_count_unpacked_bytes, parts.paths()))
        yield Resolved(database, has_bodies, size, limit)


def _warn_of_ids(database: duckdb.DuckDBPyConnection) -> None:
    """Warn of ids that may not name what they seem to.

    Raises:
        InputError: most of the own ids that two tables share are of different papers.
    """
    for found in database.execute(records_sql.OWN_IDS_OF_OTHER_WORKS).fetchall():
        _report_shared_id(*found)
    for number, cited, own in database.execute(records_sql.NEARLY_IDS).fetchall():
        if number:
            logger.warning(
                f"ids in tables of citations ({number:,}) are no paper's, such as {cited[:_SHOWN]!r}, "
                f"where a paper has {own[:_SHOWN]!r}: they name other works; write ids as papers do"
            )
    if not database.execute("SELECT 1 FROM works WHERE place > 1 LIMIT 1").fetchall():
        return  # a tenth of the time of a small import
    for key, title, other, number in database.execute(records_sql.OTHER_TITLES).fetchall():
        logger.warning(
            f"records ({number:,}) have the identifier of a record with another title, such as {key}, "
            f"{title[:_SHOWN]!r} and {other[:_SHOWN]!r}: they are taken for one paper; if they are "
            "several, as chapters of a book or abstracts of a meeting, remove it from them"
        )


def _report_shared_id(
    own: str, first: str, one: str, second: str, other: str, number: int, is_most: bool
) -> None:
    """Refuse ids most of which have other titles in other tables; warn of fewer, and of other DOIs."""
    tables, titles = f"{first} and {second}", f"{one[:_SHOWN]!r} and {other[:_SHOWN]!r}"
    advice = "give ids that no other table has, such as a prefix and the number"
    if is_most:
        raise InputError(
            f"{tables} give the id {own!r} to different papers, {titles}, and so most ids that they share: "
            f"{advice}"
        )
    logger.warning(
        f"ids ({number:,}) name different papers in two tables, by their titles, DOIs or PMIDs, such as "
        f"{own!r} in {tables}, {titles}: they stay two papers where either has a DOI or PMID, and "
        f"citations by such an id go to one of them; where neither has, they are taken for one; if that is "
        f"wrong, {advice}"
    )


def _count_unpacked_bytes(path: Path) -> int:
    table = pq.read_metadata(path)
    return sum(table.row_group(number).total_byte_size for number in range(table.num_row_groups))
