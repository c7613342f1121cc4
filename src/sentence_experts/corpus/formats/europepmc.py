"""Parse records of Europe PMC's search (`resultType=core` or `lite`) into papers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sentence_experts.corpus.formats.authors import invert_initials, join_name
from sentence_experts.corpus.formats.json_values import mapping, mappings, text
from sentence_experts.corpus.formats.licences import licence_from_text
from sentence_experts.corpus.formats.markup import unique, without_tags
from sentence_experts.corpus.formats.pubmed import article_type
from sentence_experts.corpus.formats.references import year_in
from sentence_experts.corpus.identifiers import normalise_doi, normalise_pmcid, normalise_pmid
from sentence_experts.corpus.paper import Paper


def is_record(record: Mapping[str, Any]) -> bool:
    """Whether a record looks like one of Europe PMC."""
    return "source" in record and "id" in record and ("title" in record or "firstIndexDate" in record)


def to_paper(record: Mapping[str, Any]) -> Paper:
    """A search result as a paper, without citations; one of `lite` has no abstract and no headings."""
    headings = (record.get("meshHeadingList") or {}).get("meshHeading") or []
    kinds = [str(kind).lower() for kind in (record.get("pubTypeList") or {}).get("pubType") or []]
    kinds = kinds or [kind.strip().lower() for kind in str(record.get("pubType") or "").split(";") if kind]
    published = mapping(record.get("journalInfo"))
    journal = mapping(published.get("journal"))
    return Paper(
        doi=normalise_doi(str(record.get("doi") or "")),
        pmid=normalise_pmid(str(record.get("pmid") or "")),
        pmcid=normalise_pmcid(str(record.get("pmcid") or "")),
        other=f"europepmc:{record.get('source')}/{record.get('id')}",
        title=without_tags(record.get("title")),
        abstract=without_tags(record.get("abstractText")),
        authors=_authors(record),
        year=year_in(str(record.get("pubYear") or "")),
        volume=text(published.get("volume")) or text(record.get("journalVolume")),
        issue=text(published.get("issue")) or text(record.get("issue")),
        pages=text(record.get("pageInfo")),
        article_type=article_type(kinds) or next(iter(kinds), None),
        mesh=unique(_heading(heading) for heading in headings),
        keywords=unique(
            without_tags(word) for word in (record.get("keywordList") or {}).get("keyword") or []
        ),
        journal=without_tags(journal.get("title") or record.get("journalTitle")),
        licence=licence_from_text(str(record.get("license") or "")),
        retracted=any("retracted publication" in kind for kind in kinds),
    )


def _authors(record: Mapping[str, Any]) -> tuple[str, ...]:
    """The authors with their given names, or those of the one line that `lite` has."""
    listed = [
        join_name(text(each.get("lastName")), text(each.get("firstName")) or text(each.get("initials")))
        or text(each.get("collectiveName"))
        for each in mappings(mapping(record.get("authorList")).get("author"))
    ]
    line = (text(record.get("authorString")) or "").rstrip(".")
    return tuple(filter(None, listed)) or tuple(filter(None, map(invert_initials, line.split(", "))))


def _heading(heading: dict[str, Any]) -> str | None:
    name = without_tags(heading.get("descriptorName"))
    return f"*{name}" if name and heading.get("majorTopic_YN") == "Y" else name
