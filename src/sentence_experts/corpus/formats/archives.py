"""Read folders, XML files and archives as a stream of named documents, in a defined order, never on disk.

Nothing outside a source is ever opened: links, devices, absolute names and names with `..` are set aside.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
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
BROKEN_PACKING = (EOFError, lzma.LZMAError, zlib.error)
"""Errors of decompression on broken data, besides OSError."""
_FREE_EXPANSION = 2 << 30
_MAX_EXPANSION = 250  # times the archive's own size; XML text shrinks 5 to 20 times

_DOCUMENT_SUFFIXES = (".xml", ".nxml", ".xml.gz", ".nxml.gz")
# Other .txt, .csv and .json files in archives are supplements of articles.
_RECORDS = re.compile(
    r"\.(?:ris|nbib|bib|bibtex|jsonl|ciw|enw)(?:\.gz)?$|(?:^|/)(?:pubmed[\w-]*\.txt|csv-[\w-]+\.csv)$",
    re.IGNORECASE,
)
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

    @property
    def is_packed(self) -> bool:
        """Whether it is gzipped."""
        return self.name.lower().endswith(".gz")


@dataclass(frozen=True, slots=True)
class Source:
    """A source of documents: `kind` is `folder`, `file`, `tar`, `zip`, or, with `documents`, another name."""

    name: str
    kind: str
    path: Path
    documents: Callable[[], Iterator[Document]] | None = None
    """Function that gives the documents, in a defined order, if they come from no path."""
    elsewhere: frozenset[Path] = frozenset()
    """Files of a folder that another source reads."""


Member = Document | Rejection | None
"""None is a member that is no XML document by its name (a figure, a PDF)."""


def find_sources(paths: list[Path]) -> list[Source]:
    """Find the sources at some paths; each archive inside a folder is one source.

    Raises:
        InputError: a path is missing or is neither a folder, an XML file nor an archive.
    """
    sources: list[Source] = []
    for path in paths:
        real = path.resolve()
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        if not (real.is_dir() or real.is_file()):
            raise InputError(f"{path}: a pipe or device; give files and folders")
        if real.is_dir():
            name = real.name or "root"
            sources.append(Source(name, "folder", real))
            sources += [Source(f"{name}/{file.relative_to(real).as_posix()}", kind_of(file), file)
                        for file in _walk(real)
                        if kind_of(file) in ("tar", "zip") and not file.is_symlink()]  # fmt: skip
        elif kind := kind_of(real):
            sources.append(Source(real.name, kind, real))
        else:
            raise InputError(
                f"{path}: neither a folder, an .xml, .nxml or .xml.gz file, nor a "
                "tar archive (.tar, .tar.gz, .tar.xz, .tar.bz2) or a .zip archive, nor a file of records "
                "(.json, .jsonl, .ris, .nbib, .bib, .csv; any name with `format`); give a table as `papers`"
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
    if name.endswith(_DOCUMENT_SUFFIXES):
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
    problem = ("empty", "the archive holds no file") if source.kind in ("tar", "zip") else None
    try:
        for member in {"tar": _read_tar, "zip": _zip}.get(source.kind, _list_files)(source):
            problem = None
            yield member
    except TooLargeError as error:
        problem = ("expands-too-much", str(error))
    except PermissionError as error:
        problem = ("unreadable", _describe(error))
    except _BROKEN as error:
        problem = ("broken-archive", f"{_describe(error)}; the documents before it were kept")
    if problem:
        yield Rejection(source.name, None, None, *problem)


def _list_files(source: Source) -> Iterator[Member]:
    for path in [source.path] if source.kind == "file" else _walk(source.path):
        if path in source.elsewhere:
            continue
        name = _escape(path.name if source.kind == "file" else path.relative_to(source.path).as_posix())
        try:
            status = path.lstat()
        except OSError as error:
            yield Rejection(source.name, name, None, "unreadable", _describe(error))
        else:
            size = status.st_size
            yield from _check_mode(source, name, status.st_mode, size) or [Document(name, size, path=path)]


def _read_tar(source: Source) -> Iterator[Member]:
    low = source.path.name.lower()
    opener = next(opener for suffix, opener in _TAR_OPENERS.items() if low.endswith(suffix))
    with opener(source.path, "rb") as raw:
        for archive, entry in read_forward(raw, MAX_DOCUMENT_BYTES, _limit(source)):
            is_link, name = entry.issym() or entry.islnk(), _escape(entry.name)
            mode = stat.S_IFLNK if is_link else stat.S_IFREG if entry.isreg() else stat.S_IFIFO
            if not entry.isdir():
                passed = _check_mode(source, name, mode, entry.size)
                yield from passed or [_read(name, entry.size, cast("IO[bytes]", archive.extractfile(entry)))]


def _zip(source: Source) -> Iterator[Member]:
    limit = _limit(source)
    with zipfile.ZipFile(source.path) as archive:
        if min((entry.header_offset for entry in archive.infolist()), default=0) > 4:  # bytes of a mark
            detail = "what stands before the archive's first member is not read, as another archive may be"
            yield Rejection(source.name, None, None, "joined-archive", detail)
        for entry in (entry for entry in archive.infolist() if not entry.is_dir()):
            name, is_link = _escape(entry.orig_filename), stat.S_ISLNK(entry.external_attr >> 16)
            mode = stat.S_IFLNK if is_link else stat.S_IFREG
            if passed := _check_mode(source, name, mode, entry.file_size):
                yield from passed
            elif entry.flag_bits & 1:
                yield Rejection(source.name, name, None, "encrypted", "the member is encrypted")
            else:
                try:
                    yield _read(name, entry.file_size, archive.open(entry))
                except _BROKEN as error:
                    yield Rejection(source.name, name, None, "broken-member", _describe(error))
                limit -= entry.file_size
                if limit < 0:
                    raise TooLargeError("it unpacks to more than an archive of this size should")


def _limit(source: Source) -> int:
    """Return the maximum number of bytes that may come out of an archive."""
    return max(_FREE_EXPANSION, _MAX_EXPANSION * source.path.stat().st_size)


def _read(name: str, size: int, stream: IO[bytes]) -> Document:
    with stream:
        data = stream.read()
    if len(data) < size:
        raise EOFError(f"the archive ends inside {name}")
    return Document(name, size, data=data)


def _check_mode(source: Source, name: str, mode: int, size: int) -> list[Member]:
    """Return the rejection of a file of this mode that is not to be read; nothing for a document."""
    archived = source.kind in ("tar", "zip")
    checks = (
        (archived and ".." in name.replace("\\", "/").split("/"), "unsafe-name",
         "a name that leads out of the archive (..)"),
        (archived and (name.startswith(("/", "\\")) or name[1:2] == ":"), "unsafe-name", "an absolute name"),
        (stat.S_ISLNK(mode), "link", "links are not followed"),
        (archived and _RECORDS.search(name) is not None, "records-in-archive",
         "records are read from files and folders: unpack the archive"),
        (not name.lower().endswith(_DOCUMENT_SUFFIXES), "", ""),
        (not stat.S_ISREG(mode), "not-a-file", "a device, pipe or socket"),
        (size > MAX_DOCUMENT_BYTES, "too-large", f"{size:,} bytes; at most {MAX_DOCUMENT_BYTES:,} are read"),
    )  # fmt: skip
    found = [(reason, detail) for holds, reason, detail in checks if holds]
    return [Rejection(source.name, name, None, *found[0]) if found[0][0] else None] if found else []


def _describe(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or " ".join(str(error).split()).replace("\0", "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _escape(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def open_unpacked(path: Path) -> IO[bytes]:
    """Open a file, decompressed if its first bytes are gzip's, whatever its name."""
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(path)) if packed else open(path, "rb")


class UnpackedStream:
    """A gzipped stream that is decompressed while it is read, such as a file of PubMed's baseline.

    Reading it raises `RecordError` where the data are broken, after everything before, and once more than
    `MAX_DOCUMENT_BYTES` have come out.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._packed = gzip.GzipFile(fileobj=stream, mode="rb")
        self._length = 0

    def read(self, size: int = -1) -> bytes:
        """Return some bytes; none at the end."""
        try:
            # Not `read`, which loses what came out before an error.
            data = self._packed.read1(size if size >= 0 else 1 << 16)
        except (gzip.BadGzipFile, *BROKEN_PACKING) as error:
            raise RecordError("broken-packing", f"{type(error).__name__}: {error}") from error
        self._length += len(data)
        if self._length > MAX_DOCUMENT_BYTES:
            raise RecordError("expands-too-much", f"it decompresses to over {MAX_DOCUMENT_BYTES:,} bytes")
        return data
