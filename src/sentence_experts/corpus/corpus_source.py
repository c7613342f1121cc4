"""A finished corpus as a source of another one, so that a corpus can grow."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow.parquet as pq

from sentence_experts.corpus.corpus_folder import LIST_COLUMNS, TEXT_COLUMNS, CorpusFolder
from sentence_experts.corpus.identifiers import normalise_openalex, parse_identifier
from sentence_experts.corpus.paper import Citation, Mention, Paper
from sentence_experts.corpus.parts import CorpusPart, part_key, read_rejections
from sentence_experts.progress import progress
from sentence_experts.storage import PartStore

_PAPERS_PER_PART, _FULL_TEXTS_PER_PART = 5_000, 500  # a part is in memory
_PLACE = Mention._fields[1:]

Row = dict[str, Any]


@dataclass(frozen=True)
class CorpusSource:
    """The papers, citations, mentions and full texts of a corpus (a `building.TableSource`)."""

    corpus: CorpusFolder

    def described(self) -> list[dict[str, Any]]:
        """Describe the corpus for the manifest, with the sources that it was made from."""
        size = sum(path.stat().st_size for path in (self.corpus.papers, self.corpus.citations))
        sources = self.corpus.manifest.get("sources", [])
        return [
            {"name": self.corpus.path.resolve().name, "kind": "corpus", "size": size}
            | {"sha256": self.corpus.fingerprint(), "sources": sources}
        ]

    def parse(self, parts: PartStore, first_source: int) -> None:
        """Write the corpus's rows as parts: each some papers, and all that lies between their ids."""
        ids = pq.read_table(self.corpus.papers, columns=["paper_id"])["paper_id"]
        at_once = _FULL_TEXTS_PER_PART if self.corpus.bodies else _PAPERS_PER_PART
        bounds = [id_.as_py() for id_ in ids[::at_once]]
        with progress("papers of the corpus", len(ids)) as advance:
            for number, (first, end) in enumerate(zip(["", *bounds[1:]], [*bounds[1:], None], strict=True)):
                if not parts.is_done(part_key(first_source, number)):
                    self._part(first_source, number, first, end).write(parts)
                advance(min(at_once, len(ids) - number * at_once))

    def _part(self, source: int, number: int, first: str, end: str | None) -> CorpusPart:
        """Return the part of the papers from `first` to before `end`."""
        part = CorpusPart(source, number)
        if number == 0 and self.corpus.rejected.is_file():
            part.rejections += read_rejections(self.corpus.rejected)
        papers, citations, mentions, bodies = (
            self._rows(table, column, first, end)
            for table, column in (
                *(("papers", "paper_id"), ("citations", "citing")),
                *(("mentions", "citing"), ("bodies", "paper_id")),
            )
        )
        for paper, (row,) in papers.items():
            rows = (table.pop(paper, []) for table in (citations, mentions, bodies))
            part.add(_make_paper(row, *rows), paper)
        for citing, rows_of_others in citations.items():  # citations by works outside the corpus
            name = parse_identifier(citing).name()
            for position, row in enumerate(rows_of_others):
                part.add_citation(citing, name, position, _make_citation(row))
        return part

    def _rows(self, table: str, column: str, first: str, end: str | None) -> dict[str, list[Row]]:
        """Return the rows of a table, by paper."""
        path = self.corpus.path / f"{table}.parquet"
        if not path.is_file() or (table == "bodies" and not self.corpus.bodies):
            return {}
        limits = [(column, ">=", first), *([(column, "<", end)] if end else [])]
        rows = pq.read_table(path, filters=limits, partitioning=None).to_pylist()
        return {paper: list(group) for paper, group in groupby(rows, itemgetter(column))}


def _make_paper(row: Row, references: list[Row], mentions: list[Row], bodies: list[Row]) -> Paper:
    place_of = {reference["cited"]: place for place, reference in enumerate(references)}
    columns = ("doi", "pmid", "pmcid", "year", "retracted", "has_body", *TEXT_COLUMNS)
    values: dict[str, Any] = {column: row.get(column) for column in columns}  # old corpora have fewer
    values |= {column: tuple(row[column] or ()) for column in LIST_COLUMNS}
    return Paper(
        **values,
        openalex=normalise_openalex(row["openalex"]),
        other=None if parse_identifier(row["paper_id"]).name() else row["paper_id"],
        citations=tuple(map(_make_citation, references)),
        mentions=tuple(
            Mention(place_of[each["cited"]], *(each[column] for column in _PLACE))
            for each in mentions
            if each["cited"] in place_of
        ),
        body=tuple((each["section"], each["text"]) for each in bodies),
    )


def _make_citation(row: Row) -> Citation:
    cited = row["cited"]
    names = parse_identifier(cited) if cited else None
    other = None if names and names.name() else cited
    known = names._asdict() if names else {}
    return Citation(**known, title=row["cited_title"], year=row["cited_year"], other=other)
