"""Gzipped files and documents (`pubmed26n0001.xml.gz`), decompressed while they are read."""

from __future__ import annotations

import gzip
import io
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

from sentence_experts.corpus.formats.secure_xml import (
    BROKEN_PACKING,
    WHOLE_DOCUMENT_BYTES,
    UnreadableArticleError,
)

MAX_UNPACKED = 1 << 30
"""Maximum number of bytes that may come out of one document."""
USUAL_EXPANSION = 10
"""Approximate ratio of the sizes of an XML document and its gzipped form."""

_BLOCK = 1 << 16


def open_unpacked(path: Path) -> IO[bytes]:
    """Open a file, decompressed if its first bytes are those of gzip, whatever its name."""
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(path)) if packed else open(path, "rb")


def is_packed(name: str) -> bool:
    """Whether a document of this name is gzipped."""
    return name.lower().endswith(".gz")


def unpacked(stream: IO[bytes]) -> bytes | IO[bytes]:
    """The content of a gzipped stream: bytes if it is small and whole, otherwise a stream.

    Reading that stream raises `UnreadableArticleError` where the data are broken, after everything before,
    and once more than `MAX_UNPACKED` bytes have come out.
    """
    source = _Unpacking(stream)
    head = io.BytesIO()
    with suppress(UnreadableArticleError):
        while head.tell() <= WHOLE_DOCUMENT_BYTES:
            if not (data := source.read(_BLOCK)):
                return head.getvalue()
            head.write(data)
    head.seek(0)
    source.head = head
    return cast("IO[bytes]", source)


class _Unpacking:
    """The unpacked stream: first the `head`, which was read already, then the rest."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.head = io.BytesIO()
        self._packed = gzip.GzipFile(fileobj=stream, mode="rb")
        self._length = 0
        self._broken: UnreadableArticleError | None = None

    def read(self, size: int = -1) -> bytes:
        if data := self.head.read(size):
            return data
        if self._broken is None:
            try:
                # Not `read`, which loses what came out before an error.
                data = self._packed.read1(size if size >= 0 else _BLOCK)
                self._length += len(data)
                if self._length <= MAX_UNPACKED:
                    return data
                more = f"it decompresses to more than {MAX_UNPACKED:,} bytes"
                self._broken = UnreadableArticleError("expands-too-much", more)
            except (gzip.BadGzipFile, *BROKEN_PACKING) as error:
                self._broken = UnreadableArticleError("broken-packing", f"{type(error).__name__}: {error}")
        raise self._broken
