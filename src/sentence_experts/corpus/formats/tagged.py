"""Exports of lines that begin with a tag: RIS and MEDLINE (.nbib).

A record is a mapping from tag to its values. Sources: "RIS Format Specifications" (Research Information
Systems, 2011); "MEDLINE/PubMed Data Element (Field) Descriptions" (NLM).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
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
_WITH_ADDRESSES = ("UR", "L2", "L1", "LK", "N1", "M1", "M3", "C1")
_MAX_VALUE = 1 << 17  # longer than any text of a record


def is_ris(text: str) -> bool:
    """Return whether a text begins as RIS does."""
    return bool(_RIS_BEGINS.search(text))


def is_nbib(text: str) -> bool:
    """Return whether a text begins as MEDLINE's does."""
    return bool(_NBIB_BEGINS.search(text))


def read_ris(path: Path) -> Iterator[Fields]:
    """Read the records of RIS, from TY to ER or the next TY; what stands between records is left out."""
    record: Fields = {}
    values: list[str] = []  # of the last tag
    for line in read_export(path).splitlines():
        match = _RIS_LINE.match(line)
        if match is None:
            _extend(values, line)
            continue
        if match[1] in ("TY", "ER") and record:
            yield record
            record, values = {}, []
        if match[1] == "TY" or record:
            values = record.setdefault(match[1], [])
            values.append((match[2] or "").strip())
    if record:
        yield record


def read_nbib(path: Path) -> Iterator[Fields]:
    """Read the records of MEDLINE, with empty lines between them; further lines of a value are indented."""
    record: Fields = {}
    values: list[str] = []
    for line in read_export(path).splitlines():
        match = _NBIB_LINE.match(line)
        begins = match is not None and match[1] == "PMID" and "PMID" in record
        if record and (begins or not line.strip()):
            yield record
            record, values = {}, []
        if match is None:
            _extend(values, line)
        else:
            values = record.setdefault(match[1], [])
            values.append(match[2].strip())
    if record:
        yield record


def _extend(values: list[str], line: str) -> None:
    """Append a line to the last value."""
    if values and line.strip() and len(values[-1]) < _MAX_VALUE:
        values[-1] = f"{values[-1]}\n{line.strip()}"


def ris_to_paper(record: Mapping[str, list[str]]) -> Paper:
    """Convert a record of RIS into a paper; databases differ in the tags of titles, abstracts and years."""
    kind = " ".join(record.get("TY", [])).lower()
    databases = " ".join(record.get("DB", []) + record.get("DP", [])).lower()
    number = _first(record, "AN")
    from_pubmed = re.search("pubmed|nlm|medline", databases) and "embase" not in databases
    return exported_paper(
        title=_first(record, "TI", "T1", "CT", "ST"),
        abstract=_first(record, "AB", "N2"),
        doi=_first(record, "DO"),
        pmid=number if from_pubmed and number and number.isdigit() else None,
        pmcid=next((text for text in record.get("C2", []) if text.startswith("PMC")), None),
        addresses=[text for tag in _WITH_ADDRESSES for text in record.get(tag, [])],
        authors=map(invert_initials, _split(record.get("AU") or record.get("A1") or [])),
        year=_first(record, "PY", "Y1", "DA"),
        volume=_first(record, "VL"),
        issue=_first(record, "IS"),
        pages=page_range(_first(record, "SP"), _first(record, "EP")),
        article_type=_RIS_TYPES.get(kind, kind or None),
        work_types=record.get("M3", []),
        journal=_first(record, "JF", "JO", "T2", "JA"),
        keywords=_split(record.get("KW", [])),
        language=_first(record, "LA"),
    )


def nbib_to_paper(record: Mapping[str, list[str]]) -> Paper:
    """Convert a record of MEDLINE into a paper; the DOI is marked as one, or an address (ERIC)."""
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
    """Set a comma before the suffix of a name of MEDLINE ("Hellinger, Frank R Jr")."""
    start, _, last = name.rpartition(" ")
    return f"{start}, {last}" if "," in start and is_suffix(last) else invert_initials(name)


def _first(record: Mapping[str, list[str]], *tags: str) -> str | None:
    return next((text for tag in tags for text in record.get(tag, []) if text), None)


def _split(texts: Iterable[str]) -> list[str]:
    return [part.strip() for text in texts for part in re.split(r"[\n;]", text)]
