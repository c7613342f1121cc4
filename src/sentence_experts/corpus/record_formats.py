"""The formats of records: how each is recognised, read and added to a part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sentence_experts.corpus.formats import bibtex, exports, openalex, tagged
from sentence_experts.corpus.formats.archives import BROKEN_PACKING
from sentence_experts.corpus.formats.exports import beginning
from sentence_experts.corpus.formats.openalex import RemovedWorks
from sentence_experts.corpus.formats.records import Raw, RecordFilter, is_parquet, parsed, read_raw
from sentence_experts.corpus.paper import Paper, RecordError, Rejection
from sentence_experts.corpus.parts import CorpusPart

NAMED_PER_PART = 100
"""Rejections of single records that are listed per part; further ones are counted."""

Add = Callable[[CorpusPart, Mapping[str, Any], int, "Reading"], str | None]


@dataclass(frozen=True)
class RecordFormat:
    """One format of records.

    Attributes:
        recognises: whether a record looks like one of it.
        add: adds a record to a part, or returns the reason why it is left out on purpose.
        columns: those that are read of Parquet; None for all.
        begins: of exports that are not JSON, whether a text begins as one.
        read: reads the records of such an export.
    """

    recognises: Callable[[Mapping[str, Any]], bool]
    add: Add
    columns: tuple[str, ...] | None = None
    begins: Callable[[str], bool] | None = None
    read: Callable[[Path], Iterator[Any]] | None = None

    def records(self, path: Path) -> Iterator[Raw | RecordError]:
        """The records of a file, in order; damage ends it with an error."""
        if self.read is None:
            yield from read_raw(path, self.columns)
            return
        try:
            yield from self.read(path)
        except RecordError as error:
            yield error
        except (*BROKEN_PACKING, OSError) as error:
            yield RecordError("broken-file", " ".join(f"{type(error).__name__}: {error}".split())[:200])


@dataclass(frozen=True)
class Reading:
    """What decides which records of a file are kept."""

    name: str
    chosen: RecordFilter
    day: int
    gone: RemovedWorks
    """OpenAlex's deleted and merged works."""


def _add_openalex(part: CorpusPart, record: Mapping[str, Any], row: int, reading: Reading) -> str | None:
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


def _add_export(
    part: CorpusPart,
    record: Mapping[str, Any],
    row: int,
    reading: Reading,
    to_paper: Callable[[Any], Paper | str],
) -> str | None:
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
    of_paper = [f"of the paper: {paper.unreadable_doi}"] if paper.unreadable_doi else []
    unreadable = of_paper + [
        f"of a reference: {each.unreadable_doi}" for each in paper.citations if each.unreadable_doi
    ]
    for detail in unreadable[: max(0, NAMED_PER_PART - len(part.rejections))]:
        part.rejections.append(Rejection(reading.name, names[0], None, "unreadable-doi", detail))
    return None


def _export(
    begins: Callable[[str], bool],
    read: Callable[[Path], Iterator[Any]],
    to_paper: Callable[[Any], Paper | str],
) -> RecordFormat:
    return RecordFormat(lambda _: False, partial(_add_export, to_paper=to_paper), None, begins, read)


FORMATS = {
    "openalex": RecordFormat(openalex.is_work, _add_openalex, openalex.FIELDS),
    "ris": _export(tagged.is_ris, tagged.read_ris, tagged.ris_to_paper),
    "nbib": _export(tagged.is_nbib, tagged.read_nbib, tagged.nbib_to_paper),
    "pubmed-csv": _export(exports.is_pubmed_csv, exports.read_csv, exports.pubmed_to_paper),
    "zotero-csv": _export(exports.is_zotero_csv, exports.read_csv, exports.zotero_to_paper),
    "bibtex": _export(bibtex.is_bibtex, bibtex.read_bibtex, bibtex.to_paper),
}
"""Formats by name, in the order in which they are tried on a record of unknown format."""


def format_of(file: Path) -> str:
    """The format of the first records of a file, or "unknown"; empty if it has none."""
    if not is_parquet(file):
        text = beginning(file)
        for name, format in FORMATS.items():
            if format.begins and format.begins(text):
                return name
    empty = True
    for number, raw in enumerate(read_raw(file)):
        if number >= 10:
            break
        empty = False
        try:
            record = {} if isinstance(raw, RecordError) else parsed(raw)
        except RecordError:
            continue
        for name, format in FORMATS.items():
            if format.recognises(record):
                return name
    return "" if empty else "unknown"
