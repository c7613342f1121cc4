"""Exports of lines that begin with a tag: RIS and MEDLINE (.nbib).

A record is a mapping from tag to its values. Sources: "RIS Format Specifications" (Research Information
Systems, 2011); "MEDLINE/PubMed Data Element (Field) Descriptions" (NLM).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sentence_experts.corpus.formats.authors import invert_initials, is_suffix
from sentence_experts.corpus.formats.exports import exported_paper, read_export
from sentence_experts.corpus.formats.pubmed import RETRACTED, article_type, without_marks
from sentence_experts.corpus.formats.references import page_range
from sentence_experts.corpus.paper import Paper

Fields = dict[str, list[str]]

_RIS_LINE = re.compile(r"([A-Z][A-Z0-9])  -(?: (.*))?$")
_NBIB_LINE = re.compile(r"([A-Z]{2,4}) {0,2}- ?(.*)$")
_RIS_BEGINS = re.compile(r"^TY  - ", re.MULTILINE)
_NBIB_BEGINS = re.compile(r"^(?:PMID|PMC |OWN )- ?\S", re.MULTILINE)
_RIS_TYPES = {
    "jour": "research-article", "ejour": "research-article", "journal article": "research-article",
    "mgzn": "magazine-article", "news": "news", "conf": "proceedings-article",
    "cpaper": "proceedings-article", "chap": "book-chapter", "echap": "book-chapter", "book": "book",
    "ebook": "book", "edbook": "book", "thes": "dissertation", "rprt": "report", "data": "dataset",
    "abst": "abstract", "unpb": "unpublished", "elec": "web-page", "stand": "standard", "pat": "patent",
    "comp": "software", "gen": "other",
}  # fmt: skip
_MAX_VALUE = 1 << 17


def is_ris(text: str) -> bool:
    """Whether a text begins as RIS does."""
    return bool(_RIS_BEGINS.search(text))


def is_nbib(text: str) -> bool:
    """Whether a text begins as MEDLINE's does."""
    return bool(_NBIB_BEGINS.search(text))


@dataclass
class _Lines:
    """The fields of a record, while its lines are read."""

    record: Fields = field(default_factory=dict)
    values: list[str] = field(default_factory=list)
    """Of the last field."""

    def add(self, tag: str, value: str | None) -> None:
        """Add the first line of a value."""
        self.values = self.record.setdefault(tag, [])
        self.values.append((value or "").strip())

    def extend(self, line: str) -> None:
        """Append a line to the last value, unless that is longer than any text of a record."""
        if self.values and line.strip() and len(self.values[-1]) < _MAX_VALUE:
            self.values[-1] = f"{self.values[-1]}\n{line.strip()}"

    def finished(self) -> Fields:
        """The fields of the record, whose next line belongs to another one."""
        record, self.record, self.values = self.record, {}, []
        return record


def read_ris(path: Path) -> Iterator[Fields]:
    """The records of RIS, from TY to ER or the next TY; what stands between records is left out."""
    lines = _Lines()
    for line in read_export(path).splitlines():
        match = _RIS_LINE.match(line)
        if match is None:
            lines.extend(line)
            continue
        if match[1] in ("TY", "ER") and lines.record:
            yield lines.finished()
        if match[1] == "TY" or lines.record:
            lines.add(match[1], match[2])
    if lines.record:
        yield lines.record


def read_nbib(path: Path) -> Iterator[Fields]:
    """The records of MEDLINE, with empty lines between them; further lines of a value are indented."""
    lines = _Lines()
    for line in read_export(path).splitlines():
        match = _NBIB_LINE.match(line)
        begins = match is not None and match[1] == "PMID" and "PMID" in lines.record
        if lines.record and (begins or not line.strip()):
            yield lines.finished()
        if match is None:
            lines.extend(line)
        else:
            lines.add(match[1], match[2])
    if lines.record:
        yield lines.record


def ris_to_paper(record: Mapping[str, list[str]]) -> Paper:
    """A record of RIS as a paper; databases differ in the tags of titles, abstracts and years."""
    kind = " ".join(record.get("TY", [])).lower()
    databases = " ".join(record.get("DB", []) + record.get("DP", [])).lower()
    number = _first(record, "AN")
    from_pubmed = (
        any(name in databases for name in ("pubmed", "nlm", "medline")) and "embase" not in databases
    )
    return exported_paper(
        title=_first(record, "TI", "T1", "CT", "ST"),
        abstract=_first(record, "AB", "N2"),
        doi=_first(record, "DO"),
        pmid=number if from_pubmed and number and number.isdigit() else None,
        pmcid=next((text for text in record.get("C2", []) if text.startswith("PMC")), None),
        addresses=[
            text for tag in ("UR", "L2", "L1", "LK", "N1", "M1", "M3", "C1") for text in record.get(tag, [])
        ],
        authors=map(invert_initials, _split(record.get("AU") or record.get("A1") or [], r"[\n;]")),
        year=_first(record, "PY", "Y1", "DA"),
        volume=_first(record, "VL"),
        issue=_first(record, "IS"),
        pages=page_range(_first(record, "SP"), _first(record, "EP")),
        article_type=_RIS_TYPES.get(kind, kind or None),
        work_types=record.get("M3", []),
        journal=_first(record, "JF", "JO", "T2", "JA"),
        keywords=_split(record.get("KW", []), r"[\n;]"),
        language=_first(record, "LA"),
    )


def nbib_to_paper(record: Mapping[str, list[str]]) -> Paper:
    """A record of MEDLINE as a paper; the DOI is marked so among other numbers, or an address (ERIC)."""
    numbers = record.get("LID", []) + record.get("AID", [])
    kinds = tuple(record.get("PT", []))
    return exported_paper(
        title=without_marks(_first(record, "TI", "BTI")),
        abstract=_first(record, "AB"),
        doi=next((each.removesuffix("[doi]") for each in numbers if each.endswith("[doi]")), None),
        pmid=_first(record, "PMID"),
        pmcid=_first(record, "PMC"),
        addresses=[each for each in numbers if each.startswith("http")],
        authors=[*map(_with_suffix, record.get("FAU") or record.get("AU", [])), *record.get("CN", [])],
        year=_first(record, "DP", "DEP"),
        volume=_first(record, "VI"),
        issue=_first(record, "IP"),
        pages=_first(record, "PG"),
        article_type=article_type(kinds) or ("research-article" if "Journal Articles" in kinds else None),
        journal=_first(record, "JT", "TA"),
        mesh=record.get("MH", []),
        keywords=[word.removeprefix("*") for word in record.get("OT", [])],
        language=_first(record, "LA"),
        retracted=bool(RETRACTED & set(kinds)) or "RIN" in record,
    )


def _with_suffix(name: str) -> str:
    """A name of MEDLINE with a comma before its suffix ("Hellinger, Frank R Jr")."""
    start, _, last = name.rpartition(" ")
    return f"{start}, {last}" if "," in start and is_suffix(last) else invert_initials(name)


def _first(record: Mapping[str, list[str]], *tags: str) -> str | None:
    return next((text for tag in tags for text in record.get(tag, []) if text), None)


def _split(texts: Iterable[str], separator: str) -> list[str]:
    return [part.strip() for text in texts for part in re.split(separator, text)]
