"""Exports of reference managers and databases: RIS, MEDLINE (.nbib), and the CSV of PubMed and Zotero.

A record of RIS or MEDLINE is a mapping from tag to its values, a row of CSV one from column to text. Columns
are found by their names in any case, separated by commas or, as spreadsheets save them again, by semicolons
or tabs. Rows may have more or fewer cells than the header, as in PubMed's files before 2020; a name that
occurs twice means the first column. Sources: "RIS Format Specifications" (Research Information Systems,
2011); "MEDLINE/PubMed Data Element (Field) Descriptions" (NLM).
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sentence_experts.corpus.formats.archives import open_unpacked
from sentence_experts.corpus.formats.authors import invert_initials, is_suffix
from sentence_experts.corpus.formats.markup import unique, without_tags
from sentence_experts.corpus.formats.pubmed import RETRACTED, without_marks
from sentence_experts.corpus.formats.pubmed import article_type as pubmed_type
from sentence_experts.corpus.formats.references import SHOWN, page_range, year_in
from sentence_experts.corpus.identifiers import (
    find_doi,
    identifiers_in_url,
    normalise_doi,
    normalise_pmcid,
    normalise_pmid,
)
from sentence_experts.corpus.paper import NOTICE_KINDS, Paper, RecordError, kind_of_type
from sentence_experts.storage import sha256_text

MAX_EXPORT_BYTES = 1 << 30
_SNIFFED_BYTES = 1 << 16
# A short DOI names a DOI that only doi.org knows.
_SHORT_DOI = re.compile(r"(?:https?://(?:dx\.)?doi\.org/|doi:)?\s*10/\S+", re.IGNORECASE)
_LABELLED = re.compile(r"\b(PMID|PMCID|DOI):\s*(\S+)", re.IGNORECASE)
_NORMALISE = {"doi": normalise_doi, "pmid": normalise_pmid, "pmcid": normalise_pmcid}
_LANGUAGES = {
    name: code
    for code, names in {
        "en": "english eng american british ukenglish usenglish", "de": "german ger deu ngerman",
        "fr": "french fre fra", "es": "spanish spa", "it": "italian ita", "pt": "portuguese por",
        "ru": "russian rus", "zh": "chinese chi zho", "ja": "japanese jpn", "nl": "dutch dut nld",
        "pl": "polish pol", "tr": "turkish tur", "ko": "korean kor", "sv": "swedish swe",
    }.items()
    for name in names.split()
}  # fmt: skip
_PUBMED = ({"pmid", "title", "journal/book"}, {"title", "details", "identifiers", "entrezuid"})
_ZOTERO = {"key", "item type", "title", "abstract note"}
_ZOTERO_TYPES = {
    "journalarticle": "research-article", "conferencepaper": "proceedings-article",
    "booksection": "book-chapter", "book": "book", "thesis": "dissertation", "preprint": "preprint",
    "report": "report", "dataset": "dataset", "webpage": "web-page",
}  # fmt: skip
_NO_PAPERS = frozenset({"attachment", "note", "annotation"})
# "J Sleep. 2001 Mar;12(3):45-50. doi: ..."
_PLACE = re.compile(
    r"\b\d{4}\b[\w /-]*(?:;(?P<volume>[^():;.]*)(?:\((?P<issue>[^)]*)\))?)?(?::(?P<pages>[\w ,/+-]+))?\."
)
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

Fields = dict[str, list[str]]


def read_export(path: Path) -> str:
    """Read the text of a file in UTF-8 or, with a byte order mark, UTF-16; perhaps gzipped.

    Raises:
        RecordError: another encoding, or too large.
    """
    with open_unpacked(path) as file:
        data = file.read(MAX_EXPORT_BYTES + 1)
    if len(data) > MAX_EXPORT_BYTES:
        raise RecordError("too-large", f"more than {MAX_EXPORT_BYTES:,} bytes")
    try:
        return data.decode(_encoding_of(data))
    except UnicodeDecodeError as error:
        named = error.encoding.upper().removesuffix("-SIG")
        raise RecordError("encoding", f"not {named} ({error.reason}): save it as UTF-8") from error


def beginning(path: Path) -> str:
    """Read the first characters of a file, for telling its format; bytes that are not text are left out."""
    try:
        with open_unpacked(path) as file:
            data = file.read(_SNIFFED_BYTES)
    except (OSError, EOFError):
        return ""
    return data.decode(_encoding_of(data), errors="ignore")


def _encoding_of(data: bytes) -> str:
    return "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"


def exported_paper(
    *,
    doi: str | None = None,
    pmid: str | None = None,
    pmcid: str | None = None,
    addresses: Iterable[str | None] = (),
    year: str | None = None,
    article_type: str | None = None,
    work_types: Iterable[str | None] = (),
    language: str | None = None,
    retracted: bool = False,
    authors: Iterable[str | None] = (),
    keywords: Iterable[str | None] = (),
    mesh: Iterable[str | None] = (),
    **texts: str | None,
) -> Paper:
    """Make a paper of the texts in an export; `texts` are other fields of `Paper`.

    `addresses` and notes are searched for identifiers that have no field of their own. A paper without any
    identifier is known by a hash of its texts.

    Raises:
        RecordError: it has neither title nor abstract.
    """
    cleaned: dict[str, Any] = {name: without_tags(text) for name, text in texts.items()}
    named = [cleaned.get(name) or "" for name in ("title", "abstract", "journal")]
    if not named[0] and not named[1]:
        raise RecordError("no-text", "neither title nor abstract")
    given = {"doi": doi, "pmid": pmid, "pmcid": pmcid}
    identifiers = {kind: _NORMALISE[kind](value) for kind, value in given.items()}
    for text in filter(None, addresses):
        for kind, value in _identifiers_in(text):
            identifiers[kind] = identifiers[kind] or value
    unreadable = (doi or "").strip()[:SHOWN] if identifiers["doi"] is None else ""
    if _SHORT_DOI.fullmatch(unreadable):
        unreadable += " (a short DOI: replace it by the one that it stands for)"
    number = year_in(year)
    # "Editorial" beside the type of a journal article.
    notice = next((kind for kind in work_types if kind_of_type(kind) in NOTICE_KINDS), None)
    return Paper(
        doi=identifiers["doi"],
        pmid=identifiers["pmid"],
        pmcid=identifiers["pmcid"],
        other=f"text:{sha256_text(*named, str(number))[:16]}",
        unreadable_doi=unreadable or None,
        year=number,
        article_type=notice.lower() if notice else article_type,
        language=_language_code(language),
        retracted=retracted,
        authors=tuple(filter(None, map(without_tags, authors))),
        keywords=unique(map(without_tags, keywords)),
        mesh=unique(map(without_tags, mesh)),
        **cleaned,
    )


def _identifiers_in(text: str) -> Iterator[tuple[str, str | None]]:
    """Find identifiers in an address or note: of doi.org, PubMed and PMC, or named before."""
    for match in _LABELLED.finditer(text):
        kind = match[1].lower()
        yield kind, _NORMALISE[kind](match[2].rstrip(".,;"))
    _, pmid, pmcid = identifiers_in_url(text)
    # Other addresses may go on after the DOI that they hold ("/full").
    yield from (("doi", find_doi(text)), ("pmid", pmid), ("pmcid", pmcid))


def _language_code(language: str | None) -> str | None:
    low = (language or "").strip().lower().replace("_", "-").partition("-")[0]
    return _LANGUAGES.get(low, low if len(low) == 2 and low.isalpha() else None)


def is_pubmed_csv(text: str) -> bool:
    """Return whether the first line has the columns of PubMed's CSV."""
    return any(wanted <= set(_header(text)) for wanted in _PUBMED)


def is_zotero_csv(text: str) -> bool:
    """Return whether the first line has the columns of Zotero's CSV."""
    return set(_header(text)) >= _ZOTERO


def _header(text: str) -> list[str]:
    """Return the names of the columns, in lower case; none if the text is no table."""
    try:
        return [name.strip().lower() for name in next(_rows(text), [])]
    except csv.Error:
        return []


def _rows(text: str) -> Iterator[list[str]]:
    text = text.lstrip("\r\n")
    first = text.partition("\n")[0]
    # The names of the columns contain no separator.
    return csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count))


def read_csv(path: Path) -> Iterator[dict[str, str]]:
    """Read rows as mappings from the column's name in lower case to its text."""
    csv.field_size_limit(1 << 26)
    text = read_export(path)
    header, number = _header(text), 0
    try:
        for number, cells in enumerate(_rows(text)):
            if number and any(cell.strip() for cell in cells):
                yield dict(reversed([*zip(header, cells, strict=False)]))
    except csv.Error as error:
        raise RecordError("broken-file", f"after row {number}: {error}") from error


def pubmed_to_paper(row: Mapping[str, str]) -> Paper:
    """Convert a row of PubMed's CSV into a paper, which has no abstract."""
    named = dict(part.strip().split(":", 1) for part in row.get("identifiers", "").split("|") if ":" in part)
    details = row.get("citation") or row.get("details") or ""
    place = _PLACE.search(details)
    volume, issue, pages = place.group("volume", "issue", "pages") if place else (None, None, None)
    authors = (row.get("authors") or row.get("description") or "").rstrip(". ")
    return exported_paper(
        title=without_marks(row.get("title")),
        abstract=row.get("abstract"),
        doi=row.get("doi") or find_doi(details),
        pmid=row.get("pmid") or named.get("PMID") or row.get("entrezuid"),
        pmcid=row.get("pmcid") or named.get("PMCID"),
        authors=map(invert_initials, authors.split(", ")),
        year=row.get("publication year") or row.get("shortdetails") or details,
        volume=volume,
        issue=issue,
        pages=pages,
        journal=row.get("journal/book") or row.get("shortdetails", "").partition(".  ")[0],
    )


def zotero_to_paper(row: Mapping[str, str]) -> Paper | str:
    """Convert a row of Zotero's CSV into a paper, or return "not-a-paper" for a note or a file."""
    kind = row.get("item type", "").lower()
    if kind in _NO_PAPERS:
        return "not-a-paper"
    tags = f"{row.get('manual tags', '')};{row.get('automatic tags', '')}"
    return exported_paper(
        title=row.get("title"),
        abstract=row.get("abstract note"),
        doi=row.get("doi"),
        addresses=(row.get("extra"), row.get("url")),
        authors=map(invert_initials, row.get("author", "").split(";")),
        year=row.get("publication year") or row.get("date"),
        volume=row.get("volume"),
        issue=row.get("issue"),
        pages=row.get("pages"),
        article_type=_ZOTERO_TYPES.get(kind, row.get("item type") or None),
        journal=row.get("publication title") or row.get("proceedings title") or row.get("conference name"),
        keywords=[tag.strip() for tag in tags.split(";")],
        language=row.get("language"),
    )


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
        article_type=pubmed_type(kinds) or ("research-article" if "Journal Articles" in kinds else None),
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
