"""Parse works of OpenAlex, from its snapshot or its API, into papers.

The abstract comes as an inverted index: a JSON string in old snapshots, a structure elsewhere. Identifiers
come as addresses, as numbers, or bare. Sources: "Work object" in OpenAlex's documentation; the lists of works
that no longer exist in its snapshot: `deleted_ids.csv` (a column `work_id` or `id`), and files in
`merged_ids/works` (columns `merge_date`, `id`, `merge_into_id`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from sentence_experts.corpus.formats.authors import invert_name
from sentence_experts.corpus.formats.licences import licence_from_text
from sentence_experts.corpus.formats.markup import unique, without_tags
from sentence_experts.corpus.formats.records import RecordFilter, iso_day
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
from sentence_experts.errors import InputError

FIELDS = (
    "id", "doi", "ids", "title", "display_name", "publication_year", "publication_date", "type", "language",
    "primary_location", "primary_topic", "mesh", "keywords", "is_retracted", "is_xpac", "referenced_works",
    "abstract_inverted_index", "updated_date", "authorships.author.display_name", "biblio",
)  # fmt: skip
"""The fields that are read of a work."""
_ARTICLE_TYPES = {
    "article": "research-article",
    "journal-article": "research-article",
    "review": "review-article",
}
_DELETED = ("deleted_ids.csv", "deleted_ids.csv.gz")
_MERGED_FOLDER = "merged_ids"
_NUMBER = "try_cast(regexp_extract({}, '[Ww]?([0-9]+)$', 1) AS BIGINT)"
_NUMBER_OF_WORK = re.compile(r"(?:.*W)?0*([1-9]\d{0,14})", re.ASCII)
_ALL = RecordFilter()


def is_work(record: Mapping[str, Any]) -> bool:
    """Return whether a record looks like a work of OpenAlex."""
    ids = record.get("ids")
    named = [record.get("id"), *([ids.get("openalex")] if isinstance(ids, dict) else [])]
    return any(isinstance(one, str) and "openalex.org/W" in one for one in named)


def to_paper(work: Mapping[str, Any], chosen: RecordFilter = _ALL, day: int = 0) -> Paper | str:
    """Convert a work into a paper, or return the reason why `chosen` leaves it out.

    `day` (YYYYMMDD) stands for a work that does not tell when it was updated.

    Raises:
        RecordError: no work of OpenAlex.
    """
    ids = _mapping(work.get("ids"))
    number = normalise_openalex(_text(work.get("id"))) or normalise_openalex(_text(ids.get("openalex")))
    if number is None:
        raise RecordError("no-openalex-id", f"the id is {str(work.get('id'))[:60]!r}")
    if work.get("is_xpac") and not chosen.xpac:
        return "xpac"
    topic = _mapping(work.get("primary_topic"))
    subfield, field = _mapping(topic.get("subfield")), _mapping(topic.get("field"))
    stated, year = _text(work.get("type")), _year(work)
    kind = _ARTICLE_TYPES.get(stated or "", stated)
    pmid, pmcid = (_text(ids.get(name)) or "" for name in ("pmid", "pmcid"))
    named = Identifiers(
        doi=normalise_doi(_text(work.get("doi")) or _text(ids.get("doi"))),
        pmid=normalise_pmid(pmid) or identifiers_in_url(pmid)[1],
        pmcid=normalise_pmcid(pmcid) or identifiers_in_url(pmcid)[2],
        openalex=number,
    )
    language = _text(work.get("language"))
    if not chosen.admits(
        year=year,
        language=language,
        names=named.names(),
        types=(stated, kind),
        topics=_named(topic),
        fields=(*_named(field), *_named(subfield)),
    ):
        return "filtered"
    place, biblio = _mapping(work.get("primary_location")), _mapping(work.get("biblio"))
    venues = (_mapping(place.get("source")), _mapping(work.get("host_venue")))
    return Paper(
        **named._asdict(),
        title=without_tags(_text(work.get("title")) or _text(work.get("display_name"))),
        abstract=without_tags(abstract_of(work.get("abstract_inverted_index"))),
        authors=tuple(map(_author, _mappings(work.get("authorships")))),
        year=year,
        volume=_text(biblio.get("volume")),
        issue=_text(biblio.get("issue")),
        pages=page_range(_text(biblio.get("first_page")), _text(biblio.get("last_page"))),
        article_type=kind,
        mesh=unique(map(_heading, _mappings(work.get("mesh")))),
        keywords=unique(
            without_tags(_text(word.get("display_name") or word.get("keyword")))
            for word in _mappings(work.get("keywords"))
        ),
        journal=without_tags(_text(venues[0].get("display_name") or venues[1].get("display_name"))),
        licence=_licence(_text(place.get("license")) or ""),
        topic=_text(topic.get("display_name")),
        subfield=_text(subfield.get("display_name")),
        field=_text(field.get("display_name")),
        language=language,
        retracted=work.get("is_retracted") is True,
        cites_openalex=_numbers(work.get("referenced_works"), number),
        version=iso_day(work.get("updated_date")) or day,
    )


def abstract_of(index: Any) -> str | None:
    """Return the text of an inverted index (word -> positions), or None.

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
    index = _mapping(index)
    index = index.get("InvertedIndex") if isinstance(index.get("InvertedIndex"), dict) else index
    placed = [
        (position, word)
        for word, positions in index.items()
        if isinstance(positions, list)
        for position in positions
        if type(position) is int
    ]
    return " ".join([word for _, word in sorted(placed)]) or None


def _numbers(works: Any, own: int) -> tuple[int, ...]:
    """Return the distinct numbers of the works in a list, in its order, without the work itself."""
    texts = (work for work in works if isinstance(work, str)) if isinstance(works, list) else ()
    found = (_NUMBER_OF_WORK.fullmatch(text) for text in texts)
    numbers = dict.fromkeys(int(match[1]) for match in found if match)
    numbers.pop(own, None)
    return tuple(numbers)


def _author(authorship: Mapping[str, Any]) -> str:
    return invert_name((_text(_mapping(authorship.get("author")).get("display_name")) or "").split())


def _named(thing: Mapping[str, Any]) -> tuple[str | None, ...]:
    """Return the name of a topic or field, and its id without the address."""
    return _text(thing.get("display_name")), (_text(thing.get("id")) or "").rpartition("/")[2]


def _year(work: Mapping[str, Any]) -> int | None:
    stated = work.get("publication_year") or work.get("publication_date")
    return year_in(str(stated)) if stated else None


def _heading(heading: Mapping[str, Any]) -> str | None:
    """Return a MeSH heading as PubMed has it: a star if it is a major topic, a qualifier behind a slash."""
    name, qualifier = _text(heading.get("descriptor_name")), _text(heading.get("qualifier_name"))
    if not name:
        return None
    return f"{'*' if heading.get('is_major_topic') else ''}{name}{f'/{qualifier}' if qualifier else ''}"


@lru_cache(maxsize=1024)
def _licence(stated: str) -> str | None:
    return licence_from_text(stated) or stated or None


def _text(value: Any) -> str | None:
    """Return a text, or a whole number as one; None for anything else."""
    return value if isinstance(value, str) else str(value) if type(value) is int else None


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return an object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    """Return the objects in a list; none in anything else."""
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())


def list_kind(path: Path) -> str | None:
    """Return `deleted` or `merged` for a file that is such a list, by its name and folder."""
    if path.name in _DELETED:
        return "deleted"
    is_table = path.name.endswith((".csv", ".csv.gz"))
    return "merged" if is_table and _MERGED_FOLDER in path.parts[-3:-1] else None


@dataclass(frozen=True)
class RemovedWorks:
    """Works that no longer exist, by their numbers.

    Attributes:
        table: number of each work (ascending), and of the one that it was merged into or 0; shape (2, works).
    """

    table: np.ndarray

    def reason(self, number: int) -> str | None:
        """Return `deleted` or `merged` for a work that no longer exists."""
        numbers, successors = self.table
        place = int(np.searchsorted(numbers, number))
        if place == len(numbers) or numbers[place] != number:
            return None
        return "merged" if successors[place] else "deleted"

    def renumbered(self, cited: tuple[int, ...], own: int | None) -> tuple[int, ...]:
        """Replace the numbers of merged works among cited ones; each occurs once, the citing work never."""
        numbers, successors = self.table
        if not cited or not len(numbers):
            return cited
        places = np.minimum(np.searchsorted(numbers, cited), len(numbers) - 1)
        merged = (numbers[places] == cited) & (successors[places] > 0)
        now = np.where(merged, successors[places], cited).tolist()
        return tuple(dict.fromkeys(number for number in now if number != own))


# Chains of mergers are followed to their end; a circle has none, and its works stay.
_REMOVED = """
    WITH RECURSIVE chain AS (
        SELECT id, successor, 1 AS steps FROM merged
        UNION ALL SELECT chain.id, merged.successor, steps + 1
        FROM chain JOIN merged ON chain.successor = merged.id WHERE steps < 20
    ), ended AS (
        SELECT id, arg_max(successor, steps) AS successor FROM chain GROUP BY id HAVING max(steps) < 20
    ) FROM ended UNION ALL SELECT id, 0 FROM deleted ANTI JOIN ended USING (id) ORDER BY ALL
"""


def read_removed(lists: list[Path]) -> np.ndarray:
    """Read the lists into a table for `RemovedWorks`; a merged work is followed to the end of its chain.

    Raises:
        InputError: a list lacks its columns.
    """
    import duckdb

    with duckdb.connect() as database:
        for kind, columns in (("deleted", ("work_id|id",)), ("merged", ("id", "merge_into_id"))):
            files = [str(path) for path in lists if list_kind(path) == kind]
            numbers = (_NUMBER.format(f"columns('^({column})$')") for column in columns)
            names = ("id", "successor")[: len(columns)]
            read = ", ".join(f"{number} AS {name}" for number, name in zip(numbers, names, strict=True))
            table = "read_csv($1, header = true, all_varchar = true, union_by_name = true)"
            query = f"SELECT DISTINCT ON (id) * FROM (SELECT {read} FROM {table}) WHERE id > 0 ORDER BY ALL"
            try:
                if files:
                    database.execute(f"CREATE TABLE {kind} AS {query}", [files])
                else:
                    database.execute(f"CREATE TABLE {kind} (id BIGINT, successor BIGINT)")
            except duckdb.Error as error:
                named = " and ".join(column.partition("|")[0] for column in columns)
                reason = str(error).splitlines()[0]
                raise InputError(f"{files[0]}: not a list of works with {named}: {reason}") from error
        removed = database.sql(_REMOVED).fetchnumpy()
    return np.stack([np.asarray(column, np.int64) for column in removed.values()])
