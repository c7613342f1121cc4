"""The formats of records: how each is recognised, read and added to a part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from sentence_experts.corpus.formats import bibtex, exports, openalex, tagged
from sentence_experts.corpus.formats.archives import BROKEN_PACKING
from sentence_experts.corpus.formats.exports import beginning
from sentence_experts.corpus.formats.openalex import RemovedWorks
from sentence_experts.corpus.formats.records import RecordFilter, is_parquet, parsed, read_raw
from sentence_experts.corpus.paper import Paper, RecordError, Rejection
from sentence_experts.corpus.parts import CorpusPart

NAMED_PER_PART = 100
"""Rejections of single records that are listed per part; further ones are counted."""


@dataclass(frozen=True)
class Reading:
    """The settings that decide which records of a file are kept."""

    name: str
    chosen: RecordFilter
    day: int
    gone: RemovedWorks
    """OpenAlex's deleted and merged works."""


Add = Callable[[CorpusPart, Any, int, Reading], str | None]


@dataclass(frozen=True)
class RecordFormat:
    """One format of records.

    Attributes:
        begins: whether a text begins as one.
        read: reads the records of a file.
        add: adds a record to a part, or returns the reason why it is left out on purpose.
    """

    begins: Callable[[str], bool]
    read: Callable[[Path], Iterator[Any]]
    add: Add

    def records(self, path: Path) -> Iterator[Any]:
        """Yield the records of a file, in order; damage ends it with an error."""
        try:
            yield from self.read(path)
        except RecordError as error:
            yield error
        except (*BROKEN_PACKING, OSError) as error:
            yield RecordError("broken-file", " ".join(f"{type(error).__name__}: {error}".split())[:200])


def _add_openalex(part: CorpusPart, record: Any, row: int, reading: Reading) -> str | None:
    paper = openalex.to_paper(record, reading.chosen, reading.day)
    if isinstance(paper, str):
        return paper
    if reason := reading.gone.reason(paper.openalex or 0):
        return reason
    cited = reading.gone.renumbered(paper.cites_openalex, paper.openalex)
    if cited != paper.cites_openalex:
        paper = replace(paper, cites_openalex=cited)
    part.add(paper, f"W{paper.openalex}")
    return None


def _adding(to_paper: Callable[[Any], Paper | str]) -> Add:
    """Return what adds a record of an export, which `to_paper` reads."""

    def add(part: CorpusPart, record: Any, row: int, reading: Reading) -> str | None:
        paper = to_paper(record)
        if isinstance(paper, str):
            return paper
        names = paper.names()
        if not reading.chosen.admits(
            year=paper.year,
            kinds=(paper.article_type,),
            language=paper.language,
            fields=({"display_name": subject} for subject in paper.subjects),
            names=names,
        ):
            return "filtered"
        part.add(paper, f"record {row + 1}")
        unreadable = [f"of the paper: {paper.unreadable_doi}"] if paper.unreadable_doi else []
        unreadable += [
            f"of a reference: {each.unreadable_doi}" for each in paper.citations if each.unreadable_doi
        ]
        for detail in unreadable[: max(0, NAMED_PER_PART - len(part.rejections))]:
            part.rejections.append(Rejection(reading.name, names[0], None, "unreadable-doi", detail))
        return None

    return add


FORMATS = {
    "openalex": RecordFormat(lambda _: False, partial(read_raw, columns=openalex.FIELDS), _add_openalex),
    "ris": RecordFormat(tagged.is_ris, tagged.read_ris, _adding(tagged.ris_to_paper)),
    "nbib": RecordFormat(tagged.is_nbib, tagged.read_nbib, _adding(tagged.nbib_to_paper)),
    "pubmed-csv": RecordFormat(exports.is_pubmed_csv, exports.read_csv, _adding(exports.pubmed_to_paper)),
    "zotero-csv": RecordFormat(exports.is_zotero_csv, exports.read_csv, _adding(exports.zotero_to_paper)),
    "bibtex": RecordFormat(bibtex.is_bibtex, bibtex.read_bibtex, _adding(bibtex.to_paper)),
}
"""Formats by name, in the order in which they are tried on a file of unknown format."""


def format_of(file: Path) -> str:
    """Return the format of the first records of a file, or "unknown"; empty if it has none."""
    if not is_parquet(file):
        text = beginning(file)
        for name, format in FORMATS.items():
            if format.begins(text):
                return name
    empty = True
    for raw in islice(read_raw(file), 10):
        empty = False
        try:
            if not isinstance(raw, RecordError) and openalex.is_work(parsed(raw)):
                return "openalex"
        except RecordError:
            continue
    return "" if empty else "unknown"
