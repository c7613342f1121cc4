"""Files of tables: Parquet, CSV, TSV, JSON lines, or plain text of one text per line, also .gz and .xz.

Text files are UTF-8, or UTF-16 with a byte order mark. A file that breaks off or is in another encoding is
refused.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import json
import logging
import lzma
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os.path import exists, isfile
from pathlib import Path
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.cells import BadRowError, find_broken_letter
from sentence_experts.errors import InputError

logger = logging.getLogger(__name__)

Row = dict[str, Any]

_FORMATS: Final = {
    ".parquet": "parquet", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "json", ".ndjson": "json",
    ".json": "json", ".txt": "lines",
}  # fmt: skip
_MAX_LINE: Final = 1 << 26
"""Maximum number of characters per line and per field of a text file."""
_QUOTES: Final = "a quote inside a text is written twice, and the text in quotes"
SWALLOWED: Final = f"it looks as if a quote opens in one row and closes in another ({_QUOTES})"
_COMMA: Final = r"(?<=,),|(?<!\d),(?!\s|$)|,(?!\s|$|\d\d\d(?!\d))"
_SEPARATOR: Final = re.compile(r"""\ufeff?("?)sep=([,;\t|])\1[,;\t| ]*\r?\n?""", re.IGNORECASE)


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


def read_lines(path: Path | str, file: IO[bytes], newline: str) -> Iterator[str]:
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
        if letter := find_broken_letter(line):
            raise InputError(
                f"{path}: line {number}: the byte 0x{ord(letter) - 0xDC00:02x} is not UTF-8 (the file may be "
                "Latin-1 or Windows-1252): save the file as UTF-8"
            )
        yield line


def read_json_rows(lines: Iterator[str]) -> Iterator[Row | BadRowError]:
    """Yield the objects of JSON lines; a line that holds none is a `BadRowError`."""
    for line in filter(str.strip, lines):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:  # also of a number of 5,000 digits
            yield BadRowError(f"not JSON: {error}")
        else:
            is_row = isinstance(value, dict)
            yield value if is_row else BadRowError("not a JSON object (JSON lines have one in each line)")


def named_separator(line: str) -> str | None:
    """Return the separator that the first line of a CSV file names for Excel; None if it names none.

    >>> named_separator("sep=;"), named_separator("title;year")
    (';', None)
    """
    match = _SEPARATOR.fullmatch(line)
    return match[2] if match else None


def read_delimited(
    path: Path | str, lines: Iterator[str], delimiter: str
) -> tuple[list[str], Iterator[Row | BadRowError]]:
    """Return the header of CSV or TSV, and its rows.

    A header of CSV without a comma may be of a country that writes numbers with one: semicolons separate.
    """
    csv.field_size_limit(_MAX_LINE)
    first = next((line for line in lines if line.strip()), None)
    if first and (named := named_separator(first)):
        delimiter, first = named, next((line for line in lines if line.strip()), None)
    elif first and delimiter == "," and "," not in first:
        delimiter = next((sign for sign in ";\t" if sign in first), delimiter)
    lines = itertools.chain(() if first is None else (first,), lines)
    # Strict: otherwise a quote that is never closed swallows the rows after it.
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        header = check_distinct(next(reader, []), path)
    except csv.Error as error:
        raise InputError(f"{path}: the header cannot be read: {error}") from error
    if "\0" in "".join(header):
        raise InputError(f"{path}: zero bytes in the header (UTF-16 without a mark?): save it as UTF-8")

    def refuse(reason: str, before: int, values: Sequence[str] = ("\t",)) -> Iterator[BadRowError]:
        # A quote may have swallowed rows. Texts of TSV rarely have tabs and lines: each line was one.
        lines = reader.line_num - before
        where = f"; {lines:,} lines, of which each may be a row" if lines > 1 else ""
        are_rows = delimiter == "\t" and (len(values) > len(header) or any("\t" in value for value in values))
        return (BadRowError(reason + where) for _ in range(lines if are_rows else 1))

    def rows() -> Iterator[Row | BadRowError]:
        number, is_told = 0, False
        while True:
            before = reader.line_num
            try:
                values = next(reader, None)
            except csv.Error as error:
                number += 1
                if "unexpected end" in str(error):
                    raise InputError(f"{path}: row {number}: a quote is opened and never closed") from error
                yield from refuse(f"{error} ({_QUOTES})", before)
                continue
            if values is None:
                return
            number += bool(values)
            suspects = [
                value
                for place, value in enumerate(values)
                if ("\n" in value or "\r" in value) and holds_rows(values, place, delimiter)
            ]
            are_texts = delimiter != "\t" or all(_is_indented(value, len(header)) for value in suspects)
            if suspects and are_texts and not is_told:
                is_told = True
                logger.warning(f"{path}: row {number} may be several: {SWALLOWED}")
            if values and len(values) != len(header):
                yield from refuse(f"{len(values)} fields where the header has {len(header)}", before, values)
            elif not are_texts:
                yield from refuse(SWALLOWED, before)
            elif values:
                yield dict(zip(header, (value or None for value in values), strict=True))

    return header, rows()


def holds_rows(values: Sequence[str], place: int, delimiter: str) -> bool:
    """Return whether a cell looks as if a quote had swallowed the end of a row and the beginning of another.

    Its first line then has the cells to the right of it, too, and its last one those to the left. A comma
    before white space or of a number is of a text. Of two columns, a row has one, as many texts do: there
    each of several lines between is a row.
    """
    first, *others = re.split(r"\r\n|\r|\n", values[place])
    is_tab = delimiter == "\t"
    if not others or len(values) < 2:
        return False
    if len(values) == 2 and not is_tab:
        rows = [line.split(delimiter) for line in others[:-1]]
        if len(rows) < 2 or any(
            len(row) != 2 or row[0][:1].isspace() or row[1][:1].isspace() for row in rows
        ):
            return False
    sign = delimiter if is_tab else _COMMA.replace(",", re.escape(delimiter))
    counts = [len(re.findall(sign, line)) for line in (first, others[-1])]
    return counts == [len(values) - 1 - place, place]


def _is_indented(cell: str, width: int) -> bool:
    """Return whether a cell of TSV ends with an indented line, as code does, and holds no whole row."""
    *lines, last = re.split(r"\r\n|\r|\n", cell)
    rows = (line for line in lines[1:] if line.count("\t") >= width - 1 and not line.startswith("\t"))
    is_last_indented = last.startswith(("\t", "  ")) or (not last and len(lines) > 1)
    return is_last_indented and not any(rows)


def check_distinct(names: Sequence[str], where: Path | str) -> list[str]:
    """Return the names of columns.

    Raises:
        InputError: two are the same.
    """
    # Empty ones are of columns that a spreadsheet has to the right.
    if twice := next((name for place, name in enumerate(names) if name in names[:place]), None):
        raise InputError(f"{where}: two columns are called {twice!r}; rename or remove one")
    return list(names)
