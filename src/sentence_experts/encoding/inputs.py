"""Texts from a file, in chunks: lines, CSV, TSV, JSON lines (each optionally gzipped) or Parquet."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.errors import InputError, UsageError

ROWS_READ_AT_ONCE = 1024


@dataclass(frozen=True)
class Row:
    """One record: its text, and its identifier where an id column is asked for."""

    text: str
    id: str | None = None


@dataclass(frozen=True)
class TextFile:
    """A file of texts.

    Attributes:
        path: its ending says what it is (`READERS`), `.gz` behind it that it is gzipped.
        column: the column with the texts; not for lines. May be left out if there is one column only.
        id_column: a column to carry along with the vectors.
    """

    path: Path
    column: str | None = None
    id_column: str | None = None

    @property
    def kind(self) -> str:
        """The ending without `.gz`.

        Raises:
            InputError: an ending that is not known.
        """
        name = self.path.name.lower()
        kind = Path(name.removesuffix(".gz")).suffix
        if kind not in READERS:
            known = ", ".join(READERS)
            raise InputError(f"{self.path}: cannot tell its format; endings known: {known} (and .gz)")
        return kind

    def rows(self) -> Iterator[Row]:
        """The records in order. A null or absent text is an empty one.

        Raises:
            InputError: no such file, a column that is missing (the message lists the columns), or a record
                that cannot be read (the message names the line).
            UsageError: a column of a file of lines.
        """
        if not self.path.is_file():
            raise InputError(f"{self.path}: no such file")
        try:
            yield from READERS[self.kind](self)
        except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, pa.ArrowInvalid) as error:
            raise InputError(f"{self.path}: cannot be read as {self.kind}: {error}") from error

    def check(self) -> None:
        """Read the first record, so that a wrong file or column is known before a model is loaded.

        Raises:
            InputError: as `rows`.
        """
        next(self.rows(), None)

    def chunks(self, size: int) -> Iterator[list[Row]]:
        """The records, `size` at a time."""
        chunk: list[Row] = []
        for row in self.rows():
            chunk.append(row)
            if len(chunk) == size:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def open_text(self) -> IO[str]:
        """The file as UTF-8 text, unpacked; a byte order mark is skipped, line ends are kept."""
        if self.path.name.lower().endswith(".gz"):
            return io.TextIOWrapper(gzip.open(self.path), encoding="utf-8-sig", newline="")
        return open(self.path, encoding="utf-8-sig", newline="")

    def chosen_columns(self, columns: list[str]) -> tuple[str, str | None]:
        """The text column and the id column, both known to be there.

        Raises:
            InputError: one is missing, or it is not clear which holds the texts.
        """
        known = f"columns are {', '.join(columns)}"
        column = self.column
        if column is None:
            if len(columns) != 1:
                raise InputError(f"{self.path}: name the column with the texts (--column); {known}")
            column = columns[0]
        for wanted in (column, self.id_column):
            if wanted is not None and wanted not in columns:
                raise InputError(f"{self.path}: no column {wanted!r}; {known}")
        return column, self.id_column


def _lines(source: TextFile) -> Iterator[Row]:
    if source.column or source.id_column:
        raise UsageError(
            f"{source.path}: has a text on each line and no columns; leave out --column, --id-column"
        )
    with source.open_text() as file:
        # Split at \n and \r\n only: form feeds and the like belong to a text.
        for line in file:
            yield Row(line.removesuffix("\n").removesuffix("\r"))


def _delimited(delimiter: str) -> Callable[[TextFile], Iterator[Row]]:
    def read(source: TextFile) -> Iterator[Row]:
        csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
        with source.open_text() as file:
            reader = csv.DictReader(file, delimiter=delimiter)
            column, id_column = source.chosen_columns(list(reader.fieldnames or []))
            try:
                for record in reader:
                    # csv puts surplus cells under None, and None into cells that are not there.
                    if None in record or None in record.values():
                        raise InputError(
                            f"{source.path}: line {reader.line_num}: more or fewer cells than the header's "
                            f"{len(reader.fieldnames or [])}"
                        )
                    yield _row(record, column, id_column)
            except csv.Error as error:
                raise InputError(f"{source.path}: line {reader.line_num}: {error}") from error

    return read


def _json_lines(source: TextFile) -> Iterator[Row]:
    chosen: tuple[str, str | None] | None = None
    with source.open_text() as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{source.path}: line {number} is not JSON: {error}") from error
            if not isinstance(record, dict):
                raise InputError(f"{source.path}: line {number} is not a JSON object")
            chosen = chosen or source.chosen_columns(list(record))
            yield _row(record, *chosen)


def _parquet(source: TextFile) -> Iterator[Row]:
    file = pq.ParquetFile(source.path)
    column, id_column = source.chosen_columns(file.schema_arrow.names)
    columns = [column, *([id_column] if id_column and id_column != column else [])]
    for batch in file.iter_batches(batch_size=ROWS_READ_AT_ONCE, columns=columns):
        for record in batch.to_pylist():
            yield _row(record, column, id_column)


def _row(record: dict[str, Any], column: str, id_column: str | None) -> Row:
    text, identifier = record.get(column), record.get(id_column) if id_column else None
    return Row("" if text is None else str(text), None if identifier is None else str(identifier))


READERS: dict[str, Callable[[TextFile], Iterator[Row]]] = {
    ".txt": _lines,
    ".csv": _delimited(","),
    ".tsv": _delimited("\t"),
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".parquet": _parquet,
}
