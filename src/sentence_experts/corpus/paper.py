"""The records of a corpus: a paper, its citations, and what was set aside."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, NamedTuple

from sentence_experts.corpus.identifiers import Identifiers
from sentence_experts.storage import sha256_text

NOTICE_KINDS = frozenset({"correction", "retraction", "expression-of-concern", "editorial", "digest", "news"})
"""Values of the column `kind` of papers that are notices: left out of pairs, hidden in search."""
KINDS = NOTICE_KINDS | {"article", "review", "commentary", "letter"}
"""All values of the column `kind`."""
NOT_FETCHED = "not-fetched"
"""The reason of rejections that the next run requests again."""
# Article types of JATS, and what PubMed, OpenAlex and Zotero call the same; in lower case with hyphens.
_TYPES_OF_KIND = {
    "review": "review review-article systematic-review scoping-review meta-analysis",
    "correction": "correction erratum errata corrigendum corrigenda addendum published-erratum",
    "retraction": "retraction partial-retraction retraction-note retraction-notice retraction-of-publication "
    "withdrawal",
    "expression-of-concern": "expression-of-concern",
    "editorial": "editorial editorial-material introduction introductory-journal-article",
    "commentary": "article-commentary commentary comment discussion book-review product-review",
    "letter": "letter reply correspondence lettersandcomments",
    "digest": "digest in-brief",
    "news": "news newspaper-article newspaperarticle news-item announcement calendar obituary "
    "biographical-item interview books-received",
}
_KIND_OF_TYPE = {name: kind for kind, names in _TYPES_OF_KIND.items() for name in names.split()}
# "Smith", "van der Berg" or "Smith and Jones", but no "population stratification in Price".
_CAPITAL = r"(?-i:[a-z\d_'’.-]*[^\W\d_a-z])[\w'’.-]*"
_PARTICLE = (
    "van|von|vom|vander|de|der|den|des|del|della|dalla|dell['’]|di|du|da|la|le|lo|ter|ten|te|dos|do|el|al|af|av|bin|zu|zur|"
    "zum|st|['’]t|and|&|y|e"
)
_NAME = rf"(({_CAPITAL}|{_PARTICLE}) ){{0,6}}{_CAPITAL}"
# Titles that no research has: "Correction: ..." is one, "Correction of scoliosis" is not.
_KIND_OF_TITLE = {
    "correction": re.compile(
        r"\W*((author|publisher|editorial)('s)? )?(corrections?( to)?\s*[:‘’“'\"]|correction$|"
        rf"correction (for|to) {_NAME},? et al\b|correction to supporting information\b|"
        r"(erratum|errata|corrigend(um|a))\b|addendum(:| to\b|$))|.*: (erratum|corrigendum)\W*$", re.I),
    "retraction": re.compile(
        r"\W*((statement of )?retraction( note| notice| statement| of)?\s*(:|\.?$)|notice of removal\s*(:|$)|"
        rf"retraction (note|notice|statement) |retraction (for|of) {_NAME},? et al\b|"
        r"withdrawal notice( to)?\s*:|notice of (retraction|withdrawal|duplicate publication)\b)",
        re.I),
    "expression-of-concern": re.compile(r"\W*(editorial )?(note: )?expression of concern\b", re.I),
    "editorial": re.compile(r"\W*(guest )?editorial\s*(:|$)", re.I),
}  # fmt: skip
# As publishers mark them, "RETRACTED ARTICLE: ..." and "[Retracted] ...", and as Web of Science does,
# "... (Retracted article. See vol. 3, pg. 7, 2012)".
_MARK = (
    r"(retracted(?=\s*\.?[)\]]|\s+in:|/withdrawn\b|"
    r"((\s+\w+)?\s+(article|paper|chapter|publication|letter|manuscript))?\s*[:.;,–—-]?\s*(see|of vol)\b|"
    r"(\s+\w+)?\s+(article|paper|chapter|publication|letter|manuscript)\s*[])\[(.,:;–—-])|"
    r"(?-i:R)etracted\b(?!\s*(vs|versus|and|or|between)\b)(?=[^][()]{0,40}\b(19|20)\d\d\b|"
    r"\s+(by|at)\s+(the\s+)?(request|author|editor|journal|publisher)|\s+due\s+to\b))"
)
_RETRACTED_TITLE = re.compile(
    r"(\W|<\w+>)*(retracted|withdrawn|(?-i:REMOVED))( (article|paper|chapter))?(</\w+>)*(\s*[:\])–—]|\s+-)|"
    rf".*(\({_MARK}([^()]|\([^()]{{0,80}}\)){{0,300}}\)|\[{_MARK}[^\[\]]*\])\W*$", re.I)  # fmt: skip


def name_by_texts(fields: Mapping[str, Any], year: int | None) -> str:
    """Return the name of a work that has no identifier: a hash of its title, abstract, journal and year."""
    texts = (fields[name] or "" for name in ("title", "abstract", "journal"))
    return f"text:{sha256_text(*texts, str(year))[:16]}"


def clean_abstract(text: str | None) -> str | None:
    """Return an abstract; None for a note or a sign that there is none.

    >>> clean_abstract("[No abstract available]")  # as Scopus writes
    """
    return None if text and len(text) < 60 and _NO_ABSTRACT.fullmatch(text) else text


_NO_ABSTRACT = re.compile(
    r"\W*(no\W+abstract(\W+(is|was))?(\W+(available|provided))?|n\W?a|nan|none|null|"
    r"((an\W+|the\W+)?abstract(\W+(is|was))?\W+)?(not\W+|un)available)?\W*", re.I)  # fmt: skip


class Citation(NamedTuple):
    """One bibliographic reference of a paper. Identifiers are normalised (see `identifiers`), None if
    unknown."""

    # A tuple, as there are tens per paper and a frozen dataclass takes four times as long to make.

    doi: str | None = None
    pmid: str | None = None
    pmcid: str | None = None
    title: str | None = None
    year: int | None = None
    other: str | None = None
    """The user's own identifier, from tables."""
    openalex: int | None = None
    unreadable_doi: str | None = None
    """The text in the place of the DOI, if it is none."""


class Mention(NamedTuple):
    """One place in the text of a paper where it cites one of its references."""

    reference: int
    """Position in `Paper.citations`."""
    section: int
    """Number of the innermost section in the paper, from 1; 0 outside of sections."""
    section_title: str | None
    section_kind: str
    """introduction, methods, results, discussion or other."""
    paragraph: int
    """Number in the paper, counting paragraphs that cite."""
    sentence: int
    """Number in the paragraph."""
    bracket: int
    """Number in the paragraph of the group of citations, such as one bracket."""
    position: int
    """Number of characters of the paragraph before it."""


@dataclass(frozen=True, slots=True)
class Paper:
    """One article as its record has it, before identifiers are resolved over the corpus."""

    doi: str | None = None
    pmid: str | None = None
    pmcid: str | None = None
    other: str | None = None
    """The identifier if the work has no other: the user's own, or a hash of the content."""
    openalex: int | None = None
    title: str | None = None
    abstract: str | None = None
    authors: tuple[str, ...] = ()
    """The authors as "Family, Given" or "Family, Given, Suffix"; collective names as they are."""
    year: int | None = None
    volume: str | None = None
    issue: str | None = None
    pages: str | None = None
    article_type: str | None = None
    kind: str | None = None
    """The kind as an earlier import found it; None: as `kind_of` finds it."""
    subjects: tuple[str, ...] = ()
    mesh: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    organisms: tuple[str, ...] = ()
    """The research organisms that a journal names; they are among the keywords too."""
    journal: str | None = None
    licence: str | None = None
    topic: str | None = None
    """The primary topic by OpenAlex, within its subfield and field."""
    subfield: str | None = None
    field: str | None = None
    language: str | None = None
    """Two letters, such as `en`."""
    entry: str | None = None
    """The key in a reference manager: "@key" of BibTeX, or Zotero's own."""
    file: str | None = None
    """The path of the PDF in a reference manager."""
    retracted: bool = False
    retracts: tuple[Citation, ...] = ()
    """The papers that this one, a retraction notice, withdraws."""
    citations: tuple[Citation, ...] = ()
    cites_openalex: tuple[int, ...] = ()
    """References that are known by their number in OpenAlex alone; they come after `citations`."""
    mentions: tuple[Mention, ...] = ()
    has_body: bool = False
    """Whether the record has the article's text, where citations are mentioned."""
    body: tuple[tuple[str | None, str], ...] = ()
    """(title of the section, text) in reading order, where full texts are kept."""
    version: int | None = None
    """The version of a PubMed record, or the day of an OpenAlex record (YYYYMMDD); others have none."""
    unreadable: tuple[tuple[str, str], ...] = ()
    """(pmid, pmcid or year, text) where a record has another text in its place."""
    revised: int | None = None
    """The day on which a PubMed record was revised (YYYYMMDD)."""
    unreadable_doi: str | None = None
    """The text in the place of the DOI, if it is none."""

    def names(self) -> list[str]:
        """Return the names that a corpus may give the paper, best first."""
        own = [self.other] if self.other else []
        return Identifiers(self.doi, self.pmid, self.pmcid, self.openalex).names() + own


def kind_of_type(article_type: str | None) -> str:
    """Return the kind of the papers of a type, or several, as any program names them; "article" if unknown.

    >>> kind_of_type("Editorial Material; Early Access"), kind_of_type("Journal Article")
    ('editorial', 'article')
    """
    kinds = [_KIND_OF_TYPE.get(each.replace(" ", "-"), "article") for each in _split_types(article_type)]
    notices = (kind for kind in kinds if kind in NOTICE_KINDS)
    return next(notices, next((kind for kind in kinds if kind != "article"), "article"))


def kind_named(text: str | None) -> str | None:
    """Return the kind in a column `kind`, as any program fills it; None where the title may say more."""
    kind = text if text in KINDS else kind_of_type(text)
    if kind == "article":  # "Editorial comment", "Letter to the editor", but no "news article"
        first = _split_types(text)[0].partition(" ")[0]
        kind = first if first in ("editorial", "letter") else "correction" if first == "erratum" else kind
    return None if kind == "article" and text != "article" else kind


@lru_cache(1 << 12)  # there are few, of many rows
def is_misspelt_kind(text: str) -> bool:
    """Return whether a cell of a column `kind` is nearly the name of a kind.

    >>> is_misspelt_kind("Editoral"), is_misspelt_kind("Journal Article"), is_misspelt_kind("RCT")
    (True, False, False)
    """
    if kind_named(text) is not None:
        return False
    known = {*KINDS, *_KIND_OF_TYPE}
    types = [each.replace(" ", "-") for each in _split_types(text)]
    return not known & {*types} and any(get_close_matches(each, known, 1, 0.85) for each in types)


def kind_of(paper: Paper) -> str:
    """Return the kind of a paper by its type or, where that says nothing, by an unmistakable title.

    >>> kind_of(Paper(title="Correction: Roots of rice", article_type="research-article"))
    'correction'
    """
    if paper.kind:
        return paper.kind
    kind = kind_of_type(paper.article_type)
    if kind not in NOTICE_KINDS:
        title = paper.title or ""
        kind = next((name for name, begins in _KIND_OF_TITLE.items() if begins.match(title)), kind)
    return "retraction" if kind == "article" and paper.retracts else kind


_RETRACTED_TYPES = {
    *("retracted publication", "retracted article", "retracted paper", "retracted"),
    *("withdrawn publication", "withdrawn article", "withdrawn"),
}


def is_retracted(paper: Paper) -> bool:
    """Return whether its record or its title says that a paper was retracted.

    >>> is_retracted(Paper(title="RETRACTED ARTICLE: Roots of rice"))
    True
    """
    marked = paper.retracted or is_type_of_retracted(paper.article_type)
    return marked or _RETRACTED_TITLE.match(paper.title or "") is not None


def is_type_of_retracted(article_type: str | None) -> bool:
    """Return whether a type, or one of several, says that a paper was retracted.

    >>> is_type_of_retracted("Article; Retracted Publication"), is_type_of_retracted("Retraction")
    (True, False)
    """
    return not _RETRACTED_TYPES.isdisjoint(_split_types(article_type))


def _split_types(text: str | None) -> list[str]:
    """Return the types in a text, which may be a list as programs write it, in small letters and spaces."""
    parts = re.split(r"[;|,/()\[\]]", (text or "").lower())
    return [re.sub(r"[^a-z]+", " ", each).strip() for each in parts]


TELLING = (
    *("correct", "errat", "corrig", "addend", "retract"),
    *("withdraw", "remov", "concern", "editorial", "duplicate"),
)
"""Words, one of which is in every title that tells of a notice or retraction (`kind_of`, `is_retracted`)."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """A note in a PubMed update file that an earlier record was deleted."""

    pmid: str
    version: int = 1


@dataclass(frozen=True, slots=True)
class Rejection:
    """Something that could not become a paper or a citation, and why; or several of the same kind."""

    source: str
    member: str | None
    record: str | None
    reason: str
    detail: str = ""
    records: int = 1


class RecordError(Exception):
    """A record that cannot become a paper or a citation; `reason` is a short code for `rejected.jsonl`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
