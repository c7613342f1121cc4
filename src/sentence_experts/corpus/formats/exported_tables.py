"""Tables that PubMed and Zotero export as CSV.

Columns are found by their names in any case, separated by commas or, as spreadsheets save them again, by
semicolons or tabs. Rows may have more or fewer cells than the header, as in PubMed's files before 2020; a
name that occurs twice means the first column.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from sentence_experts.corpus.formats.authors import invert_initials
from sentence_experts.corpus.formats.exports import exported_paper, read_export
from sentence_experts.corpus.formats.pubmed import without_marks
from sentence_experts.corpus.formats.records import RecordError
from sentence_experts.corpus.identifiers import find_doi
from sentence_experts.corpus.paper import Paper

_PUBMED = ({"pmid", "title", "journal/book"}, {"title", "details", "identifiers", "entrezuid"})
_ZOTERO = {"key", "item type", "title", "abstract note"}
_ZOTERO_TYPES = {
    "journalarticle": "research-article", "conferencepaper": "proceedings-article",
    "booksection": "book-chapter", "book": "book", "thesis": "dissertation", "preprint": "preprint",
    "report": "report", "dataset": "dataset", "webpage": "web-page",
}  # fmt: skip
_PLACE = re.compile(
    r"\b\d{4}\b[\w /-]*(?:;(?P<volume>[^():;.]*)(?:\((?P<issue>[^)]*)\))?)?(?::(?P<pages>[\w ,/+-]+))?\."
)
_NO_PAPERS = frozenset({"attachment", "note", "annotation"})


def is_pubmed_csv(text: str) -> bool:
    """Whether the first line has the columns of PubMed's CSV."""
    return any(wanted <= _columns(text) for wanted in _PUBMED)


def is_zotero_csv(text: str) -> bool:
    """Whether the first line has the columns of Zotero's CSV."""
    return _columns(text) >= _ZOTERO


def _columns(text: str) -> set[str]:
    first = _first_line(text)
    try:
        return set(map(_folded, next(csv.reader([first], delimiter=_separator(first)), [])))
    except csv.Error:
        return set()


def _first_line(text: str) -> str:
    return text.lstrip("\r\n").partition("\n")[0]


def _separator(header: str) -> str:
    """What separates columns; the names of these exports contain none of it."""
    return max(",;\t", key=header.count)


def _folded(name: str) -> str:
    return name.strip().lower()


def read_csv(path: Path) -> Iterator[dict[str, str]]:
    """The rows as mappings from the column's name in lower case to its text."""
    csv.field_size_limit(1 << 26)
    text = read_export(path).lstrip("\r\n")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_separator(_first_line(text)))
    try:
        header = [_folded(name) for name in next(reader, [])]
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield dict(reversed([*zip(header, cells, strict=False)]))
    except csv.Error as error:
        raise RecordError("broken-file", f"line {reader.line_num}: {error}") from error


def pubmed_to_paper(row: Mapping[str, str]) -> Paper:
    """A row of PubMed's CSV as a paper, which has no abstract."""
    named = dict(part.strip().split(":", 1) for part in row.get("identifiers", "").split("|") if ":" in part)
    details = row.get("citation") or row.get("details") or ""
    volume, issue, pages = _place(details)
    return exported_paper(
        title=without_marks(row.get("title")),
        abstract=row.get("abstract"),
        doi=row.get("doi") or find_doi(details),
        pmid=row.get("pmid") or named.get("PMID") or row.get("entrezuid"),
        pmcid=row.get("pmcid") or named.get("PMCID"),
        authors=map(
            invert_initials, (row.get("authors") or row.get("description") or "").rstrip(". ").split(", ")
        ),
        year=row.get("publication year") or row.get("shortdetails") or details,
        volume=volume,
        issue=issue,
        pages=pages,
        journal=row.get("journal/book") or row.get("shortdetails", "").partition(".  ")[0],
    )


def _place(citation: str) -> tuple[str | None, ...]:
    """Volume, issue and pages in a citation of PubMed, such as "J Sleep. 2001 Mar;12(3):45-50. doi: ..."."""
    match = _PLACE.search(citation)
    return match.group("volume", "issue", "pages") if match else (None, None, None)


def zotero_to_paper(row: Mapping[str, str]) -> Paper | str:
    """A row of Zotero's CSV as a paper, or "not-a-paper" for a note or a file."""
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
