"""Tables of any common kind, row by row: Parquet, CSV, TSV, JSON lines, each also gzipped.

A row that cannot be read comes as a `BadRowError` in its place, so that its number can be told.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.errors import InputError

Row = dict[str, Any]


class BadRowError(Exception):
    """A row that cannot be read or used; the message says why."""


def check_columns(where: str, wanted: Iterable[str], found: Iterable[str]) -> None:
    """Whether all wanted columns were found; `where` names the table.

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


def _kind(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    for ending, kind in ((".parquet", "parquet"), (".csv", "csv"), (".tsv", "tsv"), (".tab", "tsv"),
                         (".jsonl", "json"), (".ndjson", "json"), (".json", "json")):  # fmt: skip
        if name.endswith(ending):
            return kind
    raise InputError(f"{path}: a table must be .parquet, .csv, .tsv, .jsonl or .ndjson, optionally with .gz")


def _open(path: Path) -> Any:
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        return gzip.open(path, "rb") if packed else open(path, "rb")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def read_columns(path: Path) -> list[str]:
    """The names of a table's columns; of JSON lines, those of its first rows.

    Raises:
        InputError: the file is missing, of an unknown kind, or no table.
    """
    kind = _kind(path)
    if kind == "parquet":
        with _open(path) as file:
            return [str(name) for name in _parquet(path, file).schema_arrow.names]
    if kind == "json":
        rows = (row for row in itertools.islice(read_rows(path), 100) if not isinstance(row, BadRowError))
        return list(dict.fromkeys(name for row in rows for name in row))
    with _open(path) as file:
        return next(_delimited(path, file, kind), [])


def read_rows(path: Path) -> Iterator[Row | BadRowError]:
    """The rows of a table in order; a row that cannot be read is a `BadRowError`.

    Raises:
        InputError: the file is missing, of an unknown kind, or no table.
    """
    kind = _kind(path)
    with _open(path) as file:
        try:
            if kind == "parquet":
                for batch in _parquet(path, file).iter_batches(batch_size=2048):
                    yield from batch.to_pylist()
            elif kind == "json":
                yield from map(_json_row, file)
            else:
                yield from _delimited_rows(path, file, kind)
        except (EOFError, OSError, csv.Error, pa.ArrowException) as error:
            if isinstance(error, InputError):
                raise
            yield BadRowError(f"the file breaks off here: {' '.join(str(error).split())}")


def _parquet(path: Path, file: Any) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(io.BytesIO(file.read()) if isinstance(file, gzip.GzipFile) else file)
    except pa.ArrowException as error:
        raise InputError(f"{path} is no Parquet file: {error}") from error


def _json_row(line: bytes) -> Row | BadRowError:
    if not line.strip():
        return BadRowError("an empty line")
    try:
        value = json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        return BadRowError(f"not JSON: {error}")
    return value if isinstance(value, dict) else BadRowError("not a JSON object")


def _delimited(path: Path, file: Any, kind: str) -> Iterator[list[str]]:
    csv.field_size_limit(1 << 26)
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
    lines: Iterable[str] = (line.replace("\0", "") for line in text)
    yield from csv.reader(lines, delimiter="," if kind == "csv" else "\t")


def _delimited_rows(path: Path, file: Any, kind: str) -> Iterator[Row | BadRowError]:
    lines = _delimited(path, file, kind)
    header = next(lines, [])
    for values in lines:
        if not values:
            continue
        if len(values) != len(header):
            yield BadRowError(f"{len(values)} fields where the header has {len(header)}")
        else:
            yield dict(zip(header, (value or None for value in values), strict=True))
