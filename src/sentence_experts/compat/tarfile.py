"""tarfile: archives of any size read in one pass, in bounded memory."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from typing import IO, Any

_BLOCK = 1 << 20


class TooLargeError(Exception):
    """An archive unpacks to more than a genuine one of its size."""


def read_forward(
    raw: IO[bytes], max_read: int, max_total: int
) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Return the members of a decompressed tar stream, in order, without seeking back.

    Relies on three things that tarfile does not promise: it reads headers and members in order and seeks
    back by one byte at most; emptying its list `members` releases the headers that were read; and it takes a
    header that it cannot read for the end of the archive.

    Args:
        raw: the archive, decompressed while it is read.
        max_read: the maximum number of bytes of one header or member.
        max_total: the maximum number of bytes of the whole archive.
    """
    stream: Any = _ForwardStream(raw, max_read, max_total)
    end = 0
    with tarfile.open(fileobj=stream, mode="r:") as archive:
        while (entry := archive.next()) is not None:
            setattr(archive, "members", [])  # noqa: B010  # otherwise a million headers pile up
            yield archive, entry
            end = archive.offset
    if end and stream.tell() < end + tarfile.BLOCKSIZE:
        raise tarfile.ReadError("it has no mark of its end, as if it were cut off")
    while block := stream.read(_BLOCK):
        if block.strip(b"\0"):
            raise tarfile.ReadError("the data after the last readable member are not a member")


class _ForwardStream(io.RawIOBase):
    """A stream that only goes forward, but for one byte that it remembers, and bounds what comes out."""

    def __init__(self, raw: IO[bytes], max_read: int, max_total: int) -> None:
        self._raw = raw
        self._position = 0
        self._last = b""
        self._back = False
        self._max_read = max_read
        self._max_total = max_total

    def tell(self) -> int:
        return self._position - self._back

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > self._max_read:
            raise TooLargeError(f"a header or member asks for {size:,} bytes at once")
        if size == 0:
            return b""
        first = b""
        if self._back:
            self._back, first = False, self._last
        blocks = [first] if first else []
        missing = size - len(first)
        while missing and (block := self._raw.read(min(missing, _BLOCK))):
            blocks.append(block)
            missing -= len(block)
            self._position += len(block)
        data = b"".join(blocks) if len(blocks) != 1 else blocks[0]
        self._last = data[-1:] or self._last
        if self._position > self._max_total:
            raise TooLargeError(f"more than {self._max_total:,} bytes unpacked from it")
        return data

    def seek(self, target: int, whence: int = 0) -> int:
        ahead = target - self.tell()
        if whence == 0 and ahead == -1 and self._last and not self._back:
            self._back = True
        elif whence or ahead < 0:
            raise io.UnsupportedOperation("this archive is read forward only")
        while ahead > 0:
            data = self.read(min(ahead, _BLOCK))
            if not data:
                break
            ahead -= len(data)
        return self.tell()
