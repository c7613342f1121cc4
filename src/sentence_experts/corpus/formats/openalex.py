"""Works of OpenAlex, from its snapshot or its API: read files of JSON, choose works, make papers.

The abstract comes as an inverted index: a JSON string in old snapshots, a structure elsewhere. Identifiers
come as addresses, as numbers, or bare. Source: "Work object" in OpenAlex's documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from sentence_experts.corpus.formats.archives import MAX_DOCUMENT_BYTES, open_unpacked
from sentence_experts.corpus.formats.authors import invert_shown
from sentence_experts.corpus.formats.licences import licence_from_text
from sentence_experts.corpus.formats.markup import unique, without_tags
from sentence_experts.corpus.formats.references import page_range, year_in
from sentence_experts.corpus.identifiers import (
    Identifiers,
    identifiers_in_url,
    normalise_doi,
    normalise_openalex,
    normalise_pmcid,
    normalise_pmid,
)
from sentence_experts.corpus.paper import Paper, RecordError

_FIELDS = (
    "id", "doi", "ids", "title", "display_name", "publication_year", "publication_date", "type", "language",
    "primary_location", "host_venue", "primary_topic", "mesh", "keywords", "is_retracted", "is_xpac",
    "referenced_works", "abstract_inverted_index", "updated_date", "biblio",
)  # fmt: skip
_ARTICLE_TYPES = {
    "article": "research-article",
    "journal-article": "research-article",
    "review": "review-article",
}
_NUMBER_OF_WORK = re.compile(r"(?:.*W)?0*([1-9]\d{0,14})", re.ASCII)
_DAY = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_BYTE_ORDER_MARK, _BLANK = b"\xef\xbb\xbf", b" \t\r\n\xef\xbb\xbf"

Raw = bytes | dict[str, Any]


def read_works(path: Path) -> Iterator[Raw | RecordError]:
    """Read the records of a file, in order: JSON lines that are not parsed yet (`parse_record`).

    A document that spans lines, or holds several records, is parsed.
    """
    with open_unpacked(path) as stream:
        lines = (line for line in iter(lambda: _read_limited(stream.readline), b"") if line.strip(_BLANK))
        first = next(lines, b"").removeprefix(_BYTE_ORDER_MARK)
        if not first:
            return
        try:
            yield from _list_records(_parse(first))
        except RecordError:
            if not first.lstrip().startswith((b"{", b"[")) or first.rstrip().endswith(b"}"):
                yield first
            else:
                yield from _list_records(_parse(first + _read_limited(stream.read)))
        yield from lines


def parse_record(raw: Raw) -> dict[str, Any]:
    """Parse the object of a record.

    Raises:
        RecordError: not a JSON object.
    """
    value = raw if isinstance(raw, dict) else _parse(raw)
    if not isinstance(value, dict):
        raise RecordError("not-a-record", f"a {type(value).__name__} instead of an object")
    return value


def _parse(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError("not-json", str(error)[:200]) from error


def _read_limited(read: Callable[[int], bytes]) -> bytes:
    data = read(MAX_DOCUMENT_BYTES)
    if len(data) == MAX_DOCUMENT_BYTES:
        raise RecordError("too-large", f"a line or document of over {MAX_DOCUMENT_BYTES:,} bytes")
    return data


def _list_records(value: Any) -> list[Raw | RecordError]:
    """Return the objects in a list or in an answer of the API; the null of an unknown id is not a record."""
    if isinstance(value, dict) and isinstance(value.get("results"), list):
        value = value["results"]
    records = value if isinstance(value, list) else [value]
    return [each if isinstance(each, dict) else orjson.dumps(each) for each in records if each is not None]


class RecordFilter(NamedTuple):
    """The records to keep, by OpenAlex field or subfield (names in any case, with `*` for any text, or ids),
    and by first and last year; empty for all."""

    fields: tuple[str, ...] = ()
    years: tuple[int, int] | None = None

    def admits(self, year: int | None, fields: Iterable[str | None]) -> bool:
        """Return whether a record of this year and these fields is kept."""
        if self.years and not (year is not None and self.years[0] <= year <= self.years[1]):
            return False
        return not self.fields or any(map(_make_pattern(self.fields).fullmatch, filter(None, fields)))


_ALL = RecordFilter()


@lru_cache(maxsize=16)
def _make_pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    each = (".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns)
    return re.compile("|".join(each), re.DOTALL | re.IGNORECASE)


def iso_day(value: Any) -> int | None:
    """Return the day that a text such as `2023-05-16T10:00` begins with, as the number YYYYMMDD.

    >>> iso_day("updated_date=2023-05-16/part_000.gz")
    20230516
    """
    match = _DAY.search(value) if isinstance(value, str) else None
    return int("".join(match.groups())) if match else None


def is_work(record: Mapping[str, Any]) -> bool:
    """Return whether a record looks like a work of OpenAlex."""
    return any("openalex.org/W" in (_read_text(record, path) or "") for path in ("id", "ids.openalex"))


def to_paper(work: Mapping[str, Any], chosen: RecordFilter = _ALL, day: int = 0) -> Paper | str:
    """Convert a work into a paper, or return the reason why `chosen` leaves it out.

    `day` (YYYYMMDD) stands for a work that does not tell when it was updated.

    Raises:
        RecordError: no work of OpenAlex.
    """
    text = partial(_read_text, work)
    number = normalise_openalex(text("id")) or normalise_openalex(text("ids.openalex"))
    if number is None:
        raise RecordError("no-openalex-id", f"the id is {str(work.get('id'))[:60]!r}")
    if work.get("is_xpac"):  # the extension pack, whose works lack most data
        return "xpac"
    stated = text("type")
    year = year_in(str(work.get("publication_year") or work.get("publication_date")))
    pmid, pmcid, doi = text("ids.pmid") or "", text("ids.pmcid") or "", text("doi") or text("ids.doi")
    named = Identifiers(
        doi=normalise_doi(doi),
        pmid=normalise_pmid(pmid) or identifiers_in_url(pmid)[1],
        pmcid=normalise_pmcid(pmcid) or identifiers_in_url(pmcid)[2],
        openalex=number,
    )
    topic, subfield, field = (
        (text(f"{path}.display_name"), (text(f"{path}.id") or "").rpartition("/")[2])
        for path in ("primary_topic", "primary_topic.subfield", "primary_topic.field")
    )
    if not chosen.admits(year, (*field, *subfield)):
        return "filtered"
    licence = text("primary_location.license") or ""
    keywords = (
        _read_text(word, "display_name") or _read_text(word, "keyword")
        for word in _list_objects(work.get("keywords"))
    )
    venue = text("primary_location.source.display_name") or text("host_venue.display_name")
    names = (_name_author(each) or "" for each in _list_objects(work.get("authorships")))
    return Paper(
        **named._asdict(),
        unreadable_doi=doi if named.doi is None else None,
        unreadable=tuple(
            (kind, value)
            for kind, value in (("pmid", pmid), ("pmcid", pmcid))
            if value and getattr(named, kind) is None
        ),
        title=without_tags(text("title") or text("display_name")),
        abstract=without_tags(abstract_of(work.get("abstract_inverted_index"))),
        authors=tuple(map(invert_shown, names)),
        year=year,
        volume=text("biblio.volume"),
        issue=text("biblio.issue"),
        pages=page_range(text("biblio.first_page"), text("biblio.last_page")),
        article_type=_ARTICLE_TYPES.get(stated or "", stated),
        mesh=unique(map(_make_heading, _list_objects(work.get("mesh")))),
        keywords=unique(map(without_tags, keywords)),
        journal=without_tags(venue),
        licence=licence_from_text(licence) or licence or None,
        topic=topic[0],
        subfield=subfield[0],
        field=field[0],
        language=text("language"),
        retracted=work.get("is_retracted") is True,
        cites_openalex=_read_numbers(work.get("referenced_works"), number),
        version=iso_day(work.get("updated_date")) or day or None,
    )


def drop_unread(work: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `to_paper` reads of a work, which is a quarter of it."""
    kept = {field: work[field] for field in _FIELDS if field in work}
    names = [_name_author(each) for each in _list_objects(work.get("authorships"))]
    return kept | {"authorships": [{"author": {"display_name": name}} for name in names]}


def _name_author(authorship: Any) -> str | None:
    """Return an author's name, or as the work states it where OpenAlex knows no author of that name."""
    return _read_text(authorship, "author.display_name") or _read_text(authorship, "raw_author_name")


def abstract_of(index: Any) -> str | None:
    """Return the text of an inverted index (word -> positions), or None.

    Positions may leave gaps, and words may hold white space.

    >>> abstract_of('{"IndexLength": 9, "InvertedIndex": {"rice": [0, 7], "grows": [2]}}')
    'rice grows rice'
    """
    if isinstance(index, str | bytes):
        try:
            index = orjson.loads(index)
        except (ValueError, RecursionError):
            return None
    if isinstance(index, dict) and isinstance(index.get("InvertedIndex"), dict):
        index = index["InvertedIndex"]
    if not isinstance(index, dict):
        return None
    placed = [
        (position, word)
        for word, positions in index.items()
        if isinstance(positions, list)
        for position in positions
        if type(position) is int
    ]
    return " ".join([word for _, word in sorted(placed)]) or None


def _read_numbers(works: Any, own: int) -> tuple[int, ...]:
    """Return the distinct numbers of the works in a list, in its order, without the work itself."""
    texts = (work for work in works if isinstance(work, str)) if isinstance(works, list) else ()
    found = (_NUMBER_OF_WORK.fullmatch(text) for text in texts)
    numbers = dict.fromkeys(int(match[1]) for match in found if match)
    numbers.pop(own, None)
    return tuple(numbers)


def _make_heading(heading: Mapping[str, Any]) -> str | None:
    """Return a MeSH heading as PubMed has it: a star if it is a major topic, a qualifier behind a slash."""
    name, qualifier = _read_text(heading, "descriptor_name"), _read_text(heading, "qualifier_name")
    if not name:
        return None
    return f"{'*' if heading.get('is_major_topic') else ''}{name}{f'/{qualifier}' if qualifier else ''}"


def _read_text(record: Any, path: str) -> str | None:
    """Return the text, or whole number as one, at a path such as `ids.pmid`; None for anything else."""
    for name in path.split("."):
        record = record.get(name) if isinstance(record, dict) else None
    return record if isinstance(record, str) else str(record) if type(record) is int else None


def _list_objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """Return the objects in a list; none in anything else."""
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())
