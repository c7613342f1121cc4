"""Files of JSON or Parquet records, also gzipped: how they are read, and which records are chosen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow.parquet as pq

from sentence_experts.corpus.formats.archives import open_unpacked
from sentence_experts.corpus.paper import RecordError

MAX_DOCUMENT_BYTES = 1 << 30
"""Larger JSON documents, and lines, are refused."""
_ROWS_PER_BATCH = 2_000
_LIST_LEVELS = ("list", "element", "item", "bag", "array", "array_element")
_MARK = b"\xef\xbb\xbf"
_DAY = re.compile(r"(\d{4})-(\d{2})-(\d{2})")

Raw = bytes | dict[str, Any]


def read_raw(path: Path, columns: Sequence[str] | None = None) -> Iterator[Raw | RecordError]:
    """Read the records of a file, in order: lines that are not parsed yet (`parsed`), or objects."""
    if is_parquet(path):
        yield from _read_parquet(path, columns)
    else:
        with open_unpacked(path) as stream:
            yield from _read_json(stream)


def is_parquet(path: Path) -> bool:
    """Return whether a file is Parquet, by its first bytes."""
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"


def parsed(raw: Raw) -> dict[str, Any]:
    """Parse the object of a record.

    Raises:
        RecordError: not a JSON object.
    """
    value = raw if isinstance(raw, dict) else _parse(raw)
    if not isinstance(value, dict):
        raise RecordError("not-a-record", f"a {type(value).__name__} instead of an object")
    return value


def _parse(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError("not-json", str(error)[:200]) from error


def _read_json(stream: IO[bytes]) -> Iterator[Raw | RecordError]:
    """Read JSON lines; of a document that spans lines or holds several records, those records."""
    lines = (line for line in iter(lambda: _read_line(stream), b"") if line.strip(b" \t\r\n" + _MARK))
    first = next(lines, b"").removeprefix(_MARK)
    if not first:
        return
    try:
        yield from _records_in(_parse(first))
    except RecordError:
        if not first.lstrip().startswith((b"{", b"[")) or first.rstrip().endswith(b"}"):
            yield first
        elif len(rest := stream.read(MAX_DOCUMENT_BYTES)) == MAX_DOCUMENT_BYTES:
            raise RecordError("too-large", f"a document of over {MAX_DOCUMENT_BYTES:,} bytes") from None
        else:
            yield from _records_in(_parse(first + rest))
    yield from lines


def _read_line(stream: IO[bytes]) -> bytes:
    line = stream.readline(MAX_DOCUMENT_BYTES)
    if len(line) == MAX_DOCUMENT_BYTES:
        raise RecordError("too-large", f"a line of over {MAX_DOCUMENT_BYTES:,} bytes")
    return line


def _records_in(value: Any) -> list[Raw | RecordError]:
    """Return the objects in a list or in an answer of the API; the null of an unknown id is not a record."""
    if isinstance(value, dict) and isinstance(value.get("results"), list):
        value = value["results"]
    records = value if isinstance(value, list) else [value]
    return [each if isinstance(each, dict) else orjson.dumps(each) for each in records if each is not None]


def _read_parquet(path: Path, columns: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    with pq.ParquetFile(path) as file:
        paths = [file.schema.column(place).path for place in range(len(file.schema))]
        read = [path for path in paths if columns is None or _is_within(path, columns)]
        for batch in file.iter_batches(_ROWS_PER_BATCH, columns=read):
            yield from batch.to_pylist()


def _is_within(path: str, columns: Sequence[str]) -> bool:
    """Return whether a column of a Parquet file is one of those, or a field in one."""
    # Between a list and its items stand two names that depend on the program that wrote the file.
    names = [name for name in path.split(".") if name not in _LIST_LEVELS]
    return any(names[: len(wanted)] == wanted for wanted in (column.split(".") for column in columns))


@dataclass(frozen=True)
class RecordFilter:
    """The records to keep; an empty tuple keeps all.

    Attributes:
        topics: names (any case, `*` for any text) or ids of topics.
        fields: the same of fields or subfields.
        types: types of works.
        years: first and last year.
        languages: such as `en`.
        names: identifiers of single works, as papers are named after them.
        xpac: keep OpenAlex's extension pack too.
    """

    topics: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    years: tuple[int, int] | None = None
    languages: tuple[str, ...] = ()
    names: frozenset[str] | None = None
    xpac: bool = False

    def admits(
        self,
        *,
        year: int | None,
        language: str | None,
        names: Iterable[str],
        types: Iterable[str | None],
        fields: Iterable[str | None],
        topics: Iterable[str | None] = (),
    ) -> bool:
        """Return whether a record is kept, given its values; topics and fields by name and id."""
        return (
            (self.names is None or any(name in self.names for name in names))
            and (self.years is None or (year is not None and self.years[0] <= year <= self.years[1]))
            and (not self.languages or language in self.languages)
            and all(
                any(map(_pattern(patterns).fullmatch, filter(None, values)))
                for patterns, values in ((self.types, types), (self.topics, topics), (self.fields, fields))
                if patterns
            )
        )


@lru_cache(maxsize=16)
def _pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return an expression for a value that is one of the patterns, in any case; `*` stands for any text."""
    each = (".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns)
    return re.compile("|".join(each), re.DOTALL | re.IGNORECASE)


def iso_day(value: Any) -> int | None:
    """Return the day that a text such as `2023-05-16T10:00` begins with, as the number YYYYMMDD.

    >>> iso_day("updated_date=2023-05-16/part_000.gz")
    20230516
    """
    text = value.isoformat() if hasattr(value, "isoformat") else value  # a date of Parquet
    match = _DAY.search(text) if isinstance(text, str) else None
    return int("".join(match.groups())) if match else None
