"""Read the reference list of a JATS article into citations.

A reference is one bibliographic citation element (`element-citation`, `mixed-citation`, `nlm-citation`,
`citation`) inside a `ref`. Several of them in one `ref` are several references; the renderings inside
`citation-alternatives` are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from sentence_experts.corpus.formats.markup import XLINK, Element, plain_text
from sentence_experts.corpus.identifiers import NORMALISE, find_doi, identifiers_in_url
from sentence_experts.corpus.paper import Citation

_CITATION_TAGS = ("element-citation", "mixed-citation", "nlm-citation", "citation")
_KINDS = frozenset((*_CITATION_TAGS, "citation-alternatives"))
_YEAR = re.compile(r"(?<!\d)(1[5-9]\d\d|20\d\d)(?!\d)")
_YEARS = frozenset(map(str, range(1500, 2100)))
_OTHER_NAMES = {"pubmed": "pmid", "medline": "pmid", "pmc": "pmcid"}
SHOWN = 80  # characters of a DOI that cannot be read
_TYPED = ("pub-id-type", "object-id-type", "article-id-type")


def year_in(text: str | None) -> int | None:
    """Return the first plausible year (1500-2099) in a text such as `2010a`."""
    if not text:
        return None
    if len(text) == 4 and text in _YEARS:  # as nearly all are
        return int(text)
    match = _YEAR.search(text)
    return int(match.group()) if match else None


def page_range(first: str | None, last: str | None) -> str | None:
    """Join first and last page; the first one may be a range, or the number of an article."""
    if not first or not last or first == last or re.search(r"[-–—]", first):
        return first or last
    return f"{first}-{last}"


def citations_of(ref: Element) -> Iterator[Citation]:
    """Read the references in one `ref` element."""
    for child in ref:
        tag = child.tag
        if tag in _KINDS:
            yield _read_citation(
                [child] if tag != "citation-alternatives" else list(child.iter(*_CITATION_TAGS))
            )
        elif isinstance(tag, str) and tag != "label":
            for inner in child.iter(*_CITATION_TAGS):
                if next(inner.iterancestors(*_CITATION_TAGS), None) is None:
                    yield _read_citation([inner])


def _read_citation(renderings: Iterable[Element]) -> Citation:
    known: dict[str, Any] = {}
    for citation in renderings:
        titles: list[str] = []
        plain = citation.tag == "element-citation"
        for child in citation:
            tag = child.tag
            if tag == "pub-id":
                add_identifier(known, child.get("pub-id-type"), child)
            elif tag == "article-title":
                titles.append(plain_text(child) or "")
            elif tag == "year":
                if year := year_in(child.text) or year_in(child.get("iso-8601-date")):
                    known.setdefault("year", year)
            elif tag not in _NEVER_IDENTIFY:
                plain = False
        if title := " ".join(filter(None, titles)):
            known.setdefault("title", title)
        if not plain:
            _add_nested(known, citation)
    return citation_with(known)


def citation_with(known: dict[str, Any]) -> Citation:
    """Make the citation with these fields; a DOI that cannot be read counts only if there is no other."""
    if "doi" in known:
        known.pop("unreadable_doi", None)
    return Citation(**known)


# Elements of names and numbers: a citation of these alone has no further identifiers.
_NEVER_IDENTIFY = frozenset({
    "person-group", "source", "volume", "fpage", "lpage", "issue", "name", "publisher-name", "publisher-loc",
    "edition", "month", "day", "size", "elocation-id", "collab", "etal", "page-range", "label", "issn",
    "isbn",
})  # fmt: skip


def add_identifier(known: dict[str, Any], kind: str | None, node: Element) -> None:
    """Add the identifier in an element whose attributes name its kind; the first of a kind counts."""
    field = _OTHER_NAMES.get((kind or "").lower(), (kind or "").lower())
    if field in NORMALISE and field not in known:
        text = "".join(node.itertext()) if len(node) else node.text or ""
        if value := NORMALISE[field](text):
            known[field] = value
            if field == "doi":
                known.pop("unreadable_doi", None)
        elif field == "doi" and text.strip():
            known["unreadable_doi"] = " ".join(text.split())[:SHOWN]


def identifiers_of(nodes: Iterable[Element], attribute: str) -> dict[str, Any]:
    """Read the identifiers in elements that name their kind in an attribute; the first of a kind counts."""
    known: dict[str, Any] = {}
    for node in nodes:
        kind = node.get(attribute, "").lower()
        if kind != "medline":  # a number of the old MEDLINE, no PMID
            add_identifier(known, kind, node)
    return known


def _add_nested(known: dict[str, Any], citation: Element) -> None:
    """Add what a citation has outside its own `pub-id` children: deeper ids, links, ids in running text."""
    links: list[str] = []
    for node in citation.iter(
        "pub-id", "object-id", "article-id", "ext-link", "uri", "article-title", "year"
    ):
        tag = node.tag
        if tag == "article-title":
            if "title" not in known and (title := plain_text(node)):
                known["title"] = title
        elif tag == "year":
            if "year" not in known and (year := year_in(node.text)):
                known["year"] = year
        elif tag in ("ext-link", "uri"):
            add_identifier(known, node.get("ext-link-type"), node)
            links.extend(address for address in (node.get(XLINK), node.text) if address)
        else:
            add_identifier(known, next((node.get(name) for name in _TYPED if node.get(name)), None), node)
    for link in links:
        for field, value in zip(NORMALISE, identifiers_in_url(link), strict=True):
            if value:
                known.setdefault(field, value)
    if "doi" not in known and (doi := find_doi("".join(citation.itertext()))):
        known["doi"] = doi
