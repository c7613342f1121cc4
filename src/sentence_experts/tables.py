"""Tables of any common kind, row by row: files, data frames, Arrow tables, datasets.

Files are Parquet, CSV, TSV or JSON lines, or plain text with one text per line, each also .gz or .xz. Text
files are UTF-8, or UTF-16 with a byte order mark. A row that cannot be read comes as a `BadRowError` in its
place, so that callers can name it and continue, or stop; a file that breaks off or is in another encoding is
refused. A missing cell (None, NaN) is None. Lists, objects and bytes are no texts.
"""

from __future__ import annotations

import ast
import codecs
import csv
import gzip
import hashlib
import io
import itertools
import json
import lzma
import re
import tokenize
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from os.path import exists, isfile
from pathlib import Path
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.errors import InputError
from sentence_experts.storage import FileState, file_state, sha256_file

# A path, a pandas or polars data frame, a `datasets.Dataset`, anything that Arrow reads, a mapping of
# columns, a list of dicts, or a list of texts.
Table = Any
Row = dict[str, Any]

TEXT: Final = "text"  # the only column of plain text
NO_VALUES: Final = ("NaN", "nan", "NA", "<NA>", "null", "NULL")  # as pandas and R write empty cells
_FORMATS: Final = {
    ".parquet": "parquet", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "json", ".ndjson": "json",
    ".json": "json", ".txt": "lines",
}  # fmt: skip
_MAX_LINE: Final = 1 << 26
"""Maximum number of characters per line and per field of a text file."""
_HALF_A_PAIR: Final = "half of a surrogate pair, such as \\ud800, is not text"
_ROWS_PER_BATCH: Final = 2048
_ROWS_WITH_COLUMNS: Final = 100  # first rows of JSON lines, which tell the columns
# Pandas writes the integers of a column with empty cells so.
_WHOLE_AS_FLOAT: Final = re.compile(r"(-?\d+)\.0", re.ASCII)


class BadRowError(Exception):
    """A row that cannot be read or used; the message says why."""


# ---- tables --------------------------------------------------------------------------------------


def is_path(source: Table) -> bool:
    """Return whether a table is given by its path."""
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
    if missing := [name for name in wanted if name not in columns]:
        raise InputError(
            f"{where} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
            f"it has: {', '.join(columns) or 'none'}"
        )


def read_columns(source: Table) -> list[str]:
    """Return the names of a table's columns; of JSON lines, the names in any row.

    Raises:
        InputError: the file is missing, of an unknown kind, or no table, or two columns have one name.
    """
    with _open_rows(source, None) as (columns, _):
        if is_path(source) and format_of(source) == "json":
            return list(_read_names(Path(source), file_state(source)))
        return columns


@lru_cache(maxsize=256)
def _read_names(file: Path, state: FileState) -> tuple[str, ...]:
    """Return the names in any row of JSON lines, read once of a file that keeps its state."""
    with _open_rows(file, None) as (_, rows):
        return tuple(dict.fromkeys(name for row in rows if isinstance(row, dict) for name in row))


def read_rows(source: Table, columns: Sequence[str] | None = None) -> Iterator[Row | BadRowError]:
    """Yield the rows of a table in order; a row that cannot be read is a `BadRowError`.

    Empty lines of CSV, TSV and JSON lines are not rows; an empty cell of CSV and TSV is None.

    Args:
        source: the table.
        columns: columns to read at least; others may be left out.

    Raises:
        InputError: the file is missing, of an unknown kind, or no table; it breaks off, or is not UTF-8.
    """
    with _open_rows(source, None if columns is None else list(columns)) as (_, rows):
        yield from rows


@contextmanager
def _open_rows(
    source: Table, wanted: list[str] | None
) -> Iterator[tuple[list[str], Iterable[Row | BadRowError]]]:
    """Open a table; yield the names of its columns, and its rows."""
    if isinstance(source, list | tuple) and source and all(isinstance(text, str) for text in source):
        # Without Arrow, which imports pandas to look at a list.
        yield [TEXT], ({TEXT: text} for text in source)
    elif not is_path(source):
        table = to_arrow(source)
        batches = (table if wanted is None else table.select(wanted)).to_batches(_ROWS_PER_BATCH)
        yield table.column_names, (row for batch in batches for row in batch.to_pylist())
    else:
        with opened(source) as (file, kind):
            if kind == "parquet":
                parquet = parquet_file(source, file)
                names = _distinct(parquet.schema_arrow.names, source)
                batches = (pa.table(each) for each in parquet.iter_batches(_ROWS_PER_BATCH, columns=wanted))
                classes = _read_classes(parquet.schema_arrow)
                yield names, (row for each in batches for row in _name_classes(each, classes).to_pylist())
            elif kind == "json":
                rows = _json_rows(_lines(source, file, "\n"))
                first = list(itertools.islice(rows, _ROWS_WITH_COLUMNS))
                objects = [row for row in first if isinstance(row, dict)]
                if first and not objects:
                    raise InputError(f"{source}: row 1: {first[0]}")
                yield list(dict.fromkeys(itertools.chain(*objects))), itertools.chain(first, rows)
            elif kind == "lines":
                lines = (line.removesuffix("\n").removesuffix("\r") for line in _lines(source, file, "\n"))
                yield [TEXT], ({TEXT: line} for line in lines)
            else:
                yield _read_delimited(source, _lines(source, file, ""), "," if kind == "csv" else "\t")


def read_table(source: Table, columns: Sequence[str]) -> pa.Table:
    """Return some columns of a table, whole; the cells of CSV, TSV and plain text are strings.

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
            cell = row.get(name)
            if isinstance(cell, str) and _broken_letter(cell):
                raise InputError(f"{source}: row {number}: {_HALF_A_PAIR}")
            values.append(cell)
    try:
        return pa.table(cells)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InputError(f"{source}: a column mixes kinds of values: {error}") from error


def to_arrow(data: Table) -> pa.Table:
    """Return a table in memory as an Arrow table.

    Raises:
        InputError: it is none.

    >>> to_arrow([{"id": 1, "title": "Rice"}, {"id": 2, "title": "Sleep"}]).column_names
    ['id', 'title']
    """
    library = type(data).__module__.partition(".")[0]
    if library == "datasets" and isinstance(data, Mapping):
        raise InputError(
            f"a {type(data).__name__} is several tables: give one of them ({', '.join(map(str, data))})"
        )
    try:
        if hasattr(data, "to_frame"):  # a series of pandas or polars: one column
            data = data.to_frame(data.name or TEXT)
            if library == "pandas":
                data = data.reset_index(drop=True)
        if library == "numpy":
            data = data.tolist()
        if library == "pandas":
            return _without_views(pa.Table.from_pandas(_reset_index(data), preserve_index=False))
        if library == "datasets":
            if data.format["type"] == "custom":
                raise InputError(
                    "the Dataset has a transform: apply it with `map`, or drop it: reset_format()"
                )
            return _name_classes(pa.table(data.with_format("arrow")[:]), class_names(data))
        if isinstance(data, Mapping):
            columns = data.items()
            if any(hasattr(each, "columns") or hasattr(each, "column_names") for _, each in columns):
                raise InputError(
                    f"the {type(data).__name__} is several tables ({', '.join(map(str, data))}): give one"
                )
            cells = {name: _to_column(name, c) if isinstance(c, list) else c for name, c in columns}
            return _without_views(pa.table(cells))
        if hasattr(data, "__arrow_c_stream__"):
            return _without_views(pa.table(data))
        if isinstance(data, Sequence) and not isinstance(data, str | bytes):
            texts = isinstance(next(iter(data), ""), str)
            for number, item in enumerate(data, start=1):
                if not isinstance(item, str if texts else Mapping):
                    what = "a text" if texts else "a text or a row (a dict)"
                    raise InputError(f"item {number} of the list is {item!r}, not {what}")
            if texts:
                return pa.table({TEXT: pa.array(data, pa.string())})
            names = dict.fromkeys(itertools.chain(*data))
            return pa.table({name: _to_column(name, [row.get(name) for row in data]) for name in names})
    except (pa.ArrowException, TypeError, AttributeError, ValueError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"the {type(data).__name__} cannot be read as a table: {reason}") from error
    raise InputError(f"cannot read a table from {type(data).__name__}: give a path, a data frame or a list")


def _reset_index(frame: Any) -> Any:
    """Return a pandas frame with the levels of its index that have names as columns, as other formats do.

    Not levels that no column can hold, or that have the name of one.
    """
    known = {str(name).strip().lower() for name in frame.columns}
    for place, name in enumerate(frame.index.names):
        if name is not None and str(name).strip().lower() not in known:
            level = frame.index.get_level_values(place)
            with suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
                pa.array(level, from_pandas=True)
                known.add(str(name).strip().lower())
                frame = frame.assign(**{str(name): level})
    return frame


def _without_views(table: pa.Table) -> pa.Table:
    """Return a table without the views that polars makes of texts, for which Arrow lacks functions."""
    for place, name in enumerate(table.column_names):
        column = table[place]
        if column.type == pa.string_view():
            table = table.set_column(place, name, column.cast(pa.large_string()))
        elif "_view" in str(column.type):  # also in lists and categories
            table = table.set_column(place, name, _to_column(name, column.to_pylist()))
    return table


def class_names(source: Table) -> dict[str, list[str]]:
    """Return the names of the classes in columns of the datasets library: of a `Dataset`, or a file of one.

    A column may also hold lists of classes.
    """
    if not is_path(source):
        is_dataset = type(source).__module__.partition(".")[0] == "datasets"
        return _read_classes(source.features.arrow_schema) if is_dataset else {}
    if format_of(source) != "parquet":
        return {}
    with opened(source) as (file, _):
        return _read_classes(parquet_file(source, file).schema_arrow)


def _read_classes(schema: pa.Schema) -> dict[str, list[str]]:
    """Read the names of the classes that the datasets library notes in a schema."""
    try:
        noted = json.loads((schema.metadata or {}).get(b"huggingface", "{}"))
        features = noted.get("info", {}).get("features", {}).items()
    except (ValueError, AttributeError):
        return {}
    known = {}
    for name, each in features:
        if isinstance(each, list):  # as datasets before version 4 notes lists
            kind = each[0] if each else {}
        else:
            kind = each.get("feature", each) if isinstance(each, dict) else {}
        if isinstance(kind, dict) and kind.get("_type") == "ClassLabel" and kind.get("names"):
            known[name] = list(kind["names"])
    return known


def _name_classes(table: pa.Table, known: Mapping[str, Sequence[str]]) -> pa.Table:
    """Replace the numbers of classes, or lists of them, by the names; -1 is none."""
    for name in known.keys() & set(table.column_names):
        values, names = table[name].to_pylist(), dict(enumerate(known[name]))
        if pa.types.is_integer(table[name].type):
            named = pa.array([names.get(value) for value in values], pa.string())
        elif pa.types.is_nested(table[name].type):
            lists = [row and [names[each] for each in row if each in names] for row in values]
            named = pa.array(lists, pa.list_(pa.string()))
        else:
            continue
        table = table.set_column(table.column_names.index(name), name, named)
    return table


def _to_column(name: str, values: list[Any]) -> pa.Array:
    """Return a column of a list of rows; NaN, as in rows of pandas, is None."""
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        kinds = dict.fromkeys(type(value).__name__ for value in values if value is not None)
        raise InputError(f"column {name!r} mixes values that fit no column: {', '.join(kinds)}") from error


def _distinct(names: Sequence[str], where: Path | str) -> list[str]:
    """Return the names of columns, if no two are the same."""
    if twice := next((name for place, name in enumerate(names) if name in names[:place]), None):
        raise InputError(f"{where}: two columns are called {twice!r}; rename or remove one")
    return list(names)


def fingerprint(source: Table) -> tuple[int, str]:
    """Return (bytes, SHA-256) of a file, or of a table's content in memory.

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


# ---- files ---------------------------------------------------------------------------------------


def format_of(path: Path | str) -> str | None:
    """Return the format of a table that its name tells."""
    return _FORMATS.get(Path(re.sub(r"\.(gz|xz)$", "", str(path).lower())).suffix)


@contextmanager
def opened(path: Path | str) -> Iterator[tuple[IO[bytes], str]]:
    """Open a file, unpacked, with its format; what goes wrong while it is read becomes an InputError."""
    if not isfile(path):
        why = "a folder, pipe or device, not a file" if exists(path) else "no such file"
        raise InputError(f"{str(path)[:200]}: {why} (texts in memory are given as a list: [text])")
    if (kind := format_of(path)) is None:
        raise InputError(
            f"{path}: cannot tell its format; a table must end in {', '.join(_FORMATS)}, each also with .gz "
            "or .xz"
        )
    try:
        with open(path, "rb") as plain:
            start, name = plain.read(6), str(path).lower()
            plain.seek(0)
            if start.startswith(b"\x1f\x8b") or name.endswith(".gz"):
                yield gzip.GzipFile(fileobj=plain), kind  # type: ignore[misc]
            elif start == b"\xfd7zXZ\x00" or name.endswith(".xz"):
                yield lzma.LZMAFile(plain), kind  # type: ignore[misc]  # noqa: SIM115
            else:
                yield plain, kind
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise InputError(f"{path}: truncated or damaged ({error}); copy or download it again") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not {error.encoding.upper()} throughout ({error.reason})") from error
    except (OSError, pa.ArrowException, MemoryError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: cannot be read: {reason[:300]}") from error


def parquet_file(path: Path | str, file: IO[bytes]) -> pq.ParquetFile:
    """Open a Parquet file.

    Raises:
        InputError: it is none.
    """
    is_packed = isinstance(file, gzip.GzipFile | lzma.LZMAFile)
    try:
        return pq.ParquetFile(io.BytesIO(file.read()) if is_packed else file)
    except pa.ArrowException as error:
        raise InputError(f"{path} is not a Parquet file: {' '.join(str(error).split())}") from error


def _lines(path: Path | str, file: IO[bytes], newline: str) -> Iterator[str]:
    """Yield the lines of a text file.

    Raises:
        InputError: a line is very long, or in another encoding.
    """
    wide = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    file.seek(0)
    # In UTF-8, bytes that are not text become lone surrogates, so that the message can name the line.
    encoding, errors = ("utf-16", "strict") if wide else ("utf-8-sig", "surrogateescape")
    text = io.TextIOWrapper(file, encoding=encoding, errors=errors, newline=newline)
    for number, line in enumerate(iter(lambda: text.readline(_MAX_LINE + 1), ""), start=1):
        if len(line) > _MAX_LINE:
            raise InputError(f"{path}: line {number} has more than {_MAX_LINE:,} characters")
        if letter := _broken_letter(line):
            raise InputError(
                f"{path}: line {number}: the byte 0x{ord(letter) - 0xDC00:02x} is not UTF-8 (the file may be "
                "Latin-1 or Windows-1252): save the file as UTF-8"
            )
        yield line


def _json_rows(lines: Iterator[str]) -> Iterator[Row | BadRowError]:
    for line in filter(str.strip, lines):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:  # also of a number of 5,000 digits
            yield BadRowError(f"not JSON: {error}")
        else:
            is_row = isinstance(value, dict)
            yield value if is_row else BadRowError("not a JSON object (JSON lines have one in each line)")


def _read_delimited(
    path: Path | str, lines: Iterator[str], delimiter: str
) -> tuple[list[str], Iterator[Row | BadRowError]]:
    """Return the header of CSV or TSV, and its rows.

    A header of CSV without a comma may be of a country that writes numbers with one: semicolons separate.
    """
    csv.field_size_limit(_MAX_LINE)
    first = next(lines, None)
    lines = itertools.chain(() if first is None else (first,), lines)
    if first and delimiter == "," and "," not in first:
        delimiter = next((sign for sign in ";\t" if sign in first), delimiter)
    # Strict: otherwise a quote that is never closed swallows the rows after it.
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        header = _distinct(next(reader, []), path)
    except csv.Error as error:
        raise InputError(f"{path}: the header cannot be read: {error}") from error
    if "\0" in "".join(header):
        raise InputError(f"{path}: zero bytes in the header (UTF-16 without a mark?): save it as UTF-8")

    def rows() -> Iterator[Row | BadRowError]:
        number = 0
        while True:
            try:
                values = next(reader, None)
            except csv.Error as error:
                number += 1
                if "unexpected end" in str(error):
                    raise InputError(f"{path}: row {number}: a quote is opened and never closed") from error
                yield BadRowError(f"{error} (a quote inside a text is written twice, and the text in quotes)")
                continue
            if values is None:
                return
            number += bool(values)
            if values and len(values) != len(header):
                yield BadRowError(f"{len(values)} fields where the header has {len(header)}")
            elif values:
                yield dict(zip(header, (value or None for value in values), strict=True))

    return header, rows()


# ---- cells ---------------------------------------------------------------------------------------


def as_text(value: Any) -> str | None:
    """Return a cell as text; None if it is missing. Whole floats are written without their point.

    Raises:
        BadRowError: a list, an object or bytes, or half of a surrogate pair, which no file can hold.

    >>> as_text(2001.0), as_text(float("nan"))
    ('2001', None)
    """
    if value is None or value != value:
        return None
    if isinstance(value, list | tuple | dict | set | bytes | bytearray):
        raise BadRowError(f"a text is expected, not {str(value)[:60]!r}")
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:  # which floats hold exactly
        value = int(value)
    text = str(value)
    if _broken_letter(text):
        raise BadRowError(_HALF_A_PAIR)
    return text


def _broken_letter(text: str) -> str | None:
    """Return the first half of a surrogate pair, which no file can hold; None if there is none."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            return text[error.start]
    return None


def parse_list(text: str) -> list[Any] | None:
    """Return the list that a cell holds, as JSON, pandas or NumPy writes it; None of another text.

    >>> parse_list('["rice"]'), parse_list("['rice', 'oak']"), parse_list("['rice' 'oak']"), parse_list("[")
    (['rice'], ['rice', 'oak'], ['rice', 'oak'], None)
    """
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        for read in (json.loads, _read_strings, ast.literal_eval):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError):
                found = read(text)
                return found if isinstance(found, list) else None
    return None


def _read_strings(text: str) -> list[str]:
    """Read a list of strings of Python; in one of NumPy there are no commas, and Python would join them."""
    tokens = [
        each for each in tokenize.generate_tokens(io.StringIO(text[1:-1]).readline) if each.string.strip()
    ]
    if not all(each.type == tokenize.STRING or each.string == "," for each in tokens):
        raise ValueError("not a list of strings")
    return [ast.literal_eval(each.string) for each in tokens if each.type == tokenize.STRING]


def as_identifier(value: Any) -> str | None:
    """Return a cell as an identifier; None if it is missing. "11.0", which pandas makes of 11, is "11".

    Raises:
        BadRowError: a fraction, True or False, or no text.

    >>> as_identifier(11.0), as_identifier("11.0"), as_identifier("v1.0")
    ('11', '11', 'v1.0')
    """
    if isinstance(value, bool) or (isinstance(value, float) and value == value and not value.is_integer()):
        raise BadRowError(f"{value} is not an identifier")
    text = as_text(value)
    whole = _WHOLE_AS_FLOAT.fullmatch(text) if text else None
    return whole.group(1) if whole else text


def identifiers(column: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    """Return a column of identifiers as texts (`as_identifier`); `what` names the column in messages.

    Raises:
        InputError: a fraction, or something else than texts and numbers.
    """
    try:
        return pa.chunked_array([pa.array(map(as_identifier, column.to_pylist()), pa.string())])
    except BadRowError as error:
        raise InputError(f"{what}: {error}; give whole numbers or texts") from error


def texts(column: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    """Return a column of texts as strings; `what` names the column in messages.

    Raises:
        InputError: a column of something else: numbers, lists, objects.
    """
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if str(kind) not in ("string", "large_string", "string_view", "null"):
        raise InputError(f"{what}: texts are expected, not a column of {kind}")
    return column.cast(pa.string())
