"""Parse records of Europe PMC's search (`resultType=core` or `lite`) into papers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sentence_experts.corpus.formats.licences import licence_from_text
from sentence_experts.corpus.formats.markup import unique, without_tags
from sentence_experts.corpus.formats.references import year_in
from sentence_experts.corpus.identifiers import normalise_doi, normalise_pmcid, normalise_pmid
from sentence_experts.corpus.paper import Paper

_RESEARCH = {"journal article": "research-article", "review": "review-article", "preprint": "preprint"}


def is_record(record: Mapping[str, Any]) -> bool:
    """Whether a record looks like one of Europe PMC."""
    return "source" in record and "id" in record and ("title" in record or "firstIndexDate" in record)


def to_paper(record: Mapping[str, Any]) -> Paper:
    """A search result as a paper, without citations; one of `lite` has no abstract and no headings."""
    headings = (record.get("meshHeadingList") or {}).get("meshHeading") or []
    kinds = [str(kind).lower() for kind in (record.get("pubTypeList") or {}).get("pubType") or []]
    kinds = kinds or [kind.strip().lower() for kind in str(record.get("pubType") or "").split(";") if kind]
    journal = (record.get("journalInfo") or {}).get("journal") or {}
    return Paper(
        doi=normalise_doi(str(record.get("doi") or "")),
        pmid=normalise_pmid(str(record.get("pmid") or "")),
        pmcid=normalise_pmcid(str(record.get("pmcid") or "")),
        other=f"europepmc:{record.get('source')}/{record.get('id')}",
        title=without_tags(record.get("title")),
        abstract=without_tags(record.get("abstractText")),
        year=year_in(str(record.get("pubYear") or "")),
        article_type=next(
            (_RESEARCH[kind] for kind in kinds if kind in _RESEARCH), kinds[0] if kinds else None
        ),
        mesh=unique(_heading(heading) for heading in headings),
        keywords=unique(
            without_tags(word) for word in (record.get("keywordList") or {}).get("keyword") or []
        ),
        journal=without_tags(journal.get("title") or record.get("journalTitle")),
        licence=licence_from_text(str(record.get("license") or "")),
        retracted=any("retracted publication" in kind for kind in kinds),
    )


def _heading(heading: dict[str, Any]) -> str | None:
    name = without_tags(heading.get("descriptorName"))
    return f"*{name}" if name and heading.get("majorTopic_YN") == "Y" else name
