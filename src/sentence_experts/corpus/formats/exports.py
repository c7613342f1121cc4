"""What exports of reference managers and databases share: reading their text, and making it a paper."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from pathlib import Path

from sentence_experts.corpus.formats.archives import open_unpacked
from sentence_experts.corpus.formats.markup import unique, without_tags
from sentence_experts.corpus.formats.records import RecordError
from sentence_experts.corpus.formats.references import SHOWN, year_in
from sentence_experts.corpus.identifiers import (
    find_doi,
    identifiers_in_url,
    normalise_doi,
    normalise_pmcid,
    normalise_pmid,
)
from sentence_experts.corpus.paper import NOTICE_KINDS, Paper, kind_of_type
from sentence_experts.storage import sha256_text

MAX_EXPORT_BYTES = 1 << 30
_SNIFFED_BYTES = 1 << 16
_MARKS = ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"), (b"", "utf-8-sig"))
# A short DOI names a DOI that only doi.org knows.
_SHORT_DOI = re.compile(r"(?:https?://(?:dx\.)?doi\.org/|doi:)?\s*10/\S+", re.IGNORECASE)
_LABELLED = re.compile(r"\b(PMID|PMCID|DOI):\s*(\S+)", re.IGNORECASE)
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


def read_export(path: Path) -> str:
    """The text of a file in UTF-8 or, with a byte order mark, UTF-16; perhaps gzipped.

    Raises:
        RecordError: another encoding, or too large.
    """
    with open_unpacked(path) as file:
        data = file.read(MAX_EXPORT_BYTES + 1)
    if len(data) > MAX_EXPORT_BYTES:
        raise RecordError("too-large", f"more than {MAX_EXPORT_BYTES:,} bytes")
    encoding = next(encoding for mark, encoding in _MARKS if data.startswith(mark))
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise RecordError(
            "encoding", f"not UTF-{'16' if '16' in encoding else '8'} ({error.reason}): save it as UTF-8"
        ) from error


def beginning(path: Path) -> str:
    """The first characters of a file, for telling its format; bytes that are not text are left out."""
    try:
        with open_unpacked(path) as file:
            data = file.read(_SNIFFED_BYTES)
    except (OSError, EOFError):
        return ""
    encoding = next(encoding for mark, encoding in _MARKS if data.startswith(mark))
    return data.decode(encoding, errors="ignore")


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
    """A paper of the texts in an export.

    `addresses` and notes are searched for identifiers that have no field of their own. A paper without any
    identifier is known by a hash of its texts.

    Raises:
        RecordError: it has neither title nor abstract.
    """
    title, abstract, journal = without_tags(title), without_tags(abstract), without_tags(journal)
    if not title and not abstract:
        raise RecordError("no-text", "neither title nor abstract")
    identifiers = {"doi": normalise_doi(doi), "pmid": normalise_pmid(pmid), "pmcid": normalise_pmcid(pmcid)}
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


def _identifiers_in(text: str) -> Iterable[tuple[str, str | None]]:
    """Identifiers in an address or note: of doi.org, PubMed and PMC, or with their name before them."""
    readers = {"pmid": normalise_pmid, "pmcid": normalise_pmcid, "doi": normalise_doi}
    for match in _LABELLED.finditer(text):
        kind = match[1].lower()
        yield kind, readers[kind](match[2].rstrip(".,;"))
    _, pmid, pmcid = identifiers_in_url(text)
    # Other addresses may go on after the DOI that they hold ("/full").
    yield from (("doi", find_doi(text)), ("pmid", pmid), ("pmcid", pmcid))


def _language_code(language: str | None) -> str | None:
    low = (language or "").strip().lower().replace("_", "-").partition("-")[0]
    return _LANGUAGES.get(low, low if len(low) == 2 and low.isalpha() else None)
