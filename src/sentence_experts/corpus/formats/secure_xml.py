"""Untrusted XML: parser settings, limits, and the names of errors.

Nothing outside the bytes is ever read: no DTD, no external entity, no network. libxml2's own limits (depth,
text size, entity amplification) stay on, so an entity bomb is an error like any other malformed file.
"""

from __future__ import annotations

import hashlib
import lzma
import zlib
from typing import IO, Any

from lxml import etree

WHOLE_DOCUMENT_BYTES = 16 << 20
"""Documents up to this size are parsed in one go; larger ones are streamed."""
MAX_RECORD_ELEMENTS = 200_000
"""Maximum number of elements per record of a streamed document."""
MAX_RECORD_BYTES = 64 << 20
"""Maximum number of bytes per record of a streamed document."""

# Not `collect_ids=False`: libxml2 stores it with "load the DTD" and would then request the DTD.
SECURE: dict[str, Any] = {
    "resolve_entities": "internal", "no_network": True, "load_dtd": False, "dtd_validation": False,
    "attribute_defaults": False, "huge_tree": False, "remove_comments": True, "remove_pis": True,
}  # fmt: skip
BROKEN_PACKING = (EOFError, lzma.LZMAError, zlib.error)
"""Errors of decompression on broken data, besides OSError."""


class UnreadableArticleError(Exception):
    """A document or article that cannot become a paper; `reason` is a short code for `rejected.jsonl`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Hashing:
    """A binary stream with the hash and the length of what was read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.hash = hashlib.sha256()
        self.length = 0

    def read(self, size: int = -1) -> bytes:
        """The next bytes of the stream, at most `size` of them."""
        data = self._stream.read(size)
        self.hash.update(data)
        self.length += len(data)
        return data


class RecordLimits:
    """Counts the elements and bytes of a streamed record and refuses one that would fill the memory."""

    def __init__(self, stream: Hashing) -> None:
        self._stream = stream
        self._elements = 0
        self._began = 0

    def begin(self) -> None:
        """Begin a record; what was counted before is no longer in memory."""
        self._elements, self._began = 0, self._stream.length

    def count(self, what: str) -> None:
        """Count one more element; UnreadableArticleError if it is one too many, or the record too long."""
        self._elements += 1
        if self._elements > MAX_RECORD_ELEMENTS:
            raise UnreadableArticleError(
                "too-large", f"{what} holds more than {MAX_RECORD_ELEMENTS:,} elements"
            )
        if self._stream.length - self._began > MAX_RECORD_BYTES:
            raise UnreadableArticleError("too-large", f"{what} takes more than {MAX_RECORD_BYTES:,} bytes")


def refuse_external_entities(docinfo: Any) -> None:
    """Raise UnreadableArticleError for a document whose own declarations point outside: an attack, or a
    document without part of its text."""
    dtd = docinfo.internalDTD
    for entity in dtd.iterentities() if dtd is not None else ():
        if entity.system_url:
            raise UnreadableArticleError(
                "external-entity", f"the entity {entity.name!r} names {entity.system_url!r}"
            )


def drop(node: Any, keep: Any = None) -> None:
    """Free an element that was read and those before it, except the element `keep`."""
    if keep is not None and keep.getparent() is node:
        for child in list(node):
            if child is not keep:
                node.remove(child)
        return
    node.clear()
    parent = node.getparent()
    while parent is not None and (before := node.getprevious()) is not None and before is not keep:
        parent.remove(before)


def syntax_error(error: etree.XMLSyntaxError) -> UnreadableArticleError:
    """A parser error with its reason code for `rejected.jsonl`."""
    message = " ".join(str(error.msg or error).split())[:300]
    low = message.lower()
    if "amplification" in low or "entity reference loop" in low or ("entities" in low and "loop" in low):
        return UnreadableArticleError("entity-bomb", message)
    if "entity" in low and "not defined" in low:
        return UnreadableArticleError("undefined-entity", f"{message}; nothing outside the document is read")
    if "document is empty" in low or "start tag expected" in low or "no element found" in low:
        return UnreadableArticleError("not-xml", message)
    if "encod" in low or "utf-8" in low or "utf-16" in low:
        return UnreadableArticleError("encoding", message)
    return UnreadableArticleError("malformed-xml", message)
