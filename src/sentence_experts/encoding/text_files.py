"""Texts in many files, Parquet or JSON lines, on disks or object storage: cut into ranges of rows.

Rows are numbered through all files, in the order of the files' names, so that a range is the same on every
machine. A range is read without what is before it: of Parquet its row groups, of JSON lines its bytes.
"""

from __future__ import annotations

import io
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa

from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import is_url, remote_files, remote_fingerprint, sha256_unchanging
from sentence_experts.tables import (
    BadRowError,
    TextRow,
    TextTable,
    as_identifier,
    encoding_of,
    format_of,
    json_rows,
    opened,
    parquet_file,
    with_texts_for_bytes,
)

FORMATS = ("parquet", "json")
_ROWS_PER_BATCH = 8192
_MEMORY = "1GB"  # of the comparison of ids; the rest goes to the disk

Source = str | Path


@dataclass(frozen=True)
class TextFile:
    """One of the files.

    Attributes:
        path: a path or URL.
        fingerprint: a SHA-256, or of a URL what its storage knows of it.
        rows: the number of rows.
        offsets: of JSON lines, where the part of each range that the file belongs to begins, and the end.
    """

    path: str
    fingerprint: str
    rows: int
    offsets: tuple[int, ...] = ()


def find_files(sources: Source | Sequence[Source]) -> list[str]:
    """Return the paths and URLs of the files that `sources` mean: files, folders, patterns with `*`, URLs.

    Raises:
        InputError: there is none, or one of another format.
        UsageError: one is named twice.
    """
    given = [sources] if isinstance(sources, str | Path) else list(sources)
    found = [file for each in given for file in _files_of(each)]
    if twice := next((file for number, file in enumerate(found) if file in found[:number]), None):
        raise UsageError(f"{twice}: given twice")
    return found


def _files_of(source: Source) -> list[str]:
    if is_url(source):
        files = remote_files(str(source))
    elif Path(source).is_file():
        files = [str(source)]
    elif Path(source).is_dir():
        files = sorted(str(file) for file in Path(source).rglob("*") if file.is_file())
    else:
        pattern = Path(source)
        files = sorted(map(str, Path(pattern.anchor or ".").glob(str(pattern.relative_to(pattern.anchor)))))
    if files != [str(source)]:  # a folder also holds `_SUCCESS` and hidden files
        files = [
            file for file in files if file.rsplit("/", 1)[-1][0] not in "._" and format_of(file) in FORMATS
        ]
    if not files:
        raise InputError(f"{source}: no such file, or no Parquet or JSON-lines files in it")
    if format_of(files[0]) not in FORMATS:
        raise InputError(f"{source}: texts in parts are Parquet or JSON lines (.parquet, .jsonl)")
    return files


def fingerprint_of_file(path: str) -> str:
    """Return what changes when a file does."""
    return remote_fingerprint(path) if is_url(path) else sha256_unchanging(Path(path))


@dataclass(frozen=True)
class TextFiles:
    """Texts in files, and the ranges that they are read in.

    Attributes:
        files: in the order of their rows.
        size: number of rows per range.
        column: the column with the texts.
        id_column: a column with an identifier for each text.
    """

    files: tuple[TextFile, ...]
    size: int
    column: str | None = None
    id_column: str | None = None

    @classmethod
    def scan(cls, paths: Sequence[str], size: int, column: str | None, id_column: str | None) -> TextFiles:
        """Count the rows of files; with an id column, also check that every row has its own id.

        Raises:
            InputError: a file cannot be read, a column or an id is missing, or two rows have one id.
        """
        files: list[TextFile] = []
        first = 0
        with nullcontext() if id_column is None else _id_table() as connection:
            for path in paths:
                TextTable(path, column, id_column).columns()
                fingerprint, rows = fingerprint_of_file(path), 0
                offsets: list[int] = []
                with opened(path) as (content, kind):
                    for ids in (
                        _ids_of_parquet(path, content, id_column)
                        if kind == "parquet"
                        else _ids_of_json(path, content, id_column, first, size, offsets)
                    ):
                        if id_column is not None:
                            _add_ids(connection, path, len(files), ids, rows, id_column)
                        rows += len(ids)
                files.append(TextFile(path, fingerprint, rows, tuple(offsets)))
                first += rows
            if id_column is not None:
                _check_ids(connection, paths)
        return cls(tuple(files), size, column, id_column)

    @classmethod
    def of_json(cls, content: dict[str, Any], paths: Sequence[str]) -> TextFiles:
        """Make it from `to_json`, with the files where they are now."""
        files = (
            TextFile(path, each["fingerprint"], each["rows"], tuple(each["offsets"]))
            for path, each in zip(paths, content["files"], strict=True)
        )
        return cls(tuple(files), content["size"], content["column"], content["id_column"])

    def to_json(self) -> dict[str, Any]:
        """Return a description as plain values, without the folders of this machine."""
        names = [{**asdict(file), "path": file.path.rsplit("/", 1)[-1]} for file in self.files]
        return {"size": self.size, "column": self.column, "id_column": self.id_column, "files": names}

    @cached_property
    def starts(self) -> list[int]:
        """The number of each file's first row, and the number of all rows."""
        return list(itertools.accumulate((file.rows for file in self.files), initial=0))

    @property
    def rows(self) -> int:
        """The number of all rows."""
        return self.starts[-1]

    @property
    def ranges(self) -> int:
        """The number of ranges."""
        return -(-self.rows // self.size)

    def read(self, number: int) -> Iterator[TextRow]:
        """Yield the texts of a range.

        Raises:
            InputError: a file cannot be read, or a row of it.
        """
        first, stop = number * self.size, min((number + 1) * self.size, self.rows)
        for file, start in zip(self.files, self.starts, strict=False):
            begin, end = max(first, start) - start, min(stop, start + file.rows) - start
            if begin < end:
                table = TextTable(file.path, self.column, self.id_column)
                columns = table.columns()
                with opened(file.path) as (content, kind):
                    rows = (
                        _parquet_rows(file.path, content, columns, begin, end)
                        if kind == "parquet"
                        else self._json_rows(file, content, start, begin, end)
                    )
                    read = 0
                    for read, row in enumerate(rows, start=1):
                        yield table.text_row(row, begin + read, columns)
                if read != end - begin:
                    raise InputError(f"{file.path}: changed while it was read; give the same command again")

    def _json_rows(
        self, file: TextFile, content: IO[bytes], start: int, begin: int, end: int
    ) -> Iterator[dict[str, Any] | BadRowError]:
        part = (start + begin) // self.size - start // self.size
        content.seek(file.offsets[part])
        lines = io.BytesIO(content.read(file.offsets[part + 1] - file.offsets[part]))
        return itertools.islice(json_rows(file.path, lines, begin), end - begin)


def _parquet_rows(
    path: str, content: IO[bytes], columns: Sequence[str], begin: int, end: int
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file from `begin` to before `end`."""
    table = parquet_file(path, content)
    groups: list[int] = []
    first = before = 0
    for group in range(table.num_row_groups):
        rows = table.metadata.row_group(group).num_rows
        if before + rows > begin and before < end:
            first = first if groups else before
            groups.append(group)
        before += rows
    for batch in table.iter_batches(_ROWS_PER_BATCH, row_groups=groups, columns=list(columns)):
        here = batch.slice(max(begin - first, 0), max(end - max(first, begin), 0))
        first += len(batch)
        if len(here):
            yield from with_texts_for_bytes(here, path).to_pylist()
        if first >= end:
            return


def _ids_of_parquet(path: str, content: IO[bytes], id_column: str | None) -> Iterator[Sequence[Any]]:
    """Yield the ids of the rows, or without an id column as many other values."""
    table = parquet_file(path, content)
    if id_column is None:
        yield range(table.metadata.num_rows)
        return
    for batch in table.iter_batches(_ROWS_PER_BATCH, columns=[id_column]):
        yield with_texts_for_bytes(batch, path).column(0).to_pylist()


def _ids_of_json(
    path: str, content: IO[bytes], id_column: str | None, first: int, size: int, offsets: list[int]
) -> Iterator[Sequence[Any]]:
    """Yield the ids of JSON lines, or None for each; fill `offsets` with the places where ranges begin."""
    if (encoding := encoding_of(content)) != "utf-8-sig":
        raise InputError(f"{path}: {encoding.upper()}: save it as UTF-8")
    place, number, ids = 0, first, []
    for line in content:
        if line[:1] == b"{" or line.decode("utf-8", "surrogateescape").strip():
            if number == first or number % size == 0:
                offsets.append(place)
            ids.append(None if id_column is None else _json_id(path, line, number - first + 1, id_column))
            number += 1
            if len(ids) == _ROWS_PER_BATCH:
                yield ids
                ids = []
        place += len(line)
    offsets.append(place)
    yield ids


def _json_id(path: str, line: bytes, number: int, id_column: str) -> Any:
    try:
        row = orjson.loads(line.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:  # what it does not take, such as NaN, may be read all the same
        row = next(json_rows(path, io.BytesIO(line), number - 1))
    if not isinstance(row, dict):
        raise InputError(
            f"{path}: row {number}: {row if isinstance(row, BadRowError) else 'not a JSON object'}"
        )
    return row.get(id_column)


@contextmanager
def _id_table() -> Iterator[Any]:
    """Yield DuckDB with a table `ids` (id, file, row) that takes a fixed memory."""
    import duckdb  # the command line starts without it

    with (
        tempfile.TemporaryDirectory(prefix="sentence-experts-") as folder,
        duckdb.connect(f"{folder}/ids.duckdb") as connection,
    ):
        connection.execute(f"SET memory_limit = '{_MEMORY}'")
        connection.execute("SET enable_progress_bar = false")
        connection.execute("CREATE TABLE ids (id VARCHAR, file INTEGER, row BIGINT)")
        yield connection


def _add_ids(connection: Any, path: str, file: int, values: Sequence[Any], row: int, id_column: str) -> None:
    ids = []
    for number, value in enumerate(values, start=row + 1):
        try:
            ids.append(as_identifier(value))
        except BadRowError as error:
            raise InputError(f"{path}: row {number}: {error}") from error
        if not ids[-1]:
            raise InputError(f"{path}: row {number} has no {id_column}")
    numbers = range(row + 1, row + len(ids) + 1)
    batch = pa.table({"id": pa.array(ids, pa.string()), "row": pa.array(numbers, pa.int64())})  # noqa: F841 - DuckDB finds it by name
    connection.execute(f"INSERT INTO ids SELECT id, {file}, row FROM batch")


def _check_ids(connection: Any, paths: Sequence[str]) -> None:
    """Check that no two rows have one id."""
    twice = connection.execute(
        "SELECT id, min((file, row)), max((file, row)), count(*) OVER () FROM ids GROUP BY id "
        "HAVING count(*) > 1 ORDER BY 2 LIMIT 1"
    ).fetchone()
    if twice is not None:
        identifier, *rows, count = twice
        places = " and ".join(f"{paths[file]}, row {row}" for file, row in rows)
        more = f", as do the rows of {count - 1:,} more ids" if count > 1 else ""
        raise InputError(f"{places} have one id, {identifier!r}{more}: ids must be distinct")
