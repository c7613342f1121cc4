"""A finished corpus as a source of another one, so that a corpus can grow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow.parquet as pq

from sentence_experts.corpus.corpus_folder import LIST_COLUMNS, TEXT_COLUMNS, CorpusFolder
from sentence_experts.corpus.identifiers import normalise_openalex, parse_identifier
from sentence_experts.corpus.paper import Citation, Mention, Paper
from sentence_experts.corpus.parts import CorpusPart, in_groups, part_key, read_rejections
from sentence_experts.progress import progress
from sentence_experts.storage import PartStore

_PAPERS_PER_PART, _FULL_TEXTS_PER_PART = 20_000, 500  # a part is in memory
_ROWS_PER_BATCH = 10_000
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
        """Write the corpus's rows as parts."""
        cited = _Sorted(_rows(self.corpus, "citations"), "citing")
        mentioned = _Sorted(_rows(self.corpus, "mentions"), "citing")
        bodies = _Sorted(_rows(self.corpus, "bodies") if self.corpus.bodies else iter(()), "paper_id")
        at_once = _FULL_TEXTS_PER_PART if self.corpus.bodies else _PAPERS_PER_PART
        total = pq.read_metadata(self.corpus.papers).num_rows
        number = -1
        with progress("papers of the corpus", total) as advance:
            for number, group in enumerate(in_groups(_rows(self.corpus, "papers"), at_once)):
                part = CorpusPart(first_source, number)
                if number == 0 and self.corpus.rejected.is_file():
                    part.rejections += read_rejections(self.corpus.rejected)
                for row in group:
                    self._cited_by_others(part, cited.before(row["paper_id"]))
                    rows = (table.of(row["paper_id"]) for table in (cited, mentioned, bodies))
                    part.add(_paper(row, *rows), row["paper_id"])
                if not parts.is_done(part_key(first_source, number)):
                    part.write(parts)
                advance(len(group))
        rest = CorpusPart(first_source, number + 1)
        self._cited_by_others(rest, cited.before(None))
        rest.write(parts)

    @staticmethod
    def _cited_by_others(part: CorpusPart, rows: Iterator[Row]) -> None:
        """Citations by works outside the corpus."""
        for number, row in enumerate(rows):
            name = parse_identifier(row["citing"]).name()
            part.add_citation(row["citing"], name, number, _citation(row))


class _Sorted:
    """Rows in the order of a column of paper ids, taken paper by paper."""

    def __init__(self, rows: Iterator[Row], column: str) -> None:
        self._groups = groupby(rows, key=itemgetter(column))
        self._next = next(self._groups, None)

    def before(self, paper: str | None) -> Iterator[Row]:
        """Yield the rows of works before a paper; of all that are left for None."""
        while self._next and (paper is None or self._next[0] < paper):
            yield from self._next[1]
            self._next = next(self._groups, None)

    def of(self, paper: str) -> list[Row]:
        """Return the rows of a paper."""
        for _ in self.before(paper):
            pass
        if not self._next or self._next[0] != paper:
            return []
        rows = list(self._next[1])
        self._next = next(self._groups, None)
        return rows


def _rows(corpus: CorpusFolder, table: str) -> Iterator[Row]:
    path = corpus.path / f"{table}.parquet"
    if path.is_file():
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS_PER_BATCH):
                yield from batch.to_pylist()


def _paper(row: Row, references: list[Row], mentions: list[Row], bodies: list[Row]) -> Paper:
    place_of = {reference["cited"]: place for place, reference in enumerate(references)}
    columns = ("doi", "pmid", "pmcid", "year", "retracted", "has_body", *TEXT_COLUMNS)
    values = {column: row[column] for column in columns}
    values |= {column: tuple(row.get(column) or ()) for column in LIST_COLUMNS}
    return Paper(
        **values,
        openalex=normalise_openalex(row["openalex"]),
        other=None if parse_identifier(row["paper_id"]).name() else row["paper_id"],
        citations=tuple(map(_citation, references)),
        mentions=tuple(
            Mention(place_of[each["cited"]], *(each[column] for column in _PLACE))
            for each in mentions
            if each["cited"] in place_of
        ),
        body=tuple((each["section"], each["text"]) for each in bodies),
    )


def _citation(row: Row) -> Citation:
    cited = row["cited"]
    names = parse_identifier(cited) if cited else None
    other = None if names and names.name() else cited
    known = names._asdict() if names else {}
    return Citation(**known, title=row["cited_title"], year=row["cited_year"], other=other)
