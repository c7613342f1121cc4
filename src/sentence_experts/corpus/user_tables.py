"""Papers and citations from the user's own tables.

Papers need the columns `id`, `title`, `abstract`; citations `citing`, `cited`, whose values are ids of the
papers or any DOI, PMID or PMCID. Lists (subjects, mesh, keywords) are Parquet lists, JSON arrays, or text
split at `;` or `|`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from sentence_experts.errors import UsageError
from sentence_experts.storage import sha256_file
from sentence_experts.tables import BadRowError, Row, check_columns, read_columns, read_rows

_ROWS_IN_A_SHARD = 20_000
_PAPER_COLUMNS = ("id", "title", "abstract")
_CITATION_COLUMNS = ("citing", "cited")
_BETWEEN = re.compile(r"\s*[;|]\s*")
_TRUE = frozenset({"1", "true", "yes", "t", "y"})


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
            check_columns(str(path), needed, read_columns(path))
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
            digits_are_pmids = self.papers is not None and "pmid" in read_columns(self.papers)

            def add(shard: Shard, row: Row, number: int) -> None:
                _add_citation(shard, row, number, digits_are_pmids)

            _parse(self.citations, shards, first_source + 1, add)


def _parse(path: Path, shards: Path, source: int, add: Callable[[Shard, Row, int], None]) -> None:
    numbered = enumerate(read_rows(path), start=1)
    for number in itertools.count():
        group = list(itertools.islice(numbered, _ROWS_IN_A_SHARD))
        if number and not group:
            return
        if papers_file(shards, source, number).exists():
            continue
        shard = Shard(source, number)
        for row_number, row in group:
            try:
                if isinstance(row, BadRowError):
                    raise row
                add(shard, row, row_number)
            except BadRowError as error:
                shard.rejections.append(
                    Rejection(path.name, None, f"row {row_number}", "bad-row", str(error))
                )
        shard.write(shards)


# ---- rows to papers and citations ----------------------------------------------------------------


def _add_paper(shard: Shard, row: Row, number: int) -> None:
    own = _text(row.get("id"))
    if not own:
        raise BadRowError("no id")
    title, abstract = _text(row.get("title")), _text(row.get("abstract"))
    if not title and not abstract:
        raise BadRowError(f"{own}: neither title nor abstract")
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
        raise BadRowError("no citing paper")
    if not cited and not title:
        raise BadRowError(f"{citing}: no cited work")
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
        raise BadRowError(f"a text is expected, not {str(value)[:60]!r}")
    # Lone surrogates come out of JSON escapes; no file can hold them.
    return clean(str(value).encode("utf-8", "replace").decode("utf-8"))


def _year(value: Any) -> int | None:
    text = _text(value)
    if not text:
        return None
    year = year_in(text)
    if year is None:
        raise BadRowError(f"the year {text[:40]!r} is none")
    return year


def _list(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            try:
                value = json.loads(value)
            except json.JSONDecodeError as error:
                raise BadRowError(f"not a JSON array: {value[:60]!r}") from error
        else:
            value = _BETWEEN.split(value)
    if value is not None and not isinstance(value, list):
        raise BadRowError(f"not a list: {str(value)[:60]!r}")
    return unique(_text(item) for item in value or ())
