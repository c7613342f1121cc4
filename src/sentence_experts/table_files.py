"""The rows of table files: Parquet, CSV, TSV, JSON lines and plain text, each optionally gzipped.

Text files are UTF-8, or UTF-16 or UTF-32 with a byte order mark. A file in another encoding, or one that
breaks off, is refused as a whole; a row that cannot be read is a `BadRowError` in its place.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os.path import exists, isfile
from pathlib import Path
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.errors import InputError
from sentence_experts.storage import is_url, open_remote
from sentence_experts.table_values import BadRowError, broken_letter, check_unlike, with_texts_for_bytes

Row = dict[str, Any]

TEXT: Final = "text"  # the only column of plain text
_FORMATS: Final = {
    ".parquet": "parquet", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "json", ".ndjson": "json",
    ".json": "json", ".txt": "lines",
}  # fmt: skip
_MARKS: Final = (  # UTF-32 first: its mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"), (b"", "utf-8-sig"),
)  # fmt: skip
_MAX_LINE: Final = 1 << 26
"""Maximum number of characters per line and per field of a text file."""
_MAX_PACKED_PARQUET: Final = 1 << 30
"""Maximum number of bytes of a gzipped Parquet file, which is read whole."""
_ROWS_PER_BATCH: Final = 2048
_ROWS_WITH_COLUMNS: Final = 100  # of JSON lines, whose columns are those of the first rows


def file_columns(path: Path | str) -> list[str]:
    """The names of a file's columns; of JSON lines, those of its first rows.

    Raises:
        InputError: the file is missing, of an unknown kind or broken, or two columns have one name.
    """
    with opened(path) as (file, kind):
        if kind == "lines":
            return [TEXT]
        if kind == "parquet":
            names = [str(name) for name in parquet_file(path, file).schema_arrow.names]
            check_unlike(names, str(path))
            return names
        if kind == "json":
            rows = list(itertools.islice(json_rows(path, file), _ROWS_WITH_COLUMNS))
            if rows and not any(isinstance(row, dict) for row in rows):
                raise InputError(f"{path}: row 1: {rows[0]}")
            return list(dict.fromkeys(name for row in rows if isinstance(row, dict) for name in row))
        return _header(path, _csv_reader(path, file, kind))


def file_rows(path: Path | str, columns: Sequence[str] | None = None) -> Iterator[Row | BadRowError]:
    """The rows of a file in order, as `tables.read_rows` gives them.

    Raises:
        InputError: as `file_columns`, or the file breaks off or is in another encoding (names the row).
    """
    with opened(path) as (file, kind):
        if kind == "parquet":
            wanted = None if columns is None else list(columns)
            table = parquet_file(path, file)
            check_unlike(table.schema_arrow.names, str(path))
            for batch in table.iter_batches(_ROWS_PER_BATCH, columns=wanted):
                yield from with_texts_for_bytes(batch, str(path)).to_pylist()
        elif kind == "json":
            yield from json_rows(path, file)
        elif kind == "lines":
            for number, line in enumerate(_lines(path, file, "\n"), start=1):
                yield _checked({TEXT: line.removesuffix("\n").removesuffix("\r")}, path, number)
        else:
            yield from _delimited_rows(path, file, kind)


# ---- opening -------------------------------------------------------------------------------------


def format_of(path: Path | str) -> str | None:
    """The format of a table that its name tells."""
    return _FORMATS.get(Path(str(path).lower().removesuffix(".gz")).suffix)


@contextmanager
def opened(path: Path | str) -> Iterator[tuple[IO[bytes], str]]:
    """The file, unpacked, and its format; what goes wrong while it is read becomes an InputError."""
    if format_of(path) is None and not isfile(path):
        raise InputError(f"{str(path)[:200]}: no such file (texts in memory are given as a list: [text])")
    if (kind := format_of(path)) is None:
        raise InputError(
            f"{path}: cannot tell its format; a table must end in {', '.join(_FORMATS)}, optionally with .gz"
        )
    try:
        if exists(path) and not isfile(path):
            raise InputError(f"{path}: a folder, pipe or device, not a file")
        with open_remote(path) if is_url(path) else open(path, "rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b" or str(path).lower().endswith(".gz")
            plain.seek(0)
            yield gzip.GzipFile(fileobj=plain) if packed else plain, kind  # type: ignore[misc]
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: truncated or damaged ({error}); copy or download it again") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not {error.encoding.upper()} throughout ({error.reason})") from error
    except (OSError, pa.ArrowException, MemoryError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: cannot be read: {reason[:300]}") from error


def parquet_file(path: Path | str, file: IO[bytes]) -> pq.ParquetFile:
    """An open Parquet file.

    Raises:
        InputError: it is none.
    """
    try:
        if isinstance(file, gzip.GzipFile):
            content = file.read(_MAX_PACKED_PARQUET + 1)
            if len(content) > _MAX_PACKED_PARQUET:
                raise InputError(f"{path}: more than {_MAX_PACKED_PARQUET:,} bytes come out of it; unpack it")
            return pq.ParquetFile(io.BytesIO(content))
        return pq.ParquetFile(file)
    except pa.ArrowException as error:
        raise InputError(f"{path} is not a Parquet file: {' '.join(str(error).split())}") from error


# ---- text ----------------------------------------------------------------------------------------


def encoding_of(file: IO[bytes]) -> str:
    """The encoding of an open text file, by its mark."""
    head = file.read(4)
    file.seek(0)
    return next(encoding for mark, encoding in _MARKS if head.startswith(mark))


def _lines(path: Path | str, file: IO[bytes], newline: str) -> Iterator[str]:
    """The lines of a text file; in UTF-8, bytes that are not text become lone surrogates."""
    encoding = encoding_of(file)
    errors = "surrogateescape" if encoding == "utf-8-sig" else "strict"
    text = io.TextIOWrapper(file, encoding=encoding, errors=errors, newline=newline)
    number = 0
    while line := text.readline(_MAX_LINE + 1):
        number += 1
        if len(line) > _MAX_LINE:
            raise InputError(f"{path}: line {number} has more than {_MAX_LINE:,} characters")
        yield line


def _checked(row: Row, path: Path | str, number: int) -> Row | BadRowError:
    """The row, if its bytes were text.

    Raises:
        InputError: they were not: the file is in another encoding.
    """
    for name, value in row.items():
        if value:
            if "\0" in value:
                return BadRowError(f"column {name} holds a zero byte")
            _check_encoding(value, f"{path}: row {number}, column {name}")
    return row


def _check_encoding(text: str, where: str) -> None:
    if letter := broken_letter(text):
        raise InputError(
            f"{where}: the byte 0x{ord(letter) - 0xDC00:02x} is not UTF-8 (the file may be Latin-1 or "
            "Windows-1252): save the file as UTF-8"
        )


def json_rows(path: Path | str, file: IO[bytes], before: int = 0) -> Iterator[Row | BadRowError]:
    """The rows of JSON lines, which stand in the file at `path` after `before` others."""
    number = before
    for line in _lines(path, file, "\n"):
        if not line.strip():
            continue
        number += 1
        _check_encoding(line, f"{path}: row {number}")
        try:
            value = json.loads(line, object_pairs_hook=_unlike_keys)
        except RecursionError:
            yield BadRowError("not JSON that can be read: nested too deep")
        except ValueError as error:  # not JSON, or a number of 5,000 digits
            yield BadRowError(f"not JSON: {str(error).partition('; use sys.')[0]}")
        except BadRowError as error:
            yield error
        else:
            yield value if isinstance(value, dict) else BadRowError("not a JSON object")


def _unlike_keys(pairs: list[tuple[str, Any]]) -> Row:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadRowError(f"the key {twice!r} occurs twice")
    return values


def _csv_reader(path: Path | str, file: IO[bytes], kind: str) -> Iterator[list[str]]:
    csv.field_size_limit(_MAX_LINE)
    # Strict: otherwise a quote that is never closed swallows the rows after it.
    return csv.reader(_lines(path, file, ""), delimiter="," if kind == "csv" else "\t", strict=True)


def _header(path: Path | str, reader: Iterator[list[str]]) -> list[str]:
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise InputError(f"{path}: the header cannot be read: {error}") from error
    for name in header:
        _check_encoding(name, f"{path}: header")
        if "\0" in name:
            raise InputError(f"{path}: zero bytes in the header (UTF-16 without a mark?): save it as UTF-8")
    check_unlike(header, str(path))
    return header


def _delimited_rows(path: Path | str, file: IO[bytes], kind: str) -> Iterator[Row | BadRowError]:
    """The rows of CSV or TSV; an empty cell is None, an empty line no row."""
    reader = _csv_reader(path, file, kind)
    header = _header(path, reader)
    number = 0
    while True:
        number += 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end" in str(error):
                raise InputError(f"{path}: row {number}: a quote is opened and never closed") from error
            yield BadRowError(f"{error} (a quote inside a text is written twice, and the text in quotes)")
            continue
        if not values:
            number -= 1
        elif len(values) != len(header):
            yield BadRowError(f"{len(values)} fields where the header has {len(header)}")
        else:
            row = dict(zip(header, (value or None for value in values), strict=True))
            yield _checked(row, path, number)
