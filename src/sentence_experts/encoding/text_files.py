"""Texts in many files, in the order of the files' names."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import temporary_folder
from sentence_experts.tables import (
    BadRowError,
    Table,
    TextRow,
    TextTable,
    as_identifier,
    format_of,
    is_path,
    opened,
    parquet_file,
    read_rows,
)

_IN_FOLDERS = ("parquet", "json")
_ROWS_PER_BATCH = 8192
_MEMORY = "1GB"  # of the comparison of ids; the rest goes to the disk


def find_tables(sources: Table, column: str | None, id_column: str | None) -> list[TextTable]:
    """Return the tables that `sources` mean: files, folders, patterns with `*`.

    Raises:
        InputError: there is none.
        UsageError: one is named twice, or a table in memory is among them.
    """
    given: list[Any] = [sources] if is_path(sources) else []
    given += sources if isinstance(sources, list | tuple) else []
    if not given or not all(map(is_path, given)):
        raise UsageError("a folder of vectors is made of files: give their paths, or a file as `out`")
    found = [file for each in given for file in _files_of(Path(each))]
    if twice := next((file for number, file in enumerate(found) if file in found[:number]), None):
        raise UsageError(f"{twice}: given twice")
    return [TextTable(file, column, id_column) for file in found]


def _files_of(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    pattern = str(source.relative_to(source.anchor))
    files = source.rglob("*") if source.is_dir() else Path(source.anchor or ".").glob(pattern)
    tables = (file for file in files if file.is_file() and format_of(file) in _IN_FOLDERS)
    if not (found := sorted(file for file in tables if file.name[0] not in "._")):
        raise InputError(f"{source}: no such file, or no Parquet or JSON-lines files in it")
    return found


def count_rows(tables: Sequence[TextTable]) -> int | None:
    """Return the number of rows, if it can be known before reading the texts; check that ids are distinct.

    Raises:
        InputError: a row has no id or cannot be read, or two rows have one id.
    """
    if tables[0].id_column is not None:
        return _count_ids(tables)
    if any(format_of(table.name) != "parquet" for table in tables):
        return None
    rows = 0
    for table in tables:
        with opened(table.name) as (content, _):
            rows += parquet_file(table.name, content).metadata.num_rows
    return rows


def _count_ids(tables: Sequence[TextTable]) -> int:
    """Return the number of rows, all with their own id; ids that do not fit into memory go to the disk."""
    import duckdb  # the command line starts without it

    total = 0
    with temporary_folder() as home, duckdb.connect(f"{home}/ids.duckdb") as connection:
        connection.execute(f"SET memory_limit = '{_MEMORY}'; SET enable_progress_bar = false")
        connection.execute("CREATE TABLE ids (id VARCHAR, file INTEGER, row BIGINT)")
        for file, table in enumerate(tables):
            numbered = enumerate(_ids(table), start=1)
            while some := list(itertools.islice(numbered, _ROWS_PER_BATCH)):
                numbers, ids = zip(*some, strict=True)
                batch = pa.table({"id": ids, "file": [file] * len(ids), "row": numbers})  # noqa: F841 - found by name
                connection.execute("INSERT INTO ids SELECT * FROM batch")
                total += len(ids)
        twice = connection.execute(
            "SELECT id, min((file, row)), max((file, row)), count(*) OVER () FROM ids GROUP BY id "
            "HAVING count(*) > 1 ORDER BY 2 LIMIT 1"
        ).fetchone()
    if twice is not None:
        identifier, *rows, count = twice
        places = " and ".join(f"{tables[file].name}, row {row}" for file, row in rows)
        more = f", as do the rows of {count - 1:,} more ids" if count > 1 else ""
        raise InputError(f"{places} have one id, {identifier!r}{more}: ids must be distinct")
    return total


def _ids(table: TextTable) -> Iterator[str]:
    """Yield the ids of a table's rows.

    Raises:
        InputError: there is none, or a row cannot be read.
    """
    name = table.columns()[-1]
    for number, row in enumerate(read_rows(table.source, [name]), start=1):
        try:
            if isinstance(row, BadRowError):
                raise row
            identifier = as_identifier(row.get(name))
        except BadRowError as error:
            raise InputError(f"{table.name}: row {number}: {error}") from error
        if not identifier:
            raise InputError(f"{table.name}: row {number} has no {name}")
        yield identifier


def chunks_of(tables: Sequence[TextTable], size: int) -> Iterator[list[TextRow]]:
    """Yield the texts of all tables in order, `size` at a time."""
    rows = itertools.chain.from_iterable(table.rows() for table in tables)
    while chunk := list(itertools.islice(rows, size)):
        yield chunk
