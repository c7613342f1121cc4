"""Tables of any common kind, row by row: files, data frames, Arrow tables, datasets.

Files are Parquet, CSV, TSV or JSON lines, or plain text with one text per line, each optionally gzipped. A
row that cannot be read comes as a `BadRowError` in its place, so that callers can name it and go on, or stop.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.errors import InputError
from sentence_experts.storage import sha256_file

Row = dict[str, Any]
# A path, a pandas or polars data frame, a `datasets.Dataset`, an Arrow stream, a mapping of columns,
# a list of dicts, or a list of texts.
Table = Any

TEXT: Final = "text"  # the only column of plain text, and of a list of texts
_FORMATS = {
    ".parquet": "parquet", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "json", ".ndjson": "json",
    ".json": "json", ".txt": "lines",
}  # fmt: skip
_MAX_FIELD_SIZE = 1 << 26
_ROWS_PER_BATCH = 2048
_ROWS_WITH_COLUMNS = 100  # of JSON lines, whose columns are those of the first rows


class BadRowError(Exception):
    """A row that cannot be read or used; the message says why."""


@dataclass(frozen=True)
class TextRow:
    """A text, and its identifier where an id column was asked for."""

    text: str
    id: str | None = None


def is_path(source: Table) -> bool:
    """Whether a table is given by its path."""
    return isinstance(source, str | Path)


def name_of_table(source: Table) -> str:
    """What messages call a table: its path, or "the table"."""
    return str(source) if is_path(source) else "the table"


def check_columns(where: str, wanted: Iterable[str], found: Iterable[str]) -> None:
    """Check that all wanted columns were found; `where` names the table.

    Raises:
        InputError: some are missing.
    """
    found = list(found)
    missing = [name for name in wanted if name not in found]
    if missing:
        raise InputError(
            f"{where} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
            f"it has: {', '.join(found) or 'none'}"
        )


def to_arrow(data: Table) -> pa.Table:
    """A table in memory as an Arrow table.

    Raises:
        InputError: it is none.

    >>> to_arrow([{"id": 1, "title": "Rice"}, {"id": 2, "title": "Sleep"}]).column_names
    ['id', 'title']
    """
    library = type(data).__module__.partition(".")[0]
    try:
        if isinstance(data, pa.Table):
            return data
        if library == "pandas":
            return pa.Table.from_pandas(data, preserve_index=False)
        if library == "datasets":
            return pa.table(data.with_format("arrow")[:])
        if isinstance(data, Mapping) or hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
        if hasattr(data, "__dataframe__"):
            from pyarrow.interchange import from_dataframe

            return from_dataframe(data)
        if isinstance(data, Sequence) and not isinstance(data, str):
            texts = all(isinstance(item, str) for item in data)
            return pa.table({TEXT: pa.array(data, pa.string())}) if texts else pa.Table.from_pylist(data)
    except (pa.ArrowException, TypeError, AttributeError) as error:
        raise InputError(f"the {type(data).__name__} cannot be read as a table: {error}") from error
    raise InputError(f"cannot read a table from {type(data).__name__}: give a path, a data frame or a list")


def read_columns(source: Table) -> list[str]:
    """The names of a table's columns; of JSON lines, those of its first rows.

    Raises:
        InputError: the file is missing, of an unknown kind, or no table, or two columns have one name.
    """
    if not is_path(source):
        return list(to_arrow(source).column_names)
    path = Path(source)
    kind = _format(path)
    with _open(path) as file:
        try:
            if kind == "lines":
                return [TEXT]
            if kind == "parquet":
                return [str(name) for name in _parquet(path, file).schema_arrow.names]
            if kind == "json":
                rows = itertools.islice(_json_rows(file), _ROWS_WITH_COLUMNS)
                return list(dict.fromkeys(name for row in rows if isinstance(row, dict) for name in row))
            return _delimited(path, file, kind)[0]
        except (EOFError, OSError, csv.Error) as error:
            raise InputError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error


def read_rows(source: Table, columns: Sequence[str] | None = None) -> Iterator[Row | BadRowError]:
    """The rows of a table in order; a row that cannot be read is a `BadRowError`.

    Empty lines of CSV, TSV and JSON lines are no rows; an empty cell of CSV and TSV is None.

    Args:
        source: the table.
        columns: at least these; others may be left out.

    Raises:
        InputError: the file is missing, of an unknown kind, or no table.
    """
    if not is_path(source):
        table = to_arrow(source)
        for batch in (table if columns is None else table.select(list(columns))).to_batches(_ROWS_PER_BATCH):
            yield from batch.to_pylist()
        return
    path = Path(source)
    kind = _format(path)
    with _open(path) as file:
        try:
            if kind == "parquet":
                wanted = None if columns is None else list(columns)
                for batch in _parquet(path, file).iter_batches(_ROWS_PER_BATCH, columns=wanted):
                    yield from batch.to_pylist()
            elif kind == "json":
                yield from _json_rows(file)
            elif kind == "lines":
                # Split at \n and \r\n only: form feeds and the like belong to a text.
                for line in _as_text(file):
                    yield _checked({TEXT: line.removesuffix("\n").removesuffix("\r")})
            else:
                yield from _delimited_rows(path, file, kind)
        except InputError:
            raise
        except (EOFError, OSError, csv.Error, pa.ArrowException) as error:
            yield BadRowError(f"the file breaks off here: {' '.join(str(error).split())}")


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
        """What messages call it."""
        return name_of_table(self.source)

    def rows(self) -> Iterator[TextRow]:
        """The texts in order; a missing one is empty.

        Raises:
            InputError: no such file, a column is missing (lists the columns), or a row cannot be read (names
                it).
        """
        chosen = self._columns(read_columns(self.source))
        for number, row in enumerate(read_rows(self.source, chosen or None), start=1):
            try:
                if isinstance(row, BadRowError):
                    raise row
                text, identifier = (_as_cell(row.get(name)) for name in (chosen[0], chosen[-1]))
            except BadRowError as error:
                raise InputError(f"{self.name}: row {number}: {error}") from error
            yield TextRow(text or "", identifier if self.id_column else None)

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

    def _columns(self, columns: list[str]) -> list[str]:
        """The text column, and the id column behind it; nothing if the table is empty."""
        if not columns:
            return []
        known = f"columns are {', '.join(columns)}"
        if self.column is None and len(columns) > 1:
            raise InputError(f"{self.name}: name the column with the texts (`column`); {known}")
        chosen = [columns[0] if self.column is None else self.column, *filter(None, [self.id_column])]
        for wanted in chosen:
            if wanted not in columns:
                raise InputError(f"{self.name}: no column {wanted!r}; {known}")
        return list(dict.fromkeys(chosen))


# ---- files ---------------------------------------------------------------------------------------


def _format(path: Path) -> str:
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    if ending not in _FORMATS:
        raise InputError(
            f"{path}: cannot tell its format; a table must end in {', '.join(_FORMATS)}, optionally with .gz"
        )
    return _FORMATS[ending]


def _open(path: Path) -> Any:
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b" or path.name.lower().endswith(".gz")
        return gzip.open(path, "rb") if packed else open(path, "rb")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def _parquet(path: Path, file: Any) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(io.BytesIO(file.read()) if isinstance(file, gzip.GzipFile) else file)
    except pa.ArrowException as error:
        raise InputError(f"{path} is no Parquet file: {error}") from error


def _json_rows(file: Any) -> Iterator[Row | BadRowError]:
    for number, line in enumerate(file):
        if not line.strip():
            continue
        try:
            value = json.loads(line.removeprefix(b"\xef\xbb\xbf") if number == 0 else line)
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            yield BadRowError(f"not JSON: {error}")
        else:
            yield value if isinstance(value, dict) else BadRowError("not a JSON object")


def _as_text(file: Any) -> io.TextIOWrapper:
    return io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _delimited(path: Path, file: Any, kind: str) -> tuple[list[str], Iterator[list[str]]]:
    """The header of CSV or TSV, and the lines after it."""
    csv.field_size_limit(_MAX_FIELD_SIZE)
    text = (line.replace("\0", "") for line in _as_text(file))
    lines = csv.reader(text, delimiter="," if kind == "csv" else "\t")
    header = next(lines, [])
    if twice := [name for name in header if header.count(name) > 1]:
        raise InputError(f"{path}: two columns are called {twice[0]!r}")
    return header, lines


def _delimited_rows(path: Path, file: Any, kind: str) -> Iterator[Row | BadRowError]:
    header, lines = _delimited(path, file, kind)
    for values in lines:
        if not values:
            continue
        if len(values) != len(header):
            yield BadRowError(f"{len(values)} fields where the header has {len(header)}")
        else:
            yield _checked(dict(zip(header, (value or None for value in values), strict=True)))


def _checked(row: Row) -> Row | BadRowError:
    """The row, if its bytes were UTF-8; others were read as lone surrogates."""
    for name, value in row.items():
        if value and not value.isascii() and any("\udc80" <= letter <= "\udcff" for letter in value):
            return BadRowError(f"column {name} is not UTF-8: save the file as UTF-8")
    return row


def _as_cell(value: Any) -> str | None:
    if isinstance(value, list | dict | bytes):
        raise BadRowError(f"a text is expected, not {str(value)[:60]!r}")
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return str(value)
