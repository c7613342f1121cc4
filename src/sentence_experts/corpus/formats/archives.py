"""Read folders, XML files and archives as a stream of named documents, in a defined order, never on disk.

Nothing outside a source is ever opened: links, devices, absolute names and names with `..` are set aside.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

from sentence_experts.compat.tarfile import TooLargeError, read_forward
from sentence_experts.corpus.paper import RecordError, Rejection
from sentence_experts.errors import InputError

MAX_DOCUMENT_BYTES = 1 << 30
"""Larger documents are refused, and packed ones that expand to more."""
USUAL_EXPANSION = 10
"""Approximate ratio of the sizes of an XML document and its gzipped form."""
BROKEN_PACKING = (EOFError, lzma.LZMAError, zlib.error)
"""Errors of decompression on broken data, besides OSError."""
_BLOCK = 1 << 16
_FREE_EXPANSION = 2 << 30
_MAX_EXPANSION = 250  # times the archive's own size; XML text shrinks 5 to 20 times

DOCUMENT_SUFFIXES = (".xml", ".nxml", ".xml.gz", ".nxml.gz")
_TAR_OPENERS: dict[str, Callable[..., Any]] = {
    ".tar": open, ".tar.gz": gzip.open, ".tgz": gzip.open, ".tar.xz": lzma.open, ".txz": lzma.open,
    ".tar.bz2": bz2.open, ".tbz2": bz2.open, ".tbz": bz2.open,
}  # fmt: skip
_BROKEN = (*BROKEN_PACKING, OSError, tarfile.TarError, zipfile.BadZipFile, RuntimeError)


@dataclass(frozen=True, slots=True)
class Document:
    """One XML document of a source: a file's path, or the bytes. `size` is the number of stored bytes; a
    document whose name ends in `.gz` is still packed."""

    name: str
    size: int
    path: Path | None = None
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Passed:
    """A member whose name is not that of an XML document (a figure, a PDF)."""

    name: str


@dataclass(frozen=True, slots=True)
class Source:
    """A source of documents: `kind` is `folder`, `file`, `tar`, `zip`, or, with `documents`, another name."""

    name: str
    kind: str
    path: Path
    documents: Callable[[], Iterator[Document]] | None = None
    """Gives the documents, in a defined order, if they come from no path."""


Member = Document | Passed | Rejection


def find_sources(paths: list[Path]) -> list[Source]:
    """Find the sources at some paths; each archive inside a folder is one source.

    Raises:
        InputError: a path is missing or is neither a folder, an XML file nor an archive.
    """
    sources: list[Source] = []
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        real = path.resolve()
        if not (real.is_dir() or real.is_file()):
            raise InputError(f"{path}: a pipe or device; give files and folders")
        name = real.name or "root"
        if real.is_dir():
            sources.append(Source(name, "folder", real))
            sources += [Source(f"{name}/{file.relative_to(real).as_posix()}", kind_of(file), file)
                        for file in _walk(real)
                        if kind_of(file) in ("tar", "zip") and not file.is_symlink()]  # fmt: skip
        elif kind := kind_of(real):
            sources.append(Source(name, kind, real))
        else:
            raise InputError(
                f"{path}: neither a folder, an .xml, .nxml or .xml.gz file, nor a "
                "tar archive (.tar, .tar.gz, .tar.xz, .tar.bz2) or a .zip archive, nor a file of records "
                "(.json, .jsonl, .parquet, .ris, .nbib, .bib, .csv; any name with `format`)"
            )
    seen: Counter[str] = Counter()
    for place, source in enumerate(sources):
        seen[source.name] += 1
        if (number := seen[source.name]) > 1:
            sources[place] = replace(source, name=f"{source.name} ({number})")
    return sources


def kind_of(path: Path) -> str:
    """Return `file`, `tar`, `zip`, or an empty string for anything else, by the ending of the name."""
    name = path.name.lower()
    if name.endswith(DOCUMENT_SUFFIXES):
        return "file"
    if name.endswith(tuple(_TAR_OPENERS)):
        return "tar"
    return "zip" if name.endswith(".zip") else ""


def _walk(folder: Path) -> Iterator[Path]:
    """Yield every file and link under `folder`, by name; links to folders are not followed."""
    for base, folders, files in os.walk(folder, followlinks=False):
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(base, name))]
        yield from (Path(base, name) for name in sorted(files + links))


def members(source: Source) -> Iterator[Member]:
    """Read the members of a source in its order (a folder's by path), up to damage in an archive."""
    if source.documents is not None:
        yield from source.documents()
        return
    if source.kind in ("folder", "file"):
        for path in [source.path] if source.kind == "file" else _walk(source.path):
            name = path.name if source.kind == "file" else path.relative_to(source.path).as_posix()
            yield _file(source.name, path, _printable(name))
        return
    empty = True
    try:
        for member in (_tar if source.kind == "tar" else _zip)(source):
            empty = False
            yield member
        if empty:
            yield Rejection(source.name, None, None, "empty", "the archive holds no file")
    except TooLargeError as error:
        yield Rejection(source.name, None, None, "expands-too-much", str(error))
    except _BROKEN as error:
        reason = "unreadable" if isinstance(error, PermissionError) else "broken-archive"
        yield Rejection(
            source.name, None, None, reason, f"{_describe(error)}; the documents before it were kept"
        )


def _describe(error: BaseException) -> str:
    text = " ".join(str(error).split()).replace("\0", "")
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _printable(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def _file(source: str, path: Path, name: str) -> Member:
    if kind_of(path) != "file" and not path.is_symlink():
        return Passed(name)
    try:
        status = path.lstat()
    except OSError as error:
        return Rejection(source, name, None, "unreadable", _describe(error))
    if stat.S_ISLNK(status.st_mode):
        return Rejection(source, name, None, "link", "links in a folder are not followed")
    if not stat.S_ISREG(status.st_mode):
        return Rejection(source, name, None, "not-a-file", "a device, pipe or socket")
    return _too_large(source, name, status.st_size) or Document(name, status.st_size, path=path)


def _too_large(source: str, name: str, size: int) -> Rejection | None:
    if size <= MAX_DOCUMENT_BYTES:
        return None
    return Rejection(
        source, name, None, "too-large", f"{size:,} bytes; at most {MAX_DOCUMENT_BYTES:,} are read"
    )


def _not_a_document(source: str, name: str, size: int) -> Member | None:
    """Return a member of an archive that is not to be read; None for a document."""
    parts = name.replace("\\", "/").split("/")
    problem = "a name that leads out of the archive (..)" if ".." in parts else None
    if name.startswith(("/", "\\")) or name[1:2] == ":":
        problem = "an absolute name"
    name = _printable(name)
    if problem:
        return Rejection(source, name, None, "unsafe-name", problem)
    if not name.lower().endswith(DOCUMENT_SUFFIXES):
        return Passed(name)
    return _too_large(source, name, size)


def _document(name: str, size: int, stream: IO[bytes]) -> Document:
    with stream:
        data = stream.read()
    if len(data) < size:
        raise EOFError(f"the archive ends inside {name}")
    return Document(name, size, data=data)


def _limit(source: Source) -> int:
    """Return the maximum number of bytes that may come out of an archive."""
    return max(_FREE_EXPANSION, _MAX_EXPANSION * source.path.stat().st_size)


def _tar(source: Source) -> Iterator[Member]:
    low = source.path.name.lower()
    opener = next(opener for suffix, opener in _TAR_OPENERS.items() if low.endswith(suffix))
    with opener(source.path, "rb") as raw:
        for archive, entry in read_forward(raw, MAX_DOCUMENT_BYTES, _limit(source)):
            name = _printable(entry.name)
            if entry.issym() or entry.islnk():
                target = _printable(entry.linkname)
                yield Rejection(source.name, name, None, "link", f"a link to {target!r}")
            elif entry.isreg():
                yield _not_a_document(source.name, entry.name, entry.size) or _document(
                    name, entry.size, cast("IO[bytes]", archive.extractfile(entry))
                )
            elif not entry.isdir():
                yield Rejection(source.name, name, None, "not-a-file", "a device, pipe or socket")


def _zip(source: Source) -> Iterator[Member]:
    limit = _limit(source)
    with zipfile.ZipFile(source.path) as archive:
        for entry in archive.infolist():
            if not entry.is_dir():
                member = _zip_member(source.name, archive, entry)
                limit -= member.size if isinstance(member, Document) else 0
                if limit < 0:
                    raise TooLargeError("it unpacks to more than an archive of this size should")
                yield member


def _zip_member(source: str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Member:
    name = _printable(entry.filename)
    if stat.S_ISLNK(entry.external_attr >> 16):
        return Rejection(source, name, None, "link", "a symbolic link")
    if other := _not_a_document(source, entry.orig_filename, entry.file_size):
        return other
    if entry.flag_bits & 1:
        return Rejection(source, name, None, "encrypted", "the member is encrypted")
    try:
        return _document(name, entry.file_size, archive.open(entry))
    except _BROKEN as error:
        return Rejection(source, name, None, "broken-member", _describe(error))


def open_unpacked(path: Path) -> IO[bytes]:
    """Open a file, decompressed if its first bytes are those of gzip, whatever its name."""
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(path)) if packed else open(path, "rb")


def is_packed(name: str) -> bool:
    """Return whether a document of this name is gzipped."""
    return name.lower().endswith(".gz")


class _Unpacked:
    """A stream that is decompressed while it is read; an error comes after all that was before it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._packed = gzip.GzipFile(fileobj=stream, mode="rb")
        self._length = 0

    def read(self, size: int = -1) -> bytes:
        try:
            # Not `read`, which loses what came out before an error.
            data = self._packed.read1(size if size >= 0 else _BLOCK)
        except (gzip.BadGzipFile, *BROKEN_PACKING) as error:
            raise RecordError("broken-packing", f"{type(error).__name__}: {error}") from error
        self._length += len(data)
        if self._length > MAX_DOCUMENT_BYTES:
            raise RecordError("expands-too-much", f"it decompresses to over {MAX_DOCUMENT_BYTES:,} bytes")
        return data


def unpacked(stream: IO[bytes]) -> IO[bytes]:
    """Decompress a stream while it is read, such as a file of PubMed's baseline.

    Reading it raises `RecordError` where the data are broken, after everything before, and once more than
    `MAX_DOCUMENT_BYTES` have come out.
    """
    return cast("IO[bytes]", _Unpacked(stream))
