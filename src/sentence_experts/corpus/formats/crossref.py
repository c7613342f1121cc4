"""Parse works of Crossref, from its API or public data file, into papers with their reference lists.

Source: "Crossref REST API", schema of a work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sentence_experts.corpus.formats.authors import join_name
from sentence_experts.corpus.formats.json_values import items, mappings, text
from sentence_experts.corpus.formats.licences import licence_from_text
from sentence_experts.corpus.formats.markup import unique, without_tags
from sentence_experts.corpus.formats.record_filter import RecordError
from sentence_experts.corpus.formats.references import SHOWN, year_in
from sentence_experts.corpus.identifiers import find_doi, normalise_doi
from sentence_experts.corpus.paper import Citation, Paper

_ARTICLE_TYPES = {"journal-article": "research-article", "posted-content": "preprint"}
_NOTICES = frozenset({
    "correction", "erratum", "corrigendum", "addendum", "retraction", "withdrawal", "expression_of_concern",
})  # fmt: skip
_DATES = ("issued", "published", "published-print", "published-online", "created")
_HEADING = re.compile(r"\s*<jats:title>\s*abstract\s*</jats:title>", re.IGNORECASE)


def is_work(record: Mapping[str, Any]) -> bool:
    """Whether a record looks like a work of Crossref."""
    return "DOI" in record and ("reference-count" in record or "prefix" in record or "member" in record)


def to_paper(work: Mapping[str, Any]) -> Paper:
    """A work as a paper.

    Raises:
        RecordError: it has no DOI.
    """
    doi = normalise_doi(text(work.get("DOI")))
    if doi is None:
        raise RecordError("no-doi", f"the DOI is {str(work.get('DOI'))[:SHOWN]!r}")
    kind = text(work.get("type"))
    licences = [text(each.get("URL")) for each in mappings(work.get("license"))]
    changes = list(mappings(work.get("update-to")))
    updates = [each for each in changes if each.get("type") == "retraction"]
    # A notice is a journal article by its type.
    notice = next((text(each.get("type")) for each in changes if each.get("type") in _NOTICES), None)
    return Paper(
        doi=doi,
        title=_first(work.get("title")),
        abstract=without_tags(_HEADING.sub("", text(work.get("abstract")) or "", count=1)),
        year=next(filter(None, (_year(work.get(name)) for name in _DATES)), None),
        authors=tuple(filter(None, map(_author, mappings(work.get("author"))))),
        volume=text(work.get("volume")),
        issue=text(work.get("issue")),
        pages=text(work.get("page")) or text(work.get("article-number")),
        article_type=notice or _ARTICLE_TYPES.get(kind or "", kind),
        subjects=unique(map(text, items(work.get("subject")))),
        journal=_first(work.get("container-title")),
        licence=next(filter(None, (licence_from_text(url) for url in licences if url)), None),
        language=text(work.get("language")),
        retracts=tuple(Citation(doi=normalise_doi(text(each.get("DOI")))) for each in updates),
        citations=tuple(map(_citation, mappings(work.get("reference")))),
    )


def _author(author: Mapping[str, Any]) -> str | None:
    family, given, suffix = (without_tags(text(author.get(name))) for name in ("family", "given", "suffix"))
    particle = without_tags(text(author.get("non-dropping-particle")))
    whole = " ".join(filter(None, (particle, family)))
    return join_name(whole, given, suffix) or without_tags(text(author.get("name") or author.get("literal")))


def _citation(reference: Mapping[str, Any]) -> Citation:
    stated = text(reference.get("DOI"))
    unstructured = text(reference.get("unstructured"))
    doi = normalise_doi(stated) or (find_doi(unstructured) if unstructured else None)
    title = reference.get("article-title") or reference.get("volume-title")
    return Citation(
        doi=doi,
        title=without_tags(text(title)),
        year=year_in(text(reference.get("year"))),
        unreadable_doi=stated[:SHOWN] if stated and doi is None else None,
    )


def _year(date: Any) -> int | None:
    parts = date.get("date-parts") if isinstance(date, dict) else None
    first = parts[0] if isinstance(parts, list) and parts and isinstance(parts[0], list) else [None]
    return year_in(str(first[0])) if first else None


def _first(texts: Any) -> str | None:
    """The first text of a list; content negotiation gives the text itself."""
    texts = [texts] if isinstance(texts, str) else items(texts)
    return next(filter(None, (without_tags(text(each)) for each in texts)), None)
