"""Exports of reference managers and databases: RIS, MEDLINE (.nbib), BibTeX, the CSV of PubMed and Zotero.

A record is a mapping from tag, column or field to its values; `EXPORTS` has the names of each format. Columns
of CSV are found by their names in any case, separated by commas or, as spreadsheets save them again, by
semicolons or tabs; a name that occurs twice means the first column. Sources: "RIS Format Specifications"
(Research Information Systems, 2011); "MEDLINE/PubMed Data Element (Field) Descriptions" (NLM).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from sentence_experts.corpus.formats.archives import MAX_DOCUMENT_BYTES, open_unpacked
from sentence_experts.corpus.formats.authors import invert_initials, is_suffix
from sentence_experts.corpus.formats.bibtex import BIBTEX_BEGINS, KIND, UNDEFINED, Fields, read_bibtex
from sentence_experts.corpus.formats.languages import read_language
from sentence_experts.corpus.formats.markup import unescape, unique, without_tags
from sentence_experts.corpus.formats.pubmed import RETRACTED, article_type, without_marks
from sentence_experts.corpus.formats.references import SHOWN, page_range, year_in
from sentence_experts.corpus.formats.tagged import (
    GAP,
    NBIB_LINE,
    RIS_LINE,
    read_csv,
    read_header,
    read_tagged,
)
from sentence_experts.corpus.identifiers import NORMALISE, find_doi, identifiers_in_url, parse_identifier
from sentence_experts.corpus.paper import (
    Citation,
    Paper,
    RecordError,
    clean_abstract,
    is_type_of_retracted,
    kind_of_type,
    name_by_texts,
)
from sentence_experts.errors import InputError

# A short DOI names a DOI that only doi.org knows.
_SHORT_DOI = re.compile(r"(?:https?://(?:dx\.)?doi\.org/|doi:)?\s*10/\S+", re.IGNORECASE)
# An address, or an identifier with its name before it: "PubMed PMID: 12", "doi 10.1000/abc".
_IDENTIFIER = re.compile(
    r"(?P<url>(?:https?://|\bwww\.|\b(?:dx\.)?doi\.org/)\S+)"
    r"|\b(?:PubMed\s+(?:Central\s+)?)?(?P<kind>PMID|PMCID|DOI)\b[\s:=-]*"
    r"(?P<value>(?=\S{0,99}\d|none\b|no\b|unknown\b|n[/.]?a\b)\S{1,999}?)(?=[.,;]{0,3}(?:\s|$)|[.,;]{1,3}(?:PMID|PMCID|DOI)\s*:)",
    re.IGNORECASE,
)
_TEXTS = ("title", "abstract", "journal", "volume", "issue", "pages")
# Types of RIS, BibTeX and Zotero, in lower case.
_TYPES = {
    name: kind
    for kind, names in {
        "research-article": "jour|ejour|journal article|article|journalarticle", "magazine-article": "mgzn",
        "proceedings-article": "conf|cpaper|inproceedings|conference|conferencepaper", "preprint": "preprint",
        "book-chapter": "chap|echap|incollection|inbook|booksection", "book": "book|ebook|edbook",
        "dissertation": "thes|phdthesis|mastersthesis|thesis", "report": "rprt|techreport|report",
        "dataset": "data|dataset", "abstract": "abst", "unpublished": "unpb|unpublished",
        "software": "comp|software", "web-page": "elec|online|webpage", "standard": "stand",
        "patent": "pat|patent", "other": "gen|misc",
    }.items()
    for name in names.split("|")
}  # fmt: skip
_RIS_BEGINS = re.compile(rf"^TY{GAP}-[ \t\xa0]", re.MULTILINE)
_NBIB_BEGINS = re.compile(r"^(?:PMID|PMC |OWN )- ?\S", re.MULTILINE)
# A line of Zotero's field Extra, which holds a field that the kind of item lacks.
_EXTRA_FIELD = re.compile(
    r"^[^\S\n]*(?P<kind>PMID|PMCID|DOI)[^\S\n]*:[^\S\n]*(?P<value>\S+)[^\S\n]*$", re.IGNORECASE | re.MULTILINE
)
# Notes may be HTML. The brackets of a DOI such as 40:4<3::AID-X>3.0.CO;2-K are no tags.
_TAG = re.compile(
    r"</?(?:a|b|blockquote|br|code|div|em|font|h[1-6]|hr|i|li|ol|p|pre|small|span|strong|su[bp]|t[dhr]|table|tbody|u|ul)(?=[\s/>])[^<>]*>",
    re.I,
)
_ADDRESS = re.compile(
    r"(?:url:|pdf:|\W{0,2})(?:https?://|www\.|(?:dx\.)?doi\.org/|info:doi/|doi:|europepmc\.org/"
    r"|(?:[\w-]+\.)*ncbi\.nlm\.nih\.gov/|10\.\d{4,}/)\S+",
    re.IGNORECASE,
)
_ADDRESSES, _NOTES = ("UR", "L2", "L1", "LK"), ("N1", "M1", "M3", "C1")
# A path with escapes among descriptions and types: "PDF:C\:\\a\\b.pdf:application/pdf", "a.pdf; b.pdf".
_PDF = re.compile(
    r"(?:^|[:;])((?:[A-Za-z]:(?=[\\/]))?(?!//)(?:\\.|[^:;\\])+\.pdf)\s*(?=[:;]|$)", re.IGNORECASE
)
# The beginning of "file:///C:/a.pdf" and "file:///home/a.pdf", as Mendeley writes them.
_FILE_ADDRESS = re.compile(r"file:(?:/*(?=[A-Z]:[\\/])|//(?=/))(?=.*\.pdf$)", re.IGNORECASE)
_NEXT_FILE = re.compile(
    r";\s*(?=file:|https?:|[A-Z]:[\\/]|[/~]|\.\.?/|\\\\)|(?<=\.pdf);|(?<=\.html);|(?<=\.docx);", re.IGNORECASE
)
_SEMICOLON = re.compile(r"(?<!\\);")
# "J Sleep. 2001 Mar;12(3):45-50. doi: ..."
_PLACE = re.compile(
    r"\b\d{4}\b[\w /-]*(?:;(?P<volume>[^():;.]*)(?:\((?P<issue>[^)]*)\))?)?(?::(?P<pages>[\w ,/+-]+))?\."
)


@dataclass(frozen=True)
class Export:
    """One format of exports.

    Attributes:
        begins: finds the place of the first record of this format in a text, if it has one.
        read: reader of the records in a text.
        names: field of a paper -> the names that it may have, best first.
        more: reader of the other fields of a record; its result is None if the record is not a paper.
    """

    begins: Callable[[str], int | None]
    read: Callable[[str], Iterator[Fields | RecordError]]
    names: dict[str, str]
    more: Callable[[Fields], dict[str, Any] | None]

    def records(self, path: Path) -> Iterator[Fields | RecordError]:
        """Read the records of a file in UTF-8 or, with a byte order mark, UTF-16; perhaps gzipped.

        Raises:
            RecordError: another encoding, or too large.
        """
        with open_unpacked(path) as file:
            data = file.read(MAX_DOCUMENT_BYTES + 1)
        if len(data) > MAX_DOCUMENT_BYTES:
            raise RecordError("too-large", f"more than {MAX_DOCUMENT_BYTES:,} bytes")
        try:
            text = data.decode(_guess_encoding(data))
        except UnicodeDecodeError as error:
            named = error.encoding.upper().removesuffix("-SIG")
            raise RecordError("encoding", f"not {named} ({error.reason}): save it as UTF-8") from error
        text = text.replace("\ufeff", "")  # files that were joined
        is_one = self.begins(text) is not None and any(EXPORTS[name] is self for name in _AMONG)
        yield from self.read(text)
        header = read_header(text) if self.read is read_csv else set()
        if unread := header & _OF_TABLES - {*self.names.values()}:
            detail = f"{', '.join(sorted(unread))}: to have these columns read, give the file as `papers`"
            yield RecordError("unread-columns", detail)
        for name, pattern in _AMONG.items() if is_one else ():
            if EXPORTS[name] is not self and (match := pattern.search(text)):
                line = text.count("\n", 0, match.start("record")) + 1
                yield RecordError("other-format", f"line {line}: records of {name} are not read in this file")

    def to_paper(self, record: Fields) -> Paper | str:
        """Convert a record into a paper, or return "not-a-paper" for a note or a file.

        Raises:
            RecordError: it has neither title nor abstract.
        """
        more = self.more(record)
        stated = {field: _first(record, *names.split("|")) for field, names in self.names.items()}
        if "year" in stated:  # the first that can be read
            stated["year"] = next(
                filter(year_in, _all(record, *self.names["year"].split("|"))), stated["year"]
            )
        return "not-a-paper" if more is None else _make_paper(stated | more)


def read_beginning(path: Path) -> str:
    """Read the first characters of a file, for telling its format; bytes that are not text are left out."""
    try:
        with open_unpacked(path) as file:
            data = file.read(1 << 16)
    except (OSError, EOFError):
        return ""
    return data.decode(_guess_encoding(data), errors="ignore")


def _guess_encoding(data: bytes) -> str:
    return "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"


def _all(record: Fields, *names: str) -> Iterator[str]:
    return (text for name in names for text in record.get(name, ()) if text)


def _first(record: Fields, *names: str) -> str | None:
    return next(_all(record, *names), None)


def _split(texts: Iterable[str], separator: str = r"[\n;]") -> list[str]:
    # Before an entity such as "&uuml;" is taken apart.
    return [part.strip() for text in texts for part in re.split(separator, unescape(text))]


def _make_paper(stated: dict[str, Any]) -> Paper:
    """Make a paper of the texts in a record, by the name of the field.

    `extra`, `addresses` and `notes` are read for identifiers that no field holds. A paper without any is
    known by a hash of its texts.
    """
    texts: dict[str, Any] = {name: without_tags(stated.get(name)) for name in _TEXTS}
    texts["abstract"] = clean_abstract(texts["abstract"])
    if not texts["title"] and not texts["abstract"]:
        raise RecordError("no-text", "neither title nor abstract")
    identifiers: dict[str, Any] = {kind: read(stated.get(kind)) for kind, read in NORMALISE.items()}
    extra, addresses, notes = (filter(None, stated.get(name, ())) for name in ("extra", "addresses", "notes"))
    fields = [(each["kind"].lower(), each["value"]) for text in extra for each in _EXTRA_FIELD.finditer(text)]
    found = [(kind, NORMALISE[kind](value)) for kind, value in fields]
    for kind, value in (*found, *_read_addresses(addresses), *_read_notes(notes)):
        identifiers[kind] = identifiers[kind] or value
    unreadable = (stated.get("doi") or "").strip()[:SHOWN] if identifiers["doi"] is None else ""
    if _SHORT_DOI.fullmatch(unreadable):
        unreadable += " (a short DOI: replace it by the one that it stands for)"
    year, kind = year_in(stated.get("year")), stated.get("article_type") or ""
    odd = [(each, value) for each, value in fields if each != "doi"]
    odd += [(each, stated.get(each) or "") for each in ("pmid", "pmcid")]
    odd = [(each, value) for each, value in odd if not identifiers[each] and re.search("[1-9]", value)]
    odd += [("year", stated["year"])] if stated.get("year") and year is None else []
    # "Editorial" beside the type of a journal article.
    named = "; ".join(
        each
        for each in stated.get("work_types", ())
        if kind_of_type(each) != "article" or is_type_of_retracted(each)
    )
    lists = {name: map(without_tags, stated.get(name, ())) for name in ("authors", "keywords", "mesh")}
    return Paper(
        **identifiers,
        **texts,
        other=name_by_texts(texts, year),
        unreadable_doi=unreadable or None,
        unreadable=tuple((each, value.strip()[:SHOWN]) for each, value in odd),
        year=year,
        article_type=named.lower() if named else _TYPES.get(kind.lower(), kind or None),
        language=read_language(stated.get("language")),
        retracted=stated.get("retracted", False),
        retracts=tuple(work for work in stated.get("retracts", ()) if work.doi or work.pmid),
        entry=stated.get("entry"),
        file=stated.get("file"),
        authors=tuple(filter(None, lists["authors"])),
        keywords=unique(lists["keywords"]),
        mesh=unique(lists["mesh"]),
    )


def _read_notes(texts: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Read the identifiers in the notes of a record that hold nothing else.

    Beside other words they may be of another work: a comment's, a preprint's, a data set's.
    """
    for text in (_TAG.sub(" ", _without_commands(each)) for each in texts):
        if not re.search(r"\w", _IDENTIFIER.sub("", text)):
            yield from _find_identifiers(text)


def _read_addresses(texts: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Read the identifiers in fields of addresses; a path of a file is none."""
    for word in re.split(r"\s+|[;,|](?=https?://|www\.|doi:)", _without_commands(" ".join(texts))):
        if _ADDRESS.fullmatch(word):
            yield from zip(NORMALISE, identifiers_in_url(word), strict=True)


def _without_commands(text: str) -> str:
    """Remove the LaTeX commands of addresses."""
    return re.sub(r"\\(?:nolink)?url\b|\\(?:nolink)?url(?=http)", " ", text)


def _find_identifiers(text: str) -> Iterator[tuple[str, str | None]]:
    """Find the identifiers in a text that are addresses or have their names before them."""
    for found in _IDENTIFIER.finditer(text):
        if found["url"]:
            yield from zip(NORMALISE, identifiers_in_url(found["url"]), strict=True)
        else:
            kind = found["kind"].lower()
            yield kind, NORMALISE[kind](found["value"].rstrip(".,;"))


def _find_work(text: str) -> Citation:
    """Return the work that a reference names: "J Sleep. 2001;1:2. doi: 10.1/x. PMID: 3"."""
    names: dict[str, str] = {}
    for kind, value in _find_identifiers(text):
        if value:
            names.setdefault(kind, value)
    return Citation(doi=names.get("doi"), pmid=names.get("pmid"))


def _split_attachments(text: str) -> list[str]:
    """Split a field of attachments at ";", which may be part of the names of addresses."""
    return (_NEXT_FILE if text.lower().startswith("file:") else _SEMICOLON).split(text)


def _find_pdf(texts: Iterable[str]) -> str | None:
    """Return the path of the first PDF in fields of attachments.

    The name of an attachment, before its path, can end as the path does.
    """
    for each in (each for text in texts for each in _split_attachments(text)):
        if _FILE_ADDRESS.match(each.strip()):
            return unquote(_FILE_ADDRESS.sub("", each.strip()))
        if matches := list(_PDF.finditer(each)):
            path = re.sub(r"\\([:;\\])", r"\1", matches[-1][1])
            if "://" not in path:
                return path.strip()
    return None


# ---- formats -------------------------------------------------------------------------------------


def _more_of_ris(record: Fields) -> dict[str, Any]:
    databases = " ".join(record.get("DB", []) + record.get("DP", [])).lower()
    number = _first(record, "AN") or ""
    authors: list[str] = []
    for tag in record:
        if tag in ("AU", "A1"):
            known = set(authors)
            authors += [each for each in map(invert_initials, _split(record[tag])) if each not in known]
    from_pubmed = re.search("pubmed|nlm|medline", databases) and not re.search(
        "embase|cinahl|exclu|without", databases
    )
    return {
        "abstract": " ".join([*_all(record, "AB")] or _all(record, "N2")),
        "pmid": number.upper().removeprefix("PMID:").strip() if from_pubmed else None,
        "pmcid": next((text for text in record.get("C2", []) if text.startswith("PMC")), None),
        "addresses": [text for tag in _ADDRESSES for text in record.get(tag, [])],
        # Some programs begin each paragraph with its tag.
        "notes": ["\n".join(record.get(tag, [])) for tag in _NOTES],
        "authors": authors,
        "pages": page_range(_first(record, "SP"), _first(record, "EP")) or _first(record, "AR", "C7"),
        "article_type": " ".join(record.get("TY", [])).lower(),
        "work_types": record.get("M3", []),
        "keywords": [word.removeprefix("*") for word in _split(record.get("KW", []))],
        "file": _find_pdf(record.get("L1", [])),
        "retracted": "Retracted" in record.get("N1", []),  # as exports of this package say it
    }


def _more_of_nbib(record: Fields) -> dict[str, Any]:
    numbers = record.get("LID", []) + record.get("AID", [])
    kinds = record.get("PT", [])
    online = [date[:4] for date in _all(record, "DEP")]  # 20191130
    return {
        "title": without_marks(_first(record, "TI", "BTI")),
        "year": _find_earliest([*_all(record, "DP"), *online]) or _first(record, "DP"),
        # The DOI is marked as one, or an address (ERIC).
        "doi": next((each.removesuffix("[doi]") for each in numbers if each.endswith("[doi]")), None),
        "addresses": [each for each in numbers if each.startswith("http")],
        "authors": [*map(_with_suffix, record.get("FAU") or record.get("AU", [])), *record.get("CN", [])],
        "article_type": article_type(kinds) or ("research-article" if "Journal Articles" in kinds else None),
        "mesh": record.get("MH", []),
        "keywords": [word.removeprefix("*") for word in record.get("OT", [])],
        "retracted": bool(RETRACTED & set(kinds)) or not record.keys().isdisjoint(("RIN", "RRI")),
        "retracts": list(map(_find_work, record.get("ROF", []))),
    }


def _find_earliest(dates: Iterable[str | None]) -> str | None:
    """Return the first year, of paper or online, as in PubMed's XML."""
    years = [year for year in map(year_in, dates) if year]
    return str(min(years)) if years else None


def _with_suffix(name: str) -> str:
    """Set a comma before the suffix of a name of MEDLINE ("Hellinger, Frank R Jr")."""
    start, _, last = name.rpartition(" ")
    return f"{start}, {last}" if "," in start and is_suffix(last) else invert_initials(name)


# Columns of tables of papers, which users add.
_OF_TABLES = {
    "keywords", "tags", "domain", "include", "label", "subjects", "mesh", "topic", "abstract", "full_text",
}  # fmt: skip
_EPUB = re.compile(r"\bEpub (\d{4})\b")


def _more_of_pubmed(row: Fields) -> dict[str, Any]:
    listed = (_first(row, "identifiers") or "").split("|")
    named = dict(part.strip().split(":", 1) for part in listed if ":" in part)
    details = _first(row, "citation", "details") or ""
    place = _PLACE.search(details)
    short = _first(row, "shortdetails") or ""
    authors = (_first(row, "authors", "description") or "").rstrip(". ")
    stated = _first(row, "publication year")
    return {
        "title": without_marks(_first(row, "title")),
        "doi": _first(row, "doi") or find_doi(details),
        "pmid": _first(row, "pmid") or named.get("PMID") or _first(row, "entrezuid"),
        "pmcid": _first(row, "pmcid") or named.get("PMCID"),
        "authors": map(invert_initials, re.split(r"[,;] ", authors)),
        "year": _find_earliest([stated or short or details, *_EPUB.findall(details)]) or stated,
        "journal": _first(row, "journal/book") or short.partition(".  ")[0],
        **(place.groupdict() if place else {}),
    }


def _more_of_zotero(row: Fields) -> dict[str, Any] | None:
    if (_first(row, "item type") or "").lower() in ("attachment", "note", "annotation"):
        return None
    return {
        "entry": _first(row, "key"),
        "file": _find_pdf(row.get("file attachments", [])),
        "addresses": row.get("url", []),
        "extra": row.get("extra", []),
        "authors": map(invert_initials, _split(row.get("author", []), ";")),
        "keywords": _split([*row.get("manual tags", []), *row.get("automatic tags", [])], ";"),
    }


def _more_of_bibtex(entry: Fields) -> dict[str, Any]:
    # `groups` are the collections of JabRef and, exported for it, of Better BibTeX.
    words = [
        each for name in ("keywords", "keyword", "author_keywords", "groups") for each in entry.get(name, ())
    ]
    is_pubmed = (_first(entry, "eprinttype", "archiveprefix") or "").lower() in ("pubmed", "pmid")
    key = _first(entry, "key")
    return {
        "entry": key and f"@{key}",
        "file": _find_pdf(entry.get("file", [])),
        "title": ": ".join(filter(None, (_first(entry, "title"), _first(entry, "subtitle")))),
        "pmid": _first(entry, "pmid") or (_first(entry, "eprint") if is_pubmed else None),
        "addresses": [_first(entry, name) for name in ("url", "ee", "link")],
        "notes": [_first(entry, name) for name in ("note", "extra")],
        "authors": entry.get("author", []),
        "work_types": [*entry.get("type", []), *entry.get("document_type", [])],
        "retracted": any(note.split(";")[0] == "Retracted" for note in entry.get("note", [])),
        "keywords": [
            word
            for each in words
            for word in _split([each], ";" if ";" in each else "," if "," in each else r"\n")
        ],
    }


def _find_place(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return match.start() if match else None


def _find_header(text: str, columns: Sequence[Set[str]]) -> int | None:
    header = read_header(text)
    return 0 if any(header >= each for each in columns) else None


# Records of a format among those of another, where none begins inside a field.
_BEHIND = rf"(?:\A|^(?:[ \t]*|ER{GAP}-.*|.*\}}[ \t]*|SO  - .*(?:\r?\n {{6}}.*)*)\r?\n)"
_AMONG = {
    "ris": re.compile(rf"{_BEHIND}(?P<record>{_RIS_BEGINS.pattern})", re.MULTILINE),
    "nbib": re.compile(r"(?P<record>^PMID- \d+\s*\n(?:OWN|STAT))", re.MULTILINE),
    "bibtex": re.compile(rf"{_BEHIND}(?P<record>{BIBTEX_BEGINS.pattern})", re.MULTILINE),
}
EXPORTS = {
    "ris": Export(
        partial(_find_place, _RIS_BEGINS), partial(read_tagged, line_pattern=RIS_LINE), more=_more_of_ris,
        names={
            "title": "TI|T1|CT|ST", "doi": "DO", "year": "PY|Y1|DA", "volume": "VL",
            "issue": "IS", "journal": "JF|JO|T2|BT|JA|J2|J1", "language": "LA",
        }),
    "nbib": Export(
        partial(_find_place, _NBIB_BEGINS), partial(read_tagged, line_pattern=NBIB_LINE), more=_more_of_nbib,
        names={
            "abstract": "AB", "pmid": "PMID", "pmcid": "PMC", "volume": "VI", "issue": "IP",
            "pages": "PG", "journal": "JT|TA", "language": "LA",
        }),
    "pubmed-csv": Export(
        partial(_find_header, columns=(
            {"pmid", "title", "journal/book"}, {"title", "details", "identifiers", "entrezuid"})),
        read_csv, more=_more_of_pubmed, names={"abstract": "abstract"}),
    "zotero-csv": Export(
        partial(_find_header, columns=({"key", "item type", "title", "abstract note"},)),
        read_csv, more=_more_of_zotero, names={
            "title": "title", "abstract": "abstract note", "doi": "doi", "year": "publication year|date",
            "volume": "volume", "issue": "issue", "pages": "pages", "article_type": "item type",
            "journal": "publication title|proceedings title|conference name", "language": "language",
        }),
    "bibtex": Export(partial(_find_place, BIBTEX_BEGINS), read_bibtex, more=_more_of_bibtex, names={
        "abstract": "abstract", "doi": "doi", "pmcid": "pmcid|pmc", "year": "year|date", "volume": "volume",
        "issue": "number|issue", "pages": "pages|eid|articleno|article-number", "article_type": KIND,
        "journal": "journal|journaltitle|booktitle", "language": "language|langid",
    }),
}  # fmt: skip
"""Formats of exports by name."""


def find_export(text: str) -> str | None:
    """Return the name of the format of the first record in a text; None if it has none."""
    is_table = "title" in read_header(text)  # whose abstracts may quote a record
    readers = {name: each for name, each in EXPORTS.items() if each.read is read_csv or not is_table}
    places = {name: place for name, each in readers.items() if (place := each.begins(text)) is not None}
    return min(places, key=lambda name: places[name], default=None)


def _split_names(line: str) -> list[str]:
    """Return the identifiers in a line; the line itself if it has none."""
    names = re.split(r"[,;\s]+", line)
    return [name for name in names if name and any(parse_identifier(name))] or [line]


_WEB_OF_SCIENCE = re.compile(r"\ufeff?(?:FN .*\s+VR |PT\tAU\t)")


def read_listed_papers(text: str) -> list[Paper]:
    """Return the papers that a text lists, in a format of `EXPORTS`, or as an id or title per line.

    A record that cannot be read is one that is known by the reason alone.

    Raises:
        InputError: it is an export of Web of Science, in whose lines cited works would count too.
    """
    if _WEB_OF_SCIENCE.match(text):
        raise InputError("exports of Web of Science as text are not read: export them as RIS or BibTeX")
    if (name := find_export(text)) is None:
        names = [name for line in map(str.strip, text.splitlines()) if line for name in _split_names(line)]
        return [Paper(other=name, title=name) for name in names]
    papers, export = [], EXPORTS[name]
    for record in export.read(text):
        if isinstance(record, RecordError):
            if record.reason != UNDEFINED:
                papers.append(Paper(other=f"a record that cannot be read ({record})"))
            continue
        try:
            paper = export.to_paper(record)
        except RecordError:  # no title, but perhaps an identifier
            titled = export.to_paper(record | {"TI": ["?"], "title": ["?"]})
            paper = titled
            if isinstance(titled, Paper):
                paper = replace(titled, title=None, other="a record without a title")
        if isinstance(paper, Paper):  # else it is left out on purpose
            papers.append(paper)
    return papers
