"""Papers and citations from the user's own tables.

Papers need the columns `id`, `title`, `abstract`; citations `citing`, `cited`, whose values are ids of the
papers or any DOI, PMID or PMCID. Lists (subjects, mesh, keywords) are Parquet lists, JSON arrays, or text
split at `;` or `|`.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.corpus.formats.markup import clean, unique
from sentence_experts.corpus.formats.references import year_in
from sentence_experts.corpus.identifiers import (
    normalise_doi,
    normalise_pmcid,
    normalise_pmid,
    parse_identifier,
)
from sentence_experts.corpus.paper import Citation, Paper, Rejection
from sentence_experts.corpus.shards import Shard, papers_file
from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import sha256_file

_ROWS_IN_A_SHARD = 20_000
_PAPER_COLUMNS = ("id", "title", "abstract")
_CITATION_COLUMNS = ("citing", "cited")
_BETWEEN = re.compile(r"\s*[;|]\s*")
_TRUE = frozenset({"1", "true", "yes", "t", "y"})

Row = dict[str, Any]


class _BadRowError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class UserTables:
    """A table of papers and one of citations; either may be missing when other sources bring it."""

    papers: Path | None
    citations: Path | None

    @classmethod
    def open(cls, papers: Path | str | None, citations: Path | str | None) -> UserTables | None:
        """The tables, their columns checked; None if neither is given.

        Raises:
            InputError: a file is missing, of an unknown kind, or lacks a column.
            UsageError: citations without papers to cite from.
        """
        tables = cls(Path(papers) if papers else None, Path(citations) if citations else None)
        for path, needed in tables._with_columns():
            found = _columns(path)
            missing = [name for name in needed if name not in found]
            if missing:
                raise InputError(
                    f"{path} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
                    f"it has: {', '.join(found) or 'none'}"
                )
        if tables.citations and not tables.papers:
            raise UsageError("--citations needs --papers: the table of the papers that its ids name")
        return tables if tables.papers else None

    def _with_columns(self) -> Iterator[tuple[Path, tuple[str, ...]]]:
        if self.papers:
            yield self.papers, _PAPER_COLUMNS
        if self.citations:
            yield self.citations, _CITATION_COLUMNS

    def described(self) -> list[dict[str, Any]]:
        """The tables for the manifest: name, kind, size, SHA-256."""
        kinds = ((self.papers, "table of papers"), (self.citations, "table of citations"))
        return [
            {"name": path.name, "kind": kind, "size": path.stat().st_size, "sha256": sha256_file(path)}
            for path, kind in kinds
            if path
        ]

    def parse(self, shards: Path, first_source: int) -> None:
        """Write the tables' rows as shards of sources `first_source` and the next; rows that cannot be used
        are named."""
        if self.papers:
            _parse(self.papers, shards, first_source, _add_paper)
        if self.citations:
            # Bare digits may be PMIDs only where the papers say that they have such.
            digits_are_pmids = self.papers is not None and "pmid" in _columns(self.papers)

            def add(shard: Shard, row: Row, number: int) -> None:
                _add_citation(shard, row, number, digits_are_pmids)

            _parse(self.citations, shards, first_source + 1, add)


def _parse(path: Path, shards: Path, source: int, add: Callable[[Shard, Row, int], None]) -> None:
    rows = enumerate(_rows(path), start=1)
    for number in itertools.count():
        group = list(itertools.islice(rows, _ROWS_IN_A_SHARD))
        if number and not group:
            return
        if papers_file(shards, source, number).exists():
            continue
        shard = Shard(source, number)
        for row_number, row in group:
            try:
                if isinstance(row, _BadRowError):
                    raise row
                add(shard, row, row_number)
            except _BadRowError as error:
                shard.rejections.append(
                    Rejection(path.name, None, f"row {row_number}", "bad-row", str(error))
                )
        shard.write(shards)


# ---- rows to papers and citations ----------------------------------------------------------------


def _add_paper(shard: Shard, row: Row, number: int) -> None:
    own = _text(row.get("id"))
    if not own:
        raise _BadRowError("no id")
    title, abstract = _text(row.get("title")), _text(row.get("abstract"))
    if not title and not abstract:
        raise _BadRowError(f"{own}: neither title nor abstract")
    by_id = parse_identifier(own)
    subjects, mesh, keywords = (_list(row.get(name)) for name in ("subjects", "mesh", "keywords"))
    paper = Paper(
        doi=normalise_doi(_text(row.get("doi"))) or by_id[0],
        pmid=normalise_pmid(_text(row.get("pmid"))) or by_id[1],
        pmcid=normalise_pmcid(_text(row.get("pmcid"))) or by_id[2],
        other=own,
        title=title,
        abstract=abstract,
        year=_year(row.get("year")),
        article_type=_text(row.get("article_type")),
        journal=_text(row.get("journal")),
        licence=_text(row.get("licence")),
        retracted=(_text(row.get("retracted")) or "").lower() in _TRUE,
        subjects=subjects,
        mesh=mesh,
        keywords=keywords,
    )
    shard.add(paper, f"row {number}")


def _add_citation(shard: Shard, row: Row, number: int, digits_are_pmids: bool) -> None:
    citing, cited = _text(row.get("citing")), _text(row.get("cited"))
    title = _text(row.get("cited_title"))
    if not citing:
        raise _BadRowError("no citing paper")
    if not cited and not title:
        raise _BadRowError(f"{citing}: no cited work")
    doi, pmid, pmcid = _identifiers(citing, digits_are_pmids)
    key = f"doi:{doi}" if doi else f"pmid:{pmid}" if pmid else f"pmc:{pmcid}" if pmcid else None
    doi, pmid, pmcid = _identifiers(cited, digits_are_pmids) if cited else (None, None, None)
    citation = Citation(
        doi=doi, pmid=pmid, pmcid=pmcid, title=title, year=_year(row.get("cited_year")), other=cited
    )
    shard.add_loose(citing, key, number, citation)


def _identifiers(value: str, digits_are_pmids: bool) -> tuple[str | None, str | None, str | None]:
    if digits_are_pmids and value.isdigit():
        return None, normalise_pmid(value), None
    return parse_identifier(value)


def _text(value: Any) -> str | None:
    if value is None or (isinstance(value, float) and value != value):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, dict | list):
        raise _BadRowError(f"a text is expected, not {str(value)[:60]!r}")
    # Lone surrogates come out of JSON escapes; no file can hold them.
    return clean(str(value).encode("utf-8", "replace").decode("utf-8"))


def _year(value: Any) -> int | None:
    text = _text(value)
    if not text:
        return None
    year = year_in(text)
    if year is None:
        raise _BadRowError(f"the year {text[:40]!r} is none")
    return year


def _list(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            try:
                value = json.loads(value)
            except json.JSONDecodeError as error:
                raise _BadRowError(f"not a JSON array: {value[:60]!r}") from error
        else:
            value = _BETWEEN.split(value)
    if value is not None and not isinstance(value, list):
        raise _BadRowError(f"not a list: {str(value)[:60]!r}")
    return unique(_text(item) for item in value or ())


# ---- files to rows -------------------------------------------------------------------------------


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


def _columns(path: Path) -> list[str]:
    """The names of a table's columns; of JSON lines, those of its first rows."""
    kind = _kind(path)
    if kind == "parquet":
        with _open(path) as file:
            return [str(name) for name in _parquet(path, file).schema_arrow.names]
    if kind == "json":
        rows = (row for row in itertools.islice(_rows(path), 100) if not isinstance(row, _BadRowError))
        return list(dict.fromkeys(name for row in rows for name in row))
    with _open(path) as file:
        return next(_delimited(path, file, kind), [])


def _rows(path: Path) -> Iterator[Row | _BadRowError]:
    """The rows of a table in order; a row that cannot be read is a `_BadRowError`."""
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
            yield _BadRowError(f"the file breaks off here: {' '.join(str(error).split())}")


def _parquet(path: Path, file: Any) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(io.BytesIO(file.read()) if isinstance(file, gzip.GzipFile) else file)
    except pa.ArrowException as error:
        raise InputError(f"{path} is no Parquet file: {error}") from error


def _json_row(line: bytes) -> Row | _BadRowError:
    if not line.strip():
        return _BadRowError("an empty line")
    try:
        value = json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        return _BadRowError(f"not JSON: {error}")
    return value if isinstance(value, dict) else _BadRowError("not a JSON object")


def _delimited(path: Path, file: Any, kind: str) -> Iterator[list[str]]:
    csv.field_size_limit(1 << 26)
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
    lines: Iterable[str] = (line.replace("\0", "") for line in text)
    yield from csv.reader(lines, delimiter="," if kind == "csv" else "\t")


def _delimited_rows(path: Path, file: Any, kind: str) -> Iterator[Row | _BadRowError]:
    lines = _delimited(path, file, kind)
    header = next(lines, [])
    for values in lines:
        if not values:
            continue
        if len(values) != len(header):
            yield _BadRowError(f"{len(values)} fields where the header has {len(header)}")
        else:
            yield dict(zip(header, (value or None for value in values), strict=True))
