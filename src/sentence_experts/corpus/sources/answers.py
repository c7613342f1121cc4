"""The shapes that answers of services must have before they enter the journal.

An answer of another shape (an error body under status 200, a page of a proxy) is a failed attempt. A record
of another shape is set aside by name, and the others of its answer are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from lxml import etree
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from sentence_experts.corpus.formats.markup import Element

Shape = TypeVar("Shape", bound=BaseModel)
_SHOWN = 100
_COUNT = re.compile(r"[0-9]{1,15}")


def json_value(body: bytes) -> Any:
    """The JSON value of a body.

    Raises:
        ValueError: not JSON, nested too deep, or a text with half of a surrogate pair.
    """
    try:
        value = json.loads(body)
        if b"\\u" in body:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("JSON with half of a surrogate pair") from error
    except (ValueError, RecursionError) as error:
        raise ValueError("not JSON") from error
    return value


def xml_root(body: bytes) -> Element:
    """The root element of a body; nothing outside is read.

    Raises:
        ValueError: not well-formed XML.
    """
    try:
        return etree.fromstring(
            body, etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
        )
    except etree.XMLSyntaxError as error:
        raise ValueError(f"broken XML ({' '.join(str(error.msg).split())})") from error


def shaped(shape: type[Shape], value: Any) -> Shape:
    """A JSON value (or the body that holds it) as `shape`.

    Raises:
        ValueError: it has another shape; names the field.
    """
    try:
        return shape.model_validate(json_value(value) if isinstance(value, bytes) else value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        got = repr(first["input"])[:_SHOWN]
        message = f"{first['msg'].removeprefix('Value error, ')} (got {got})"
        raise ValueError(f"of another shape: {f'{where}: ' if where else ''}{message}") from error


def fits(shape: type[BaseModel]) -> Callable[[bytes], None]:
    """A check of bodies: ValueError unless one has this shape."""

    def check(body: bytes) -> None:
        shaped(shape, body)

    return check


def has_root(*tags: str) -> Callable[[bytes], None]:
    """A check of bodies: ValueError unless one is XML with such a root element, or names an error."""

    def check(body: bytes) -> None:
        root = xml_root(body)
        if etree.QName(root).localname not in tags and root.find(".//ERROR") is None:
            raise ValueError(f"<{root.tag}> instead of <{tags[0]}>: {' '.join(root.itertext())[:_SHOWN]}")

    return check


def is_search_result(body: bytes) -> None:
    """Raise ValueError unless a body is an answer of esearch with a count, or names an error."""
    has_root("eSearchResult")(body)
    root = xml_root(body)
    if root.find(".//ERROR") is None:
        count_of(root)


def count_of(search: Element) -> int:
    """The number of records that an answer of esearch states.

    Raises:
        ValueError: none, or no number.
    """
    stated = search.findtext("Count") or ""
    if not _COUNT.fullmatch(stated):
        raise ValueError(f"a search with the count {stated[:_SHOWN]!r}")
    return int(stated)


def name_in(record: Any, *fields: str) -> str | None:
    """What a record of the wrong shape calls itself in some fields, for messages; None if it does not."""
    values = [record.get(field) for field in fields] if isinstance(record, dict) else []
    named = "/".join(str(value)[:_SHOWN] for value in values if isinstance(value, str | int))
    return "".join(letter for letter in named if letter.isprintable()) or None


# ---- parts of shapes -----------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """A whole number as text; anything else as it is."""
    return str(value) if type(value) is int and abs(value) < 10**15 else value


def _listed(value: Any) -> Any:
    """Nothing as an empty list; iCite's older form, one text with spaces between the numbers, as a list."""
    return [] if value is None else value.split() if isinstance(value, str) else value


Number = Annotated[str, BeforeValidator(_plain), StringConstraints(pattern=r"^[1-9][0-9]{0,14}$")]
"""A PMID, or the digits of another id."""
_Numbers = Annotated[list[Number], BeforeValidator(_listed)]
_Text = Annotated[str | None, BeforeValidator(_plain)]
_Count = Annotated[int, Field(ge=0, lt=10**15)]


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True)


# ---- the services --------------------------------------------------------------------------------


class CitationAnswer(_Shape):
    """An answer of iCite."""

    data: list[Any]


class CitationRecord(_Shape):
    """Who cites a paper and whom it cites, by iCite."""

    pmid: Number
    cited_by: _Numbers
    references: _Numbers


class StoredCitations(_Shape):
    """The same in the journal."""

    cited_by: _Numbers
    references: _Numbers


class ConvertedAnswer(_Shape):
    """An answer of PMC's ID converter."""

    records: list[Any]


class ConvertedRecord(_Shape):
    """One paper of it; a paper that PMC does not know has one id, or none."""

    pmid: _Text = None
    pmcid: _Text = None


class ArticleMetadata(_Shape):
    """The metadata of an article in PMC's bucket."""

    model_config = ConfigDict(frozen=True, extra="allow")

    license_code: str | None = None
    is_retracted: bool | str | int | None = None
    pmid: _Text = None
    xml_url: str | None = None


class StoredVersion(_Shape):
    """A version of an article in the journal."""

    name: Annotated[str, StringConstraints(pattern=r"^PMC[0-9]{1,15}\.[0-9]{1,6}$")]
    metadata: ArticleMetadata


class _EuropePmc(_Shape):
    model_config = ConfigDict(alias_generator=to_camel)


class _Results(_EuropePmc):
    result: list[Any] = []


class SearchPage(_EuropePmc):
    """A page of a search in Europe PMC."""

    hit_count: _Count
    next_cursor_mark: str | None = None
    result_list: _Results = _Results()


class StoredPage(_Shape):
    """The same in the journal."""

    ids: list[str]
    next: str | None = None


class _Mesh(_EuropePmc):
    descriptor_name: _Text = None
    major_topic: Annotated[_Text, Field(alias="majorTopic_YN")] = None


class _MeshList(_EuropePmc):
    mesh_heading: list[_Mesh] | None = None


class _Keywords(_EuropePmc):
    keyword: list[_Text] | None = None


class _Kinds(_EuropePmc):
    pub_type: list[_Text] | None = None


class _Journal(_EuropePmc):
    title: _Text = None


class _JournalInfo(_EuropePmc):
    journal: _Journal | None = None


class EuropePmcRecord(_EuropePmc):
    """A paper in Europe PMC; its names become part of addresses."""

    source: Annotated[str, StringConstraints(pattern=r"^[A-Za-z]{2,8}$")]
    id: Annotated[str, BeforeValidator(_plain), StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,60}$")]
    doi: _Text = None
    pmid: _Text = None
    pmcid: _Text = None
    title: _Text = None
    abstract_text: _Text = None
    pub_year: _Text = None
    license: _Text = None
    mesh_heading_list: _MeshList | None = None
    keyword_list: _Keywords | None = None
    pub_type_list: _Kinds | None = None
    journal_info: _JournalInfo | None = None


class _OpenAlexMeta(_Shape):
    count: _Count
    next_cursor: str | None = None


class OpenAlexPage(_Shape):
    """A page of works of OpenAlex."""

    meta: _OpenAlexMeta
    results: list[Any]


class OpenAlexRecord(_Shape):
    """A work of OpenAlex; its other fields may be of any type."""

    id: Annotated[str, StringConstraints(pattern=r"^https://openalex\.org/W[1-9][0-9]{0,14}$")]


class LinkedWork(_EuropePmc):
    """A work that a paper in Europe PMC cites or that cites it."""

    source: _Text = None
    id: _Text = None
    doi: _Text = None


class _References(_EuropePmc):
    reference: list[Any] = []


class _Citations(_EuropePmc):
    citation: list[Any] = []


class LinkPage(_EuropePmc):
    """A page of the references or citations of a paper in Europe PMC."""

    hit_count: _Count
    reference_list: _References | None = None
    citation_list: _Citations | None = None

    def items(self, relation: str) -> list[Any]:
        """The works on the page of a relation, `references` or `citations`."""
        if relation == "references":
            return self.reference_list.reference if self.reference_list else []
        return self.citation_list.citation if self.citation_list else []
