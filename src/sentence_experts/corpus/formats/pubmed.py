"""Parse PubMed's own XML into `Paper`: answers of efetch, the yearly baseline and its update files.

The elements are as in NLM's PubMed DTD (https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_250101.dtd). MeSH
headings are written as MEDLINE does, `Asthma/*drug therapy`: the descriptor's name, then its qualifiers, with
a star at the main topics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from sentence_experts.corpus.formats.authors import join_name
from sentence_experts.corpus.formats.languages import read_language
from sentence_experts.corpus.formats.markup import Element, clean, first_text, plain_text, unique
from sentence_experts.corpus.formats.references import (
    add_identifier,
    citation_with,
    identifiers_of,
    page_range,
    year_in,
)
from sentence_experts.corpus.identifiers import find_doi, normalise_pmid
from sentence_experts.corpus.paper import Citation, Deletion, Paper, RecordError

_DELETIONS = frozenset({"DeleteCitation", "DeleteDocument"})
RECORDS = frozenset({"PubmedArticle", "PubmedBookArticle"}) | _DELETIONS
"""Elements that are read as a whole."""
ROOTS = frozenset({"PubmedArticleSet", "PubmedBookArticleSet"})


def read_record(node: Element) -> list[Paper] | list[Deletion]:
    """Read one record, or the deletions in an element.

    Raises:
        RecordError: the record has no PMID.
    """
    if node.tag not in _DELETIONS:
        return [_read_paper(node)]
    entries = ((normalise_pmid(entry.text), entry) for entry in node.iterfind("PMID"))
    return [Deletion(pmid, _read_version(entry)) for pmid, entry in entries if pmid]


def _read_version(pmid: Element) -> int:
    stated = pmid.get("Version", "")
    return int(stated) if re.fullmatch(r"[1-9]\d{0,5}", stated, re.ASCII) else 1


def _read_paper(record: Element) -> Paper:
    book = record.tag == "PubmedBookArticle"
    main = record.find("BookDocument" if book else "MedlineCitation")
    pmid = main.find("PMID") if main is not None else None
    number = normalise_pmid(pmid.text) if pmid is not None else None
    if main is None or number is None:
        raise RecordError("no-pmid", "the PubMed record has no PMID")
    article = main if book else main.find("Article")
    article = main if article is None else article
    data = record.find("PubmedBookData" if book else "PubmedData")
    kinds = unique(plain_text(node) for node in article.iterfind(".//PublicationType"))
    uis = {node.get("UI") for node in article.iterfind(".//PublicationType")}
    related = main.findall("CommentsCorrectionsList/CommentsCorrections")
    withdrawn = [_read_related(node) for node in related if node.get("RefType") == "RetractionOf"]
    identifiers = _read_identifiers(article) | _read_identifiers(data)
    for node in article.iterfind("ELocationID[@EIdType='doi']"):
        if node.get("ValidYN") != "N":
            add_identifier(identifiers, "doi", node)
    if "doi" in identifiers:
        identifiers.pop("unreadable_doi", None)
    return Paper(
        **(identifiers | {"pmid": number}),
        title=next(filter(None, (without_marks(first_text(article, path)) for path in _TITLES)), None),
        abstract=_read_abstract(article),
        authors=tuple(filter(None, map(_read_author, _find_authors(article)))),
        year=_read_year(article, data),
        volume=first_text(article, "Journal/JournalIssue/Volume", "Book/Volume"),
        issue=first_text(article, "Journal/JournalIssue/Issue"),
        pages=first_text(article, "Pagination/MedlinePgn")
        or page_range(first_text(article, "Pagination/StartPage"), first_text(article, "Pagination/EndPage")),
        article_type=article_type(kinds, book),
        mesh=unique(_read_heading(node) for node in main.iterfind("MeshHeadingList/MeshHeading")),
        keywords=unique(
            (plain_text(node) or "").strip(",; ") for node in main.iterfind("KeywordList/Keyword")
        ),
        journal=first_text(article, *_JOURNALS),
        language=read_language(first_text(article, "Language")),
        retracted=bool(
            RETRACTED & {*kinds, *uis} or _RETRACTED_BY & {node.get("RefType") for node in related}
        ),
        retracts=tuple(dict.fromkeys(each for each in withdrawn if each.doi or each.pmid or each.pmcid)),
        citations=tuple(_read_citations(article if book else data, related)),
        version=_read_version(pmid),
        revised=_read_day(main.find("DateRevised")),
    )


def _read_day(date: Element | None) -> int | None:
    """Return a date as YYYYMMDD, if it is whole."""
    parts = "" if date is None else "-".join(date.findtext(name, "") for name in ("Year", "Month", "Day"))
    stated = re.fullmatch(r"(\d{4})-(\d\d?)-(\d\d?)", parts, re.ASCII)
    return None if stated is None else int("{}{:0>2}{:0>2}".format(*stated.groups()))


def _find_authors(article: Element) -> list[Element]:
    """Return the authors of an article or chapter; else those of the book, without editors."""
    lists = article.findall("AuthorList") or article.findall("Book/AuthorList")
    return [author for each in lists if each.get("Type") != "editors" for author in each.iterfind("Author")]


def _read_author(node: Element) -> str | None:
    if node.get("ValidYN") == "N":  # a misspelling, kept beside the right name
        return None
    given = first_text(node, "ForeName", "Initials")
    return first_text(node, "CollectiveName") or join_name(
        first_text(node, "LastName"), given, first_text(node, "Suffix")
    )


RETRACTED = frozenset({"Retracted Publication", "D016441"})
_RETRACTED_BY = frozenset({"RetractionIn", "RetractedandRepublishedIn"})
_JOURNALS = ("Journal/Title", "Journal/ISOAbbreviation", "Book/BookTitle")
_TITLES = ("ArticleTitle", "VernacularTitle", "Book/BookTitle")
# NLM's words for a missing title, and its mark behind a translated one.
_NO_TITLE = re.compile(r"\W*(?:not available|in process citation)\W*", re.I)
_TRANSLATED = re.compile(r"\s*\(author'?s transl\.?\)", re.I)
_CUT_ABSTRACT = re.compile(r"\s*\(ABSTRACT TRUNCATED[^()]*\)\s*$")
_NO_LABELS = frozenset({"UNLABELLED", "UNASSIGNED"})


def without_marks(title: str | None) -> str | None:
    """Remove NLM's own marks from a title: brackets around a translation, a full stop at the end.

    Returns None if it says that there is none.

    >>> without_marks("[Sleep in rats].")
    'Sleep in rats'
    """
    if not title or _NO_TITLE.fullmatch(title):
        return None
    text = _TRANSLATED.sub("", title)
    inner = text.removesuffix(".")
    if inner.startswith("[") and inner.endswith("]") and not re.search(r"[\[\]]", inner[1:-1]):
        text = inner[1:-1].strip()
    last = text.rpartition(" ")[2]
    # The full stop of "U.S.A." or "..." belongs to the word.
    return (text[:-1] if last.endswith(".") and last.count(".") == 1 else text) or None


def _read_abstract(article: Element) -> str | None:
    """Return the main abstract, with the labels of a structured one. `OtherAbstract` does not count."""
    parts = []
    for node in article.iterfind("Abstract/AbstractText"):
        text = plain_text(node)
        label = (clean(node.get("Label") or "") or "").rstrip(":.;,-–— ")
        if text:
            parts.append(f"{label}: {text}" if label and label.upper() not in _NO_LABELS else text)
    return clean(_CUT_ABSTRACT.sub("", " ".join(parts)))


def _read_year(article: Element, data: Element | None) -> int | None:
    """Return the first year of publication, on paper or online, else the year of PubMed's entry."""
    paths = ("Journal/JournalIssue/PubDate", "ArticleDate", "Book/PubDate", "ContributionDate")
    dates = [node for path in paths for node in article.iterfind(path)]
    years = [year_in(node.findtext("Year")) or year_in(node.findtext("MedlineDate")) for node in dates]
    if not any(years) and data is not None:
        years = [year_in(node.findtext("Year")) for node in data.iterfind("History/PubMedPubDate")]
    return min((year for year in years if year), default=None)


def _read_identifiers(holder: Element | None) -> dict[str, Any]:
    """Return the identifiers in an element's own list, not in lists of cited works."""
    return {} if holder is None else identifiers_of(holder.iterfind("ArticleIdList/ArticleId"), "IdType")


# JATS's article types and PubMed's publication types in lower case, the most specific first.
_ARTICLE_TYPES = {
    name: kind
    for kind, names in {
        "retraction": "retraction of publication|retraction notice", "correction": "published erratum",
        "expression-of-concern": "expression of concern", "preprint": "preprint",
        "systematic-review": "systematic review", "guideline": "practice guideline|guideline",
        "review-article": "review|scoping review", "case-report": "case reports", "editorial": "editorial",
        "letter": "letter", "news": "news|newspaper article", "article-commentary": "comment",
        "interview": "interview", "obituary": "obituary", "meeting-report": "congress",
        "data-paper": "dataset", "technical-report": "technical report", "oration": "lecture|address",
        "introduction": "introductory journal article",
        "research-article": "journal article|clinical trial|randomized controlled trial|observational study|"
        "comparative study|multicenter study|evaluation study|validation study|meta-analysis",
    }.items()
    for name in names.split("|")
}  # fmt: skip


def article_type(kinds: Iterable[str], book: bool = False) -> str | None:
    """Return JATS's name for the most specific of some of PubMed's publication types."""
    of_a_book = "chapter-article" if book else None
    stated = {kind.lower() for kind in kinds}
    return next((kind for name, kind in _ARTICLE_TYPES.items() if name in stated), of_a_book)


def _read_heading(node: Element) -> str | None:
    parts = ((plain_text(part), part) for part in node.iterchildren("DescriptorName", "QualifierName"))
    names = (f"*{name}" if name and part.get("MajorTopicYN") == "Y" else name for name, part in parts)
    return "/".join(unique(names)) if node.findtext("DescriptorName") else None


_YEAR = r"(1[5-9]\d\d|20\d\d)"
# "J Neurosci. 2001 Mar 15;21:676" or "Plein LM (2018) Opioids"; other four digits may be pages.
_CITED_YEARS = (
    re.compile(
        rf"(?<!\d){_YEAR}[a-z]?(?:\s[A-Z][a-z]{{2,8}}\.?(?:[-–/][A-Z][a-z]{{2,8}})?(?:\s\d\d?)?)?\s?;"
    ),
    re.compile(rf"\({_YEAR}[a-z]?\)"),
)
_ANY_YEAR = re.compile(rf"(?<!\d){_YEAR}(?!\d)")


def _find_year(text: str) -> int | None:
    for pattern in _CITED_YEARS:
        if match := pattern.search(text):
            return int(match.group(1))
    years = set(_ANY_YEAR.findall(text))
    return int(years.pop()) if len(years) == 1 else None


def _read_citations(holder: Element | None, related: Iterable[Element]) -> Iterator[Citation]:
    """Yield the works in the reference lists, then those that only NLM's older list has."""
    seen = set()
    for reference in holder.iterfind("ReferenceList//Reference") if holder is not None else ():
        # A `Citation` is a whole line of a bibliography, so it gives a year and perhaps a DOI, never a title.
        text = first_text(reference, "Citation") or ""
        known: dict[str, Any] = {"year": _find_year(text), **_read_identifiers(reference)}
        if "doi" not in known and (doi := find_doi(text)):
            known["doi"] = doi
        citation = citation_with(known)
        seen.add(citation.pmid)
        yield citation
    for node in related:
        if node.get("RefType") == "Cites" and (cited := _read_related(node)).pmid and cited.pmid not in seen:
            seen.add(cited.pmid)
            yield cited


def _read_related(node: Element) -> Citation:
    source = node.findtext("RefSource") or ""
    return Citation(doi=find_doi(source), pmid=normalise_pmid(node.findtext("PMID")), year=_find_year(source))
