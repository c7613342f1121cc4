"""Exports of reference managers and databases: their text, their papers, and the tables of PubMed and Zotero.

Columns of CSV are found by their names in any case, separated by commas or, as spreadsheets save them again,
by semicolons or tabs. Rows may have more or fewer cells than the header, as in PubMed's files before 2020; a
name that occurs twice means the first column.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from sentence_experts.corpus.formats.archives import open_unpacked
from sentence_experts.corpus.formats.authors import invert_initials
from sentence_experts.corpus.formats.markup import unique, without_tags
from sentence_experts.corpus.formats.pubmed import without_marks
from sentence_experts.corpus.formats.references import SHOWN, year_in
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
_MARKS = ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"), (b"", "utf-8-sig"))
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


def read_export(path: Path) -> str:
    """Read the text of a file in UTF-8 or, with a byte order mark, UTF-16; perhaps gzipped.

    Raises:
        RecordError: another encoding, or too large.
    """
    with open_unpacked(path) as file:
        data = file.read(MAX_EXPORT_BYTES + 1)
    if len(data) > MAX_EXPORT_BYTES:
        raise RecordError("too-large", f"more than {MAX_EXPORT_BYTES:,} bytes")
    encoding = _encoding_of(data)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        named = encoding.removesuffix("-sig").upper()
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
    return next(encoding for mark, encoding in _MARKS if data.startswith(mark))


def exported_paper(
    *,
    title: str | None,
    abstract: str | None,
    doi: str | None = None,
    pmid: str | None = None,
    pmcid: str | None = None,
    addresses: Iterable[str | None] = (),
    authors: Iterable[str | None] = (),
    year: str | None = None,
    volume: str | None = None,
    issue: str | None = None,
    pages: str | None = None,
    article_type: str | None = None,
    work_types: Iterable[str | None] = (),
    journal: str | None = None,
    keywords: Iterable[str | None] = (),
    mesh: Iterable[str | None] = (),
    language: str | None = None,
    retracted: bool = False,
) -> Paper:
    """Make a paper of the texts in an export.

    `addresses` and notes are searched for identifiers that have no field of their own. A paper without any
    identifier is known by a hash of its texts.

    Raises:
        RecordError: it has neither title nor abstract.
    """
    title, abstract, journal = without_tags(title), without_tags(abstract), without_tags(journal)
    if not title and not abstract:
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
        other=f"text:{sha256_text(title or '', abstract or '', journal or '', str(number))[:16]}",
        unreadable_doi=unreadable or None,
        title=title,
        abstract=abstract,
        authors=tuple(filter(None, map(without_tags, authors))),
        year=number,
        volume=without_tags(volume),
        issue=without_tags(issue),
        pages=without_tags(pages),
        article_type=notice.lower() if notice else article_type,
        journal=journal,
        keywords=unique(map(without_tags, keywords)),
        mesh=unique(map(without_tags, mesh)),
        language=_language_code(language),
        retracted=retracted,
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
