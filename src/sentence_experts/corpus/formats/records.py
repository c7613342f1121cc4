"""Files of JSON or Parquet records, also gzipped: how they are read, and which records are chosen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.corpus.formats.archives import BROKEN_PACKING, open_unpacked
from sentence_experts.corpus.paper import RecordError

MAX_DOCUMENT_BYTES = 1 << 30
"""Larger JSON documents, and lines, are refused."""
_BROKEN = (*BROKEN_PACKING, OSError, pa.ArrowException)
_ROWS_PER_BATCH = 2_000
_LIST_LEVELS = ("list", "element", "item", "bag", "array", "array_element")
_BLANK = b" \t\r\n\xef\xbb\xbf"
_DAY = re.compile(r"(\d{4})-(\d{2})-(\d{2})")

Raw = bytes | dict[str, Any]


def read_raw(path: Path, columns: Sequence[str] | None = None) -> Iterator[Raw | RecordError]:
    """Read the records of a file, in order: lines that are not parsed yet (`parsed`), or objects.

    Damage ends the file with an error; what stands before it is given.
    """
    try:
        if is_parquet(path):
            yield from _read_parquet(path, columns)
        else:
            with open_unpacked(path) as stream:
                yield from _read_json(stream)
    except _BROKEN as error:
        reason = " ".join(str(error).split())[:200]
        yield RecordError("broken-file", f"{type(error).__name__}: {reason}; the records before it were kept")


def is_parquet(path: Path) -> bool:
    """Return whether a file is Parquet, by its first bytes."""
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"


def parsed(raw: Raw) -> dict[str, Any]:
    """Parse the object of a record.

    Raises:
        RecordError: not a JSON object.
    """
    if isinstance(raw, dict):
        return raw
    try:
        value = orjson.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RecordError("not-json", str(error)[:200]) from error
    if not isinstance(value, dict):
        raise _not_an_object(value)
    return value


def _not_an_object(value: Any) -> RecordError:
    return RecordError("not-a-record", f"a {type(value).__name__} instead of an object")


def _read_json(stream: IO[bytes]) -> Iterator[Raw | RecordError]:
    """Read JSON lines; of a document that spans lines or holds several records, those records."""
    lines = (line for line in iter(lambda: _read_line(stream), b"") if line.strip(_BLANK))
    first = next(lines, b"").removeprefix(b"\xef\xbb\xbf")
    if not first:
        return
    try:
        value = orjson.loads(first)
    except ValueError:
        spans_lines = first.lstrip().startswith((b"{", b"[")) and not first.rstrip().endswith(b"}")
        yield from _read_document(first, stream) if spans_lines else [first]
    else:
        yield from _records_in(value)
    yield from lines


def _read_line(stream: IO[bytes]) -> bytes:
    line = stream.readline(MAX_DOCUMENT_BYTES + 1)
    if len(line) > MAX_DOCUMENT_BYTES:
        raise OSError(f"a line of more than {MAX_DOCUMENT_BYTES:,} bytes")
    return line


def _read_document(begin: bytes, stream: IO[bytes]) -> Iterator[Raw | RecordError]:
    whole = begin + stream.read(MAX_DOCUMENT_BYTES)
    if len(whole) > MAX_DOCUMENT_BYTES:
        yield RecordError("too-large", f"a JSON document of more than {MAX_DOCUMENT_BYTES:,} bytes")
        return
    try:
        value = orjson.loads(whole)
    except ValueError as error:
        yield RecordError("not-json", str(error)[:200])
    else:
        yield from _records_in(value)


def _records_in(value: Any) -> Iterator[Raw | RecordError]:
    """Yield the objects in a list or in an answer of the API; the null of an unknown id is not a record."""
    if isinstance(value, dict) and isinstance(value.get("results"), list):
        value = value["results"]
    for record in value if isinstance(value, list) else [value]:
        if isinstance(record, dict):
            yield record
        elif record is not None:
            yield _not_an_object(record)


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
        year: int | None = None,
        kinds: Iterable[str | None] = (),
        language: str | None = None,
        topics: Iterable[Mapping[str, Any]] = (),
        fields: Iterable[Mapping[str, Any]] = (),
        names: Iterable[str | None] = (),
    ) -> bool:
        """Return whether a record is kept; topics and fields have an `id` and a `display_name`."""
        return (
            (self.names is None or any(name in self.names for name in names))
            and (self.years is None or (year is not None and self.years[0] <= year <= self.years[1]))
            and (not self.languages or language in self.languages)
            and (not self.types or any(_matches(self.types, kind) for kind in kinds if kind))
            and (not self.topics or _any_matches(self.topics, topics))
            and (not self.fields or _any_matches(self.fields, fields))
        )


def _any_matches(patterns: tuple[str, ...], things: Iterable[Mapping[str, Any]]) -> bool:
    for thing in things:
        name, address = thing.get("display_name"), thing.get("id")
        if isinstance(name, str) and _matches(patterns, name):
            return True
        if isinstance(address, str) and _matches(patterns, address.rpartition("/")[2]):
            return True
    return False


@lru_cache(maxsize=1 << 16)
def _matches(patterns: tuple[str, ...], value: str) -> bool:
    """Return whether a value is one of the patterns, in any case; `*` stands for any text."""
    return any(
        re.fullmatch(".*".join(map(re.escape, pattern.casefold().split("*"))), value.casefold(), re.DOTALL)
        for pattern in patterns
    )


def iso_day(value: Any) -> int | None:
    """Return the day that a text such as `2023-05-16T10:00` begins with, as the number YYYYMMDD.

    >>> iso_day("updated_date=2023-05-16/part_000.gz")
    20230516
    """
    match = _DAY.search(value) if isinstance(value, str) else None
    if match is None and hasattr(value, "isoformat"):  # a date of Parquet
        match = _DAY.match(value.isoformat())
    return int("".join(match.groups())) if match else None
