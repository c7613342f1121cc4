"""Canary: what `compat.tarfile` relies on in the standard library."""

from __future__ import annotations

import gc
import io
import tarfile

import pytest

from sentence_experts.compat.tarfile import TooLargeError, read_forward


def archive_of(count: int, format: int = tarfile.PAX_FORMAT) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=format) as archive:
        for number in range(count):
            entry = tarfile.TarInfo(f"{'long/' * 30}{number}.xml")
            entry.size = 3
            archive.addfile(entry, io.BytesIO(b"abc"))
    return stream.getvalue()


class ForwardOnly(io.RawIOBase):
    """A stream that cannot seek."""

    def __init__(self, content: bytes) -> None:
        self._stream = io.BytesIO(content)

    def read(self, size: int = -1) -> bytes:
        return self._stream.read(size)


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tarfile_reads_a_stream_that_cannot_seek(format: int) -> None:
    members = read_forward(ForwardOnly(archive_of(20, format)), 1 << 20, 1 << 20)
    assert [archive.extractfile(entry).read() for archive, entry in members] == [b"abc"] * 20


def test_headers_that_were_read_are_released() -> None:
    for _ in read_forward(ForwardOnly(archive_of(200)), 1 << 20, 1 << 20):
        pass
    gc.collect()
    assert sum(isinstance(each, tarfile.TarInfo) for each in gc.get_objects()) < 20


def test_unreadable_header_is_an_error() -> None:
    content = archive_of(2, tarfile.USTAR_FORMAT)
    broken = content[:1024] + b"x" + content[1025:]  # the checksum of the second header no longer fits
    with pytest.raises(tarfile.ReadError):
        list(read_forward(ForwardOnly(broken), 1 << 20, 1 << 20))


def test_too_much_is_refused() -> None:
    with pytest.raises(TooLargeError):
        list(read_forward(ForwardOnly(archive_of(20)), 1 << 20, 4096))
