"""Parse works of OpenAlex, from its snapshot or its API, into papers.

The abstract comes as an inverted index: a JSON string in old snapshots, a structure elsewhere. Identifiers
come as addresses, as numbers, or bare. Source: "Work object" in OpenAlex's documentation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain, repeat
from typing import Any

from sentence_experts.corpus.formats.authors import invert_name
from sentence_experts.corpus.formats.json_values import mapping, mappings, text
from sentence_experts.corpus.formats.licences import licence_from_text
from sentence_experts.corpus.formats.markup import unique, without_tags
from sentence_experts.corpus.formats.records import ALL, RecordError, RecordFilter, iso_day
from sentence_experts.corpus.formats.references import page_range, year_in
from sentence_experts.corpus.identifiers import (
    Identifiers,
    identifiers_in_url,
    normalise_doi,
    normalise_openalex,
    normalise_pmcid,
    normalise_pmid,
)
from sentence_experts.corpus.paper import Paper

FIELDS = (
    "id", "doi", "ids", "title", "display_name", "publication_year", "publication_date", "type", "language",
    "primary_location", "primary_topic", "mesh", "keywords", "is_retracted", "is_xpac", "referenced_works",
    "abstract_inverted_index", "updated_date", "authorships.author.display_name", "biblio",
)  # fmt: skip
"""What is read of a work."""
_ARTICLE_TYPES = {
    "article": "research-article",
    "journal-article": "research-article",
    "review": "review-article",
}


def is_work(record: Mapping[str, Any]) -> bool:
    """Whether a record looks like a work of OpenAlex."""
    ids = record.get("ids")
    named = [record.get("id"), *([ids.get("openalex")] if isinstance(ids, dict) else [])]
    return any(isinstance(one, str) and "openalex.org/W" in one for one in named)


def to_paper(work: Mapping[str, Any], chosen: RecordFilter = ALL, day: int = 0) -> Paper | str:
    """A work as a paper, or the reason why `chosen` leaves it out.

    `day` (YYYYMMDD) stands for a work that does not tell when it was updated.

    Raises:
        RecordError: no work of OpenAlex.
    """
    ids = mapping(work.get("ids"))
    number = normalise_openalex(text(work.get("id"))) or normalise_openalex(text(ids.get("openalex")))
    if number is None:
        raise RecordError("no-openalex-id", f"the id is {str(work.get('id'))[:60]!r}")
    if work.get("is_xpac") and not chosen.xpac:
        return "xpac"
    topic = mapping(work.get("primary_topic"))
    subfield, field = mapping(topic.get("subfield")), mapping(topic.get("field"))
    kind = text(work.get("type"))
    year = _year(work)
    named = Identifiers(
        doi=normalise_doi(text(work.get("doi")) or text(ids.get("doi"))),
        pmid=_pmid(text(ids.get("pmid"))),
        pmcid=_pmcid(text(ids.get("pmcid"))),
        openalex=number,
    )
    language = text(work.get("language"))
    if chosen.chooses and not chosen.admits(
        year=year,
        kinds=(kind, _ARTICLE_TYPES.get(kind or "", kind)),
        language=language,
        topics=(topic,),
        fields=(field, subfield),
        names=named.names(),
    ):
        return "filtered"
    place, biblio = mapping(work.get("primary_location")), mapping(work.get("biblio"))
    journal = mapping(place.get("source")).get("display_name") or mapping(work.get("host_venue")).get(
        "display_name"
    )
    return Paper(
        **named._asdict(),
        title=without_tags(text(work.get("title")) or text(work.get("display_name"))),
        abstract=without_tags(abstract_of(work.get("abstract_inverted_index"))),
        authors=tuple(map(_author, mappings(work.get("authorships")))),
        year=year,
        volume=text(biblio.get("volume")),
        issue=text(biblio.get("issue")),
        pages=page_range(text(biblio.get("first_page")), text(biblio.get("last_page"))),
        article_type=_ARTICLE_TYPES.get(kind or "", kind),
        mesh=unique(map(_heading, mappings(work.get("mesh")))),
        keywords=unique(
            without_tags(text(word.get("display_name") or word.get("keyword")))
            for word in mappings(work.get("keywords"))
        ),
        journal=without_tags(text(journal)),
        licence=_licence(text(place.get("license")) or ""),
        topic=text(topic.get("display_name")),
        subfield=text(subfield.get("display_name")),
        field=text(field.get("display_name")),
        language=language,
        retracted=work.get("is_retracted") is True,
        cites_openalex=_numbers(work.get("referenced_works"), number),
        version=iso_day(work.get("updated_date")) or day,
    )


def abstract_of(index: Any) -> str | None:
    """The text of an inverted index (word -> positions), or None.

    Positions may leave gaps, and words may hold white space.

    >>> abstract_of('{"IndexLength": 9, "InvertedIndex": {"rice": [0, 7], "grows": [2]}}')
    'rice grows rice'
    """
    if isinstance(index, str | bytes):
        try:
            index = json.loads(index)
        except (ValueError, RecursionError):
            return None
    if isinstance(index, list):  # a map of Parquet
        index = dict(pair for pair in index if isinstance(pair, tuple) and len(pair) == 2)
    if isinstance(index, dict) and isinstance(index.get("InvertedIndex"), dict):
        index = index["InvertedIndex"]
    if not isinstance(index, dict):
        return None
    if set(map(type, index.values())) == {list}:
        places = list(chain.from_iterable(index.values()))
        words = chain.from_iterable(map(repeat, index, map(len, index.values())))
        # As nearly all are; this takes half the time of sorting pairs.
        if set(map(type, places)) == {int}:
            word_at = dict(zip(places, words, strict=True))
            if len(word_at) == len(places):
                return " ".join(map(word_at.__getitem__, sorted(places)))
    placed = [
        (position, word)
        for word, positions in index.items()
        for position in (positions if isinstance(positions, list) else ())
        if type(position) is int
    ]
    placed.sort()
    return " ".join([word for _, word in placed]) or None


def _numbers(works: Any, own: int) -> tuple[int, ...]:
    """The distinct numbers of the works in a list, in its order, without the work itself."""
    numbers = []
    for work in works if isinstance(works, list) else ():
        digits = work.rpartition("W")[2] if isinstance(work, str) else ""
        if digits.isascii() and digits.isdigit() and 0 < len(digits) < 16:
            numbers.append(int(digits))
    return tuple(dict.fromkeys(number for number in numbers if number and number != own))


def _author(authorship: Mapping[str, Any]) -> str:
    return invert_name((text(mapping(authorship.get("author")).get("display_name")) or "").split())


def _pmid(value: str | None) -> str | None:
    return normalise_pmid(value) or (identifiers_in_url(value)[1] if value else None)


def _pmcid(value: str | None) -> str | None:
    return normalise_pmcid(value) or (identifiers_in_url(value)[2] if value else None)


def _year(work: Mapping[str, Any]) -> int | None:
    stated = work.get("publication_year") or work.get("publication_date")
    return year_in(str(stated)) if stated else None


def _heading(heading: Mapping[str, Any]) -> str | None:
    """A MeSH heading as PubMed has it: a star if it is a major topic, a qualifier behind a slash."""
    name, qualifier = text(heading.get("descriptor_name")), text(heading.get("qualifier_name"))
    if not name:
        return None
    return f"{'*' if heading.get('is_major_topic') else ''}{name}{f'/{qualifier}' if qualifier else ''}"


@lru_cache(maxsize=1024)
def _licence(stated: str) -> str | None:
    return licence_from_text(stated) or stated or None
