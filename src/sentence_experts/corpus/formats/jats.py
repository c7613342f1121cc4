"""Parse JATS articles (and the older NLM DTD) in the dialects of PMC, PLOS and eLife."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from lxml import etree

from sentence_experts.corpus.formats.authors import invert_shown, join_name
from sentence_experts.corpus.formats.licences import licence_of
from sentence_experts.corpus.formats.markup import (
    XLINK,
    Element,
    clean,
    first_text,
    local_name,
    plain_text,
    unique,
)
from sentence_experts.corpus.formats.mentions import PARAGRAPHS, ArticleText, ReferenceList
from sentence_experts.corpus.formats.references import identifiers_of, page_range, year_in
from sentence_experts.corpus.identifiers import identifiers_in_url, normalise_pmcid, normalise_pmid
from sentence_experts.corpus.paper import Citation, Paper, RecordError

PARTS = frozenset({"sub-article", "response"})
"""Parts with their own front matter and references, which are left out: decision letters, translations."""
KEPT = PARTS | {"front", "ref"}
"""Elements that are read, or left out, as a whole."""
REGIONS = frozenset({"body", "app", "floats-group", "floats-wrap"})
"""Parts of an article whose text is read."""
_JOURNALS = ("journal-meta/journal-title-group/journal-title", "journal-meta/journal-title",
             "journal-meta/journal-id[@journal-id-type='nlm-ta']")  # fmt: skip
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


class Article:
    """One article while its elements are read, in their order.

    Attributes:
        element: element of the article.
        references: reference list of the article.
        regions: names of the `REGIONS` around the present place.
    """

    def __init__(self, element: Element, full_text: bool) -> None:
        self.element = element
        self.references = ReferenceList()
        self.regions: list[str] = []
        self._paper: Paper | None = None
        self._text = ArticleText(full_text)

    def add(self, node: Element) -> None:
        """Read an element that was kept. Its text is changed."""
        if node.tag == "front":
            self._paper = self._paper or _read_front(self.element, node)
        elif node.tag in PARAGRAPHS:
            self._text.add(node, "body" in self.regions)

    def paper(self) -> Paper:
        """Return the article as a paper.

        Raises:
            RecordError: it has no metadata.
        """
        if self._paper is None:
            raise RecordError("no-metadata", "the article has no front/article-meta")
        return replace(
            self._paper,
            citations=tuple(self.references.citations),
            mentions=self._text.mentions(self.references),
            has_body=self._text.has_body,
            body=self._text.body(),
        )


def remove_namespace(root: Element) -> None:
    """Remove the namespace of JATS elements that have one (OAI-PMH answers)."""
    for node in root.iter("{*}*") if root.tag.startswith("{") else ():
        if "jats" in node.tag.lower():
            node.tag = local_name(node)


def _read_front(article: Element, front: Element) -> Paper | None:
    """Read the paper of an article from its front matter; None without metadata.

    A hash of the front matter identifies an article without any identifier.
    """
    meta = front.find("article-meta")
    if meta is None:
        return None
    identifiers = identifiers_of(meta.iterfind("article-id"), "pub-id-type")
    if not identifiers.keys() - {"unreadable_doi"}:
        digest = hashlib.sha256(etree.tostring(front, with_tail=False)).hexdigest()
        identifiers["other"] = f"file:{digest[:24]}"
    title = _read_title(meta)
    kind = clean(article.get("article-type") or "")
    related = meta.findall("related-article") + front.findall("related-article")
    relations = {node.get("related-article-type") for node in related}
    return Paper(
        **identifiers,
        title=title,
        abstract=_read_abstract(meta, article.get(_LANGUAGE)),
        authors=tuple(filter(None, map(_read_author, meta.iterfind("contrib-group/contrib")))),
        year=_read_year(meta),
        volume=first_text(meta, "volume"),
        issue=first_text(meta, "issue"),
        pages=first_text(meta, "page-range")
        or page_range(first_text(meta, "fpage"), first_text(meta, "lpage"))
        or first_text(meta, "elocation-id"),
        article_type=kind,
        subjects=_read_subjects(meta),
        **_read_keywords(meta),
        journal=first_text(front, *_JOURNALS),
        licence=licence_of(meta.findall("permissions") or meta.findall("license")),
        retracted=bool(
            kind in ("retracted-article", "withdrawn-article")
            or relations & {"retraction-forward", "retracted-by"}
        ),
        retracts=_find_retracted(kind, related),
    )


def _read_title(meta: Element) -> str | None:
    group = meta.find("title-group")
    group = meta if group is None else group
    text, extra = first_text(group, "article-title"), first_text(group, "subtitle")
    if text and extra and extra.lower() not in text.lower():
        return f"{text}{' ' if text[-1] in ':?!.–—' else ': '}{extra}"
    return text


_NAMES = ("name", "name-alternatives/name", "string-name", "name-alternatives/string-name")
_COLLECTIVES = ("collab", "collab-alternatives/collab")
_NO_NAME = frozenset({"contrib-group", "xref", "fn", "aff", "address", "email", "ext-link"})


def _find_each(node: Element, paths: Iterable[str]) -> list[Element]:
    return [found for path in paths if (found := node.find(path)) is not None]


def _read_author(contrib: Element) -> str | None:
    """Return the name of an author; None for editors, translators, and members that a group is made of."""
    kind = (contrib.get("contrib-type") or "author").lower()
    if not kind.startswith(("author", "collab")) or "non-byline" in kind:
        return None
    for name in _find_each(contrib, _NAMES):
        if family := first_text(name, "surname"):
            return join_name(family, first_text(name, "given-names"), first_text(name, "suffix"))
        return invert_shown(plain_text(name) or "")
    for group in _find_each(contrib, _COLLECTIVES):
        # The name of a group, without the list of its members.
        parts = (("" if each.tag in _NO_NAME else plain_text(each) or "", each.tail or "") for each in group)
        return clean("".join([group.text or "", *chain.from_iterable(parts)]))
    return None


# Types of the abstract itself, best first; every other type is another text.
_MAIN_TYPES = ("", "abstract", "main", "normal", "full", "structured", "long", "longsummary", "summary")
_OTHER_ABSTRACTS = re.compile(
    r"(elife |plain[- ]language |lay |editor\S* |author\S* |web |non[- ]?technical )\s*"
    r"(digest|summary|abstract)"
    r"|digest|graphical|visual abstract|highlights|in brief|teaser|significance|key points|synopsis",
    re.I,
)
_ONLY_A_DOI = re.compile(r"(doi:?\s*)?(https?://)?(dx\.)?(doi\.org/)?10\.\d+/\S+", re.I)


def _read_abstract(meta: Element, language: str | None) -> str | None:
    candidates = []
    for order, node in enumerate(meta.iterfind("abstract")):
        kind = (node.get("abstract-type") or "").lower()
        if kind not in _MAIN_TYPES or _OTHER_ABSTRACTS.match(first_text(node, "title") or ""):
            continue
        own = (node.get(_LANGUAGE) or language or "en").lower()[:2]
        rank = 0 if own == (language or "en").lower()[:2] else 1 if own == "en" else 2
        candidates.append((_MAIN_TYPES.index(kind), rank, order, node))
    for *_, node in sorted(candidates, key=lambda candidate: candidate[:3]):
        if text := clean(" ".join(_read_section(node))) if len(node) else plain_text(node):
            return text
    return None


def _read_section(section: Element) -> Iterator[str]:
    """Yield the paragraphs of a section in order; the label of a subsection precedes its first one."""
    for child in section:
        tag = child.tag
        if tag == "sec":
            label = (first_text(child, "title") or "").rstrip(":.;,-–— ")
            parts = list(_read_section(child))
            if parts:
                yield f"{label}: {parts[0]}" if label else parts[0]
                yield from parts[1:]
        elif tag == "p":
            text = plain_text(child)
            if text and not _ONLY_A_DOI.fullmatch(text):
                yield text
        elif isinstance(tag, str) and tag in _ABSTRACT_BLOCKS and (text := plain_text(child)):
            yield text


_ABSTRACT_BLOCKS = frozenset({
    "list", "def-list", "disp-formula", "disp-quote", "boxed-text", "statement", "verse-group", "speech",
})  # fmt: skip


# Dates of archiving and of later events are not publication dates.
_LATER_DATES = frozenset(
    {"pmc-release", "nihms-submitted", "retraction", "retracted", "corrected", "ecorrected", "update"}
)


def _read_year(meta: Element) -> int | None:
    published: list[int] = []
    later: list[int] = []
    for date in meta.iterfind("pub-date"):
        stated = (date.findtext("year"), date.get("iso-8601-date"), "".join(date.itertext()))
        if year := next(filter(None, map(year_in, stated)), None):
            kinds = {date.get("pub-type"), date.get("date-type")}
            (later if kinds & _LATER_DATES else published).append(year)
    return min(published or later, default=None)


_CHANNELS = frozenset({
    "display-channel", "sub-display-channel", "overline", "leader", "hwp-journal-coll", "section",
    "article-type", "legacy-article-type", "editorial-class", "online-only", "featured",
    "category-oup-series", "toc-heading",
})  # fmt: skip
_KIND_OF_ARTICLE = re.compile(
    r"(?:original |full |regular |open |invited |mini-?|short |brief |rapid |research |scientific |data |"
    r"case |systematic |featured |methodology |technical |clinical )*"
    r"(?:articles?|research|papers?|reports?|reviews?|notes?|communications?|letters?|editorials?|corrections?|"
    r"correspondence|commentar(?:y|ies)|protocols?|erratum|corrigendum|perspectives?|opinions?|investigations?)",
    re.I,
)


def _read_subjects(meta: Element) -> tuple[str, ...]:
    """Return the topics of the article; its kind ("Research Article") only if there is nothing else."""
    topics: list[str | None] = []
    channels: list[str | None] = []
    for group in meta.iterfind("article-categories/subj-group"):
        kind = (group.get("subj-group-type") or "").lower()
        (channels if kind in _CHANNELS else topics).extend(plain_text(node) for node in group.iter("subject"))
    about = unique(text for text in topics if text and not _KIND_OF_ARTICLE.fullmatch(text))
    return about or unique(topics) or unique(channels)


def _read_keywords(meta: Element) -> dict[str, Any]:
    """Return MeSH headings, keywords, and keywords of groups such as `research-organism`."""
    found: dict[str, list[str | None]] = {"mesh": [], "keywords": [], "organisms": []}
    for group in meta.iterfind("kwd-group"):
        kind = " ".join(group.get(name, "") for name in ("kwd-group-type", "vocab", "content-type")).lower()
        is_mesh = "mesh" in kind.replace("-", "").split() or kind.strip().startswith("mesh")
        words = [_read_keyword(node) for node in group.iter("kwd", "compound-kwd")]
        if "abbreviation" not in kind:
            found["mesh" if is_mesh else "keywords"] += words
        if "organism" in group.get("kwd-group-type", "").lower():
            found["organisms"] += words
    return {name: unique(words) for name, words in found.items()}


def _read_keyword(node: Element) -> str | None:
    if node.tag == "compound-kwd":
        return " – ".join(unique(plain_text(part) for part in node.iter("compound-kwd-part"))) or None
    return (plain_text(node) or "").strip(",;") or None


def _find_retracted(kind: str | None, related: Iterable[Element]) -> tuple[Citation, ...]:
    retracted: list[Citation] = []
    for node in related:
        relation = node.get("related-article-type") or ""
        if relation == "retracted-article" or (
            kind == "retraction" and relation in ("", "article-reference")
        ):
            value = node.get(XLINK) or clean("".join(node.itertext())) or ""
            link = node.get("ext-link-type") or ""
            if link in ("pmid", "pubmed"):
                retracted.append(Citation(pmid=normalise_pmid(value)))
            elif link in ("pmc", "pmcid"):
                retracted.append(Citation(pmcid=normalise_pmcid(value)))
            else:
                retracted.append(Citation(*identifiers_in_url(value)))
    return tuple(each for each in dict.fromkeys(retracted) if each != Citation())
