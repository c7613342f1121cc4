"""Semantic Scholar: rows of its datasets (papers, abstracts, paper-ids, citations), objects of its Graph API.

The datasets spell `corpusid` and `externalids`, the API `corpusId` and `externalIds`; ids are numbers or
texts. Source: "Semantic Scholar Academic Graph", schemas of the datasets and of the Graph API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sentence_experts.corpus.formats.authors import invert_name
from sentence_experts.corpus.formats.json_values import items, mapping, mappings, text
from sentence_experts.corpus.formats.markup import unique, without_tags
from sentence_experts.corpus.formats.record_filter import RecordError
from sentence_experts.corpus.formats.references import year_in
from sentence_experts.corpus.identifiers import (
    Identifiers,
    normalise_doi,
    normalise_pmcid,
    normalise_pmid,
    normalise_s2,
)
from sentence_experts.corpus.paper import Citation, Paper
from sentence_experts.storage import sha256_text

_ARTICLE_TYPES = {"journalarticle": "research-article", "review": "review-article"}
_PAPER = ("corpusid", "corpusId", "paperId", "citingcorpusid", "citingPaper", "citedPaper", "sha")


def is_record(record: Mapping[str, Any]) -> bool:
    """Whether a record looks like one of Semantic Scholar."""
    return any(name in record for name in _PAPER)


def is_edge(record: Mapping[str, Any]) -> bool:
    """Whether a record is a row of the dataset of citations."""
    return "citingcorpusid" in record


def is_summary(record: Mapping[str, Any]) -> bool:
    """Whether a record is a row of the dataset tldrs, whose texts a model wrote."""
    return "model" in record and "text" in record


def edge(record: Mapping[str, Any]) -> tuple[str, Citation, list[str]]:
    """The citing paper (`s2:...`), the cited one, and the contexts of a row of the dataset of citations.

    Raises:
        RecordError: one end is not known.
    """
    citing, cited = _number(record.get("citingcorpusid")), _number(record.get("citedcorpusid"))
    if citing is None or cited is None:
        raise RecordError("no-cited-work" if citing else "no-citing-paper")
    contexts = record.get("contexts")
    return f"s2:{citing}", Citation(s2=cited), list(_texts(contexts))


def to_paper(record: Mapping[str, Any]) -> tuple[Paper, bool]:
    """A paper, and whether the record is whole: rows of abstracts and of paper-ids only complete others.

    Raises:
        RecordError: neither identifier nor title.
    """
    if "content" in record:
        raise RecordError(
            "s2orc", "rows of the dataset s2orc are not read; take those of papers and citations"
        )
    if "sha" in record:
        sha, number = text(record["sha"]), _number(record.get("corpusid"))
        if number is None or not sha:
            raise RecordError("no-identifier", "a row of paper-ids without `sha` and `corpusid`")
        return Paper(s2=number, other=f"s2:{sha.lower()}"), False
    record = record.get("citingPaper") or record.get("citedPaper") or record
    if "citationcount" not in record and "abstract" in record and "openaccessinfo" in record:
        if _number(record.get("corpusid")) is None:
            raise RecordError("no-identifier", "an abstract without `corpusid`")
        ids = _ids(mapping(record["openaccessinfo"]).get("externalids"))
        paper = Paper(
            **ids._replace(s2=_number(record.get("corpusid")))._asdict(),
            abstract=without_tags(text(record["abstract"])),
        )
        return paper, False
    ids = _ids(_either(record, "externalIds"))
    number = _number(_either(record, "corpusId")) or ids.s2
    sha = _sha(record)
    title = without_tags(text(record.get("title")))
    if number is None and sha is None and not ids.name() and title is None:
        raise RecordError("no-identifier", "neither an identifier nor a title")
    # Papers that are not in Semantic Scholar itself have nothing but a title.
    content = f"file:{sha256_text(title or '', str(record.get('year')))[:16]}"
    kinds = [str(kind).lower() for kind in items(_either(record, "publicationTypes"))]
    journal = mapping(record.get("journal")).get("name") or record.get("venue")
    areas = [mapping(area).get("category") for area in items(_either(record, "s2FieldsOfStudy"))]
    areas += items(record.get("fieldsOfStudy"))
    licence = text(mapping(record.get("openAccessPdf")).get("license"))
    paper = Paper(
        **ids._replace(s2=number)._asdict(),
        other=f"s2:{sha}" if sha else None if ids.name() or number else content,
        title=title,
        abstract=without_tags(text(record.get("abstract"))),
        authors=tuple(
            invert_name((text(author.get("name")) or "").split())
            for author in mappings(record.get("authors"))
        ),
        year=year_in(str(record.get("year") or "")),
        volume=text(mapping(record.get("journal")).get("volume")),
        pages=text(mapping(record.get("journal")).get("pages")),
        article_type=next((_ARTICLE_TYPES[kind] for kind in kinds if kind in _ARTICLE_TYPES), None)
        or next(iter(kinds), None),
        subjects=unique(map(text, areas)),
        journal=without_tags(text(journal)),
        licence=licence,
        citations=tuple(
            _citation(each) for each in items(record.get("references")) if isinstance(each, dict)
        ),
    )
    return paper, True


def _citation(reference: Mapping[str, Any]) -> Citation:
    ids, sha = _ids(_either(reference, "externalIds")), _sha(reference)
    return Citation(
        **ids._replace(s2=_number(_either(reference, "corpusId")) or ids.s2)._asdict(),
        title=without_tags(text(reference.get("title"))),
        year=year_in(str(reference.get("year") or "")),
        other=f"s2:{sha}" if sha else None,
    )


def _ids(stated: Any) -> Identifiers:
    """External ids; their names may be in upper or lower case; MAG's numbers are those of OpenAlex."""
    named = {str(name).lower(): text(value) for name, value in mapping(stated).items()}
    mag = named.get("mag") or ""
    return Identifiers(
        doi=normalise_doi(named.get("doi")),
        pmid=normalise_pmid(named.get("pubmed")),
        pmcid=normalise_pmcid(named.get("pubmedcentral")),
        openalex=int(mag) if mag.isdecimal() and len(mag) < 16 else None,
        s2=normalise_s2(named.get("corpusid")),
    )


def _sha(record: Mapping[str, Any]) -> str | None:
    """The paper id of 40 hexadecimal digits, which the dataset of papers has in the address."""
    sha = text(record.get("paperId")) or (text(record.get("url")) or "").rpartition("/")[2]
    sha = (sha or "").lower()
    return sha if len(sha) == 40 and not set(sha) - set("0123456789abcdef") else None


def _either(record: Mapping[str, Any], name: str) -> Any:
    """A field as the API spells it, or as the datasets do."""
    value = record.get(name)
    return record.get(name.lower()) if value is None else value


def _number(value: Any) -> int | None:
    return normalise_s2(text(value))


def _texts(value: Any) -> Iterator[str]:
    """The texts of a list, however deep it nests."""
    if isinstance(value, str):
        yield value
    for each in items(value):
        yield from _texts(each)
