"""Single documents that gzip packed (`pubmed26n0001.xml.gz`), unpacked while they are read."""

from __future__ import annotations

import gzip
import io
from typing import IO, Any

from sentence_experts.corpus.formats.secure_xml import WHOLE_DOCUMENT_BYTES, UnreadableArticleError

LARGEST_UNPACKED = 1 << 30
"""More bytes than this do not come out of one packed document."""
USUAL_EXPANSION = 10
"""How many times its packed size a document of XML has, about."""


def is_packed(name: str) -> bool:
    """Whether a document of this name is packed."""
    return name.lower().endswith(".gz")


def unpacked(stream: IO[bytes]) -> bytes | IO[bytes]:
    """What the packed stream holds: all of it where that is little, else a stream.

    Raises:
        UnreadableArticleError: it is not what gzip writes, or ends too early. Reading the stream raises it
            too, also where more than `LARGEST_UNPACKED` bytes come out.
    """
    source = _Unpacking(stream)
    head = source.read_fully(WHOLE_DOCUMENT_BYTES + 1)
    rest: Any = _After(head, source)
    return rest if len(head) > WHOLE_DOCUMENT_BYTES else head


class _Unpacking(io.RawIOBase):
    def __init__(self, stream: IO[bytes]) -> None:
        self._packed = gzip.GzipFile(fileobj=stream, mode="rb")
        self._length = 0

    def read(self, size: int = -1) -> bytes:
        try:
            data = self._packed.read(size if size >= 0 else WHOLE_DOCUMENT_BYTES)
        except gzip.BadGzipFile as error:
            raise UnreadableArticleError("broken-packing", f"BadGzipFile: {error}") from error
        self._length += len(data)
        if self._length > LARGEST_UNPACKED:
            raise UnreadableArticleError("expands-too-much", f"more than {LARGEST_UNPACKED:,} bytes came out")
        return data

    def read_fully(self, size: int) -> bytes:
        blocks = []
        while size and (data := self.read(size)):
            blocks.append(data)
            size -= len(data)
        return b"".join(blocks)


class _After(io.RawIOBase):
    """What was read already, then the rest."""

    def __init__(self, head: bytes, rest: Any) -> None:
        self._head = io.BytesIO(head)
        self._rest = rest

    def read(self, size: int = -1) -> bytes:
        return self._head.read(size) or bytes(self._rest.read(size))
