"""Records of a file: JSON lines, one JSON document of some known envelope, or Parquet; each also gzipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.corpus.formats.archives import BROKEN_PACKING, open_unpacked
from sentence_experts.corpus.formats.records import RecordError

MAX_DOCUMENT_BYTES = 1 << 30
"""Larger JSON documents, and lines, are refused."""
_BROKEN = (*BROKEN_PACKING, OSError, pa.ArrowException)
_ROWS_PER_BATCH = 2_000
# Where the records of an answer are: OpenAlex; Crossref's lists and its data file; Europe PMC; Graph API.
_ENVELOPES = (
    ("results",),
    ("message", "items"),
    ("message",),
    ("resultList", "result"),
    ("items",),
    ("data",),
)

_LIST_LEVELS = ("list", "element", "item", "bag", "array", "array_element")

Raw = bytes | dict[str, Any]


def read_raw(path: Path, columns: Sequence[str] | None = None) -> Iterator[Raw | RecordError]:
    """The records of a file, in order: lines that are not parsed yet (`parsed`), or objects.

    Damage ends the file with an error; what stands before it is given.
    """
    try:
        if is_parquet(path):
            yield from _rows(path, columns)
        else:
            with open_unpacked(path) as stream:
                yield from _lines(stream)
    except _BROKEN as error:
        reason = " ".join(str(error).split())[:200]
        yield RecordError("broken-file", f"{type(error).__name__}: {reason}; the records before it were kept")


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, by its first bytes."""
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"


def parsed(raw: Raw) -> dict[str, Any]:
    """The object of a record.

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
        raise RecordError("not-a-record", f"a {type(value).__name__} instead of an object")
    return value


def _lines(stream: IO[bytes]) -> Iterator[Raw | RecordError]:
    """The lines of JSON lines; of one document, which spans lines or holds records, those records."""
    first = _line(stream)
    while first is not None and not first.strip(b" \t\r\n\xef\xbb\xbf"):
        first = _line(stream)
    if first is None:
        return
    first = first.removeprefix(b"\xef\xbb\xbf")
    try:
        value = orjson.loads(first)
    except ValueError as error:
        if not first.lstrip().startswith((b"{", b"[")) or first.rstrip().endswith(b"}"):
            yield first  # a broken line
        else:
            yield from _document(first, stream, error)
            return
    else:
        yield from _records(value)
    while (line := _line(stream)) is not None:
        if line.strip():
            yield line


def _line(stream: IO[bytes]) -> bytes | None:
    line = stream.readline(MAX_DOCUMENT_BYTES + 1)
    if len(line) > MAX_DOCUMENT_BYTES:
        raise OSError(f"a line of more than {MAX_DOCUMENT_BYTES:,} bytes")
    return line or None


def _document(begin: bytes, stream: IO[bytes], broken: ValueError) -> Iterator[Raw | RecordError]:
    whole = begin + stream.read(MAX_DOCUMENT_BYTES)
    if len(whole) > MAX_DOCUMENT_BYTES:
        yield RecordError("too-large", f"a JSON document of more than {MAX_DOCUMENT_BYTES:,} bytes")
        return
    try:
        value = orjson.loads(whole)
    except ValueError as error:
        yield RecordError("not-json", str(error)[:200])
        return
    yield from _records(value)


def _records(value: Any) -> Iterator[Raw | RecordError]:
    """The objects of a list, or in an envelope; the null of an unknown id is not a record."""
    for path in _ENVELOPES:
        inside = value
        for name in path:
            inside = inside.get(name) if isinstance(inside, dict) else None
        if isinstance(inside, list) or (path == ("message",) and isinstance(inside, dict)):
            value = inside
            break
    for record in value if isinstance(value, list) else [value]:
        if isinstance(record, dict):
            yield record
        elif record is not None:
            yield RecordError("not-a-record", f"a {type(record).__name__} instead of an object")


def _is_of(path: str, columns: Sequence[str]) -> bool:
    """Whether a column in a Parquet file is one of those, or a field in one."""
    # Between a list and its items stand two names that depend on the program that wrote the file.
    names = [name for name in path.split(".") if name not in _LIST_LEVELS]
    return any(names[: len(wanted)] == wanted for wanted in (column.split(".") for column in columns))


def _rows(path: Path, columns: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    with pq.ParquetFile(path) as file:
        paths = [file.schema.column(place).path for place in range(len(file.schema))]
        read = [path for path in paths if columns is None or _is_of(path, columns)]
        for batch in file.iter_batches(_ROWS_PER_BATCH, columns=read):
            yield from batch.to_pylist()
