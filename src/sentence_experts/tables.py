"""Tables of any common kind, row by row: files, data frames, Arrow tables, datasets.

Files are Parquet, CSV, TSV or JSON lines, or plain text with one text per line, each optionally gzipped. A
row that cannot be read comes as a `BadRowError` in its place, so that callers can name it and continue, or
stop; a file that breaks off or is not UTF-8 is refused.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from sentence_experts.errors import InputError
from sentence_experts.storage import sha256_file
from sentence_experts.table_files import TEXT, Row, file_columns, file_rows
from sentence_experts.table_values import BadRowError, as_identifier, as_text, with_texts_for_bytes

__all__ = [
    "TEXT", "BadRowError", "Row", "Table", "TextRow", "TextTable", "as_identifier", "as_text",
    "check_columns", "fingerprint", "is_path", "name_of_table", "read_columns", "read_rows",
    "read_table", "to_arrow",
]  # fmt: skip

logger = logging.getLogger(__name__)

# A path, a pandas or polars data frame, a `datasets.Dataset`, anything that Arrow reads, a mapping of
# columns, a list of dicts, or a list of texts.
Table = Any

_ROWS_PER_BATCH: Final = 2048
_IDS_COMPARED: Final = 2_000_000
"""Maximum number of ids that are kept in memory to find those that two rows have."""


@dataclass(frozen=True)
class TextRow:
    """A text, and its identifier where there is an id column."""

    text: str
    id: str | None = None


def is_path(source: Table) -> bool:
    """Whether a table is given by its path."""
    return isinstance(source, str | Path)


def name_of_table(source: Table) -> str:
    """Return the name of a table in messages: its path, or "the table"."""
    return str(source) if is_path(source) else "the table"


def check_columns(where: str, wanted: Iterable[str], columns: Iterable[str]) -> None:
    """Check that all wanted columns were found; `where` names the table.

    Raises:
        InputError: some are missing.
    """
    columns = list(columns)
    missing = [name for name in wanted if name not in columns]
    if missing:
        raise InputError(
            f"{where} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
            f"it has: {', '.join(columns) or 'none'}"
        )


def to_arrow(data: Table) -> pa.Table:
    """A table in memory as an Arrow table, with texts where it has bytes.

    Raises:
        InputError: it is none, two columns have one name, or bytes are not UTF-8.

    >>> to_arrow([{"id": 1, "title": "Rice"}, {"id": 2, "title": "Sleep"}]).column_names
    ['id', 'title']
    """
    try:
        table = _to_arrow(data)
    except (pa.ArrowException, TypeError, AttributeError, ValueError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"the {type(data).__name__} cannot be read as a table: {reason}") from error
    if table is None:
        raise InputError(
            f"cannot read a table from {type(data).__name__}: give a path, a data frame or a list"
        )
    return with_texts_for_bytes(table, name_of_table(data))


def _to_arrow(data: Table) -> pa.Table | None:
    if isinstance(data, pa.Table):
        return data
    library = type(data).__module__.partition(".")[0]
    if hasattr(data, "to_frame"):  # a series of pandas or polars: one column
        data = data.to_frame(data.name or TEXT)
    if library == "numpy":
        data = data.tolist()
    if library == "pandas":
        return pa.Table.from_pandas(data, preserve_index=False)
    if library == "datasets":
        return pa.table(data.with_format("arrow")[:])
    if isinstance(data, Mapping) or hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    if hasattr(data, "__dataframe__"):
        from pyarrow.interchange import from_dataframe

        return from_dataframe(data)
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        texts = isinstance(next(iter(data), ""), str)
        for number, item in enumerate(data, start=1):
            if not isinstance(item, str if texts else Mapping):
                what = "a text" if texts else "a text or a row (a dict)"
                raise InputError(f"item {number} of the list is {item!r}, not {what}")
        return pa.table({TEXT: pa.array(data, pa.string())}) if texts else pa.Table.from_pylist(data)
    return None


def _is_texts(data: Table) -> bool:
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(text, str) for text in data)


def read_columns(source: Table) -> list[str]:
    """The names of a table's columns; of JSON lines, those of its first rows.

    Raises:
        InputError: the file is missing, of an unknown kind, or no table, or two columns have one name.
    """
    if is_path(source):
        return file_columns(source)
    return [TEXT] if _is_texts(source) else list(to_arrow(source).column_names)


def read_rows(source: Table, columns: Sequence[str] | None = None) -> Iterator[Row | BadRowError]:
    """The rows of a table in order; a row that cannot be read is a `BadRowError`.

    Empty lines of CSV, TSV and JSON lines are not rows; an empty cell of CSV and TSV is None.

    Args:
        source: the table.
        columns: at least these; others may be left out.

    Raises:
        InputError: the file is missing, of an unknown kind, or no table; it breaks off, or is not UTF-8.
    """
    if is_path(source):
        yield from file_rows(source, columns)
        return
    if _is_texts(source):  # without Arrow, which imports pandas to look at a list
        yield from ({TEXT: text} for text in source)
        return
    table = to_arrow(source)
    for batch in (table if columns is None else table.select(list(columns))).to_batches(_ROWS_PER_BATCH):
        yield from batch.to_pylist()


def read_table(source: Table, columns: Sequence[str]) -> pa.Table:
    """Some columns of a table, whole; the cells of CSV, TSV and plain text are strings.

    Raises:
        InputError: as `read_rows`; or a column is missing, or a row cannot be read (names it).
    """
    check_columns(name_of_table(source), columns, read_columns(source))
    if not is_path(source):
        return to_arrow(source).select(list(columns))
    cells: dict[str, list[Any]] = {name: [] for name in columns}
    for number, row in enumerate(read_rows(source, columns), start=1):
        if isinstance(row, BadRowError):
            raise InputError(f"{source}: row {number}: {row}") from row
        for name, values in cells.items():
            values.append(row.get(name))
    try:
        return pa.table(cells)
    except pa.ArrowException as error:
        raise InputError(f"{source}: a column mixes kinds of values: {error}") from error


def fingerprint(source: Table) -> tuple[int, str]:
    """(bytes, SHA-256) of a file, or of a table's content in memory.

    Raises:
        InputError: no such file, or no table.
    """
    if is_path(source):
        if not Path(source).is_file():
            raise InputError(f"{source}: no such file")
        return Path(source).stat().st_size, sha256_file(Path(source))
    table = to_arrow(source).combine_chunks().replace_schema_metadata(None)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    content = stream.getvalue()
    return content.size, hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class TextTable:
    """The texts in a column of a table.

    Attributes:
        source: the table: a path, a data frame, a list of texts, ...
        column: the column with the texts; may be left out if there is only one.
        id_column: a column with an identifier for each text.
    """

    source: Table
    column: str | None = None
    id_column: str | None = None

    @property
    def name(self) -> str:
        """The name in messages."""
        return name_of_table(self.source)

    def rows(self) -> Iterator[TextRow]:
        """The texts in order; a missing one is empty. Rows of one id are counted in a warning at the end.

        Raises:
            InputError: no such file, a column is missing (lists the columns), or a row cannot be read (names
                it).
        """
        chosen = self.columns()
        seen: set[str] = set()
        again: list[str] = []
        for number, row in enumerate(read_rows(self.source, chosen or None), start=1):
            yield (text_row := self.text_row(row, number, chosen))
            identifier = text_row.id
            if identifier is not None and len(seen) < _IDS_COMPARED:
                again += [f"row {number} ({identifier!r})"] if identifier in seen else []
                seen.add(identifier)
        if again:
            logger.warning(
                f"{self.name}: {len(again):,} row{'s have the ids' if len(again) > 1 else ' has the id'} of "
                f"earlier rows, the first is {again[0]}"
            )

    def text_row(self, row: Row | BadRowError, number: int, columns: Sequence[str]) -> TextRow:
        """The text in a row of the table; `number` counts from 1, `columns` are those of `columns()`.

        Raises:
            InputError: the row cannot be read.
        """
        try:
            if isinstance(row, BadRowError):
                raise row
            text = as_text(row.get(columns[0])) or ""
            return TextRow(text, as_identifier(row.get(columns[-1])) if self.id_column else None)
        except BadRowError as error:
            raise InputError(f"{self.name}: row {number}: {error}") from error

    def texts(self) -> list[str]:
        """All texts."""
        return [row.text for row in self.rows()]

    def chunks(self, size: int) -> Iterator[list[TextRow]]:
        """The texts, `size` at a time."""
        rows = self.rows()
        while chunk := list(itertools.islice(rows, size)):
            yield chunk

    def check(self) -> None:
        """Read the first row, so that a wrong file or column is known before a model is loaded.

        Raises:
            InputError: as `rows`.
        """
        next(self.rows(), None)

    def fingerprint(self) -> str:
        """A hash of the file, or of the texts in memory."""
        return fingerprint(self.source)[1]

    def columns(self) -> list[str]:
        """The text column, and the id column behind it; nothing if the table is empty.

        Raises:
            InputError: no such file, or a column is missing (lists the columns).
        """
        if not (columns := read_columns(self.source)):
            return []
        known = f"columns are {', '.join(columns)}"
        if self.column is None and len(columns) > 1:
            raise InputError(f"{self.name}: name the column with the texts (`column`); {known}")
        chosen = [columns[0] if self.column is None else self.column, *filter(None, [self.id_column])]
        for wanted in chosen:
            if wanted not in columns:
                raise InputError(f"{self.name}: no column {wanted!r}; {known}")
        return list(dict.fromkeys(chosen))
