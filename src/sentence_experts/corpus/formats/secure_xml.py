"""XML that strangers wrote: how it is parsed, what is refused, and what an error is called.

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
"""Documents up to this size are parsed in one go; larger ones are streamed and dropped on the way."""
LARGEST_RECORD_ELEMENTS = 200_000
"""A streamed document may hold this many elements of one record in memory, and no more."""
LARGEST_RECORD_BYTES = 64 << 20
"""Nor may one record take more than this of the document."""

# Not `collect_ids=False`: libxml2 keeps that in the same word as "load the DTD" and would then ask for it.
SECURE: dict[str, Any] = {
    "resolve_entities": "internal", "no_network": True, "load_dtd": False, "dtd_validation": False,
    "attribute_defaults": False, "huge_tree": False, "remove_comments": True, "remove_pis": True,
}  # fmt: skip
BROKEN_PACKING = (EOFError, lzma.LZMAError, zlib.error)
"""What decompression says of broken data, beside OSError."""


class UnreadableArticleError(Exception):
    """A document or article that cannot become a paper; `reason` is a short code for `rejected.jsonl`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Hashing:
    """A binary stream that remembers the hash and the length of what was read."""

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
    """Counts what a streamed record holds and refuses one that would fill the memory."""

    def __init__(self, stream: Hashing) -> None:
        self._stream = stream
        self._elements = 0
        self._began = 0

    def begin(self) -> None:
        """A record begins; what was counted before is gone from memory."""
        self._elements, self._began = 0, self._stream.length

    def count(self, what: str) -> None:
        """One more element of the record.

        Raises:
            UnreadableArticleError: it is one too many, or the record is too long.
        """
        self._elements += 1
        if self._elements > LARGEST_RECORD_ELEMENTS:
            raise UnreadableArticleError(
                "too-large", f"{what} holds more than {LARGEST_RECORD_ELEMENTS:,} elements"
            )
        if self._stream.length - self._began > LARGEST_RECORD_BYTES:
            raise UnreadableArticleError(
                "too-large", f"{what} takes more than {LARGEST_RECORD_BYTES:,} bytes"
            )


def refuse_external_entities(docinfo: Any) -> None:
    """Refuse a document whose own declarations point outside: it is an attack or it lacks a part of its
    text.

    Raises:
        UnreadableArticleError: it declares an external entity.
    """
    dtd = docinfo.internalDTD
    if dtd is None:
        return
    for entity in dtd.iterentities():
        if entity.system_url:
            raise UnreadableArticleError(
                "external-entity", f"the entity {entity.name!r} names {entity.system_url!r}"
            )


def syntax_error(error: etree.XMLSyntaxError) -> UnreadableArticleError:
    """The parser's error under the name that `rejected.jsonl` gives it."""
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
