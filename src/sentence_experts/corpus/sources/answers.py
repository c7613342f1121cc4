"""The shapes that answers of services must have before they enter the journal.

An answer of another shape (an error body under status 200, a page of a proxy) is a failed attempt. A record
of another shape is set aside by name, and the others of its answer are kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from lxml import etree
from pydantic import BaseModel, ValidationError

from sentence_experts.corpus.formats.markup import Element

Shape = TypeVar("Shape", bound=BaseModel)
SHOWN = 100
"""Characters of an odd value that messages show."""


def json_value(body: bytes) -> Any:
    """Parse a JSON body.

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
    """Parse an XML body, without reading anything outside.

    Raises:
        ValueError: not well-formed XML.
    """
    try:
        return etree.fromstring(
            body, etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
        )
    except etree.XMLSyntaxError as error:
        raise ValueError(f"broken XML ({' '.join(str(error.msg).split())})") from error


def looks_like_xml(body: bytes) -> None:
    """Raise ValueError unless a body begins and ends like an XML document; it is not parsed."""
    start = body[:1000].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not start.startswith(b"<"):
        raise ValueError("not XML")
    if start.startswith((b"<!doctype html", b"<html")) or b"<html" in start:
        raise ValueError("a web page instead of XML")
    if not body.rstrip(b" \t\r\n\0").endswith(b">"):
        raise ValueError("truncated XML")


def shaped(shape: type[Shape], value: Any) -> Shape:
    """Return a JSON value (or the body that holds it) as `shape`.

    Raises:
        ValueError: it has another shape; names the field.
    """
    try:
        return shape.model_validate(json_value(value) if isinstance(value, bytes) else value)
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}: " for part in (".".join(map(str, first["loc"])),) if part)
        message = first["msg"].removeprefix("Value error, ")
        raise ValueError(
            f"of another shape: {where}{message} (got {repr(first['input'])[:SHOWN]})"
        ) from error


def fits(shape: type[BaseModel]) -> Callable[[bytes], None]:
    """Return a check of bodies: ValueError unless one has this shape."""

    def check(body: bytes) -> None:
        shaped(shape, body)

    return check


def has_root(tag: str) -> Callable[[bytes], None]:
    """Return a check of bodies: ValueError unless one is XML with such a root element, or names an error."""

    def check(body: bytes) -> None:
        root = xml_root(body)
        if etree.QName(root).localname != tag and root.find(".//ERROR") is None:
            raise ValueError(f"<{root.tag}> instead of <{tag}>: {' '.join(root.itertext())[:SHOWN]}")

    return check


def name_in(record: Any, field: str) -> str | None:
    """Return what a record of the wrong shape calls itself, for messages; None if it does not."""
    value = record.get(field) if isinstance(record, dict) else None
    named = str(value)[:SHOWN] if isinstance(value, str | int) else ""
    return "".join(letter for letter in named if letter.isprintable()) or None
