"""Ways to pack an XML document well or badly: gzip, tar and zip, broken, nested and under wrong names."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

from fuzz_mutations import MUTATIONS

CONTAINERS: dict[str, Callable[[Random, bytes], tuple[str, bytes]]] = {}


def _container(function: Callable[[Random, bytes], tuple[str, bytes]]) -> None:
    CONTAINERS[function.__name__.strip("_").replace("_", " ")] = function


_TAR_MODES = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.xz": "w:xz", ".tar.bz2": "w:bz2"}
_MEMBERS = (
    "a.xml",
    "x/y/a.nxml",
    "../a.xml",
    "/a.xml",
    "a.txt",
    "a.xml.gz",
    "é\udc80.xml",
    "C:\\a.xml",
    "a" * 300 + ".xml",
)


def _tarred(random: Random, data: bytes, ending: str) -> bytes:
    held = io.BytesIO()
    fastest: dict[str, Any] = {".tar": {}, ".tar.xz": {"preset": 0}}.get(ending, {"compresslevel": 1})
    open_tar: Any = tarfile.open  # its overloads want a literal mode
    with open_tar(fileobj=held, mode=_TAR_MODES[ending], **fastest) as archive:
        for name in random.sample(_MEMBERS, random.randint(1, 4)):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            if random.random() < 0.15:
                entry.type = random.choice(
                    (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, b"Z")
                )
                entry.linkname = random.choice(("/etc/passwd", "a.xml", "../x"))
            archive.addfile(entry, io.BytesIO(data))
    return held.getvalue()


def _zipped(random: Random, data: bytes) -> bytes:
    held = io.BytesIO()
    kind = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(held, "w", kind) as archive:
        for name in random.sample([name for name in _MEMBERS if name.isprintable()], random.randint(1, 4)):
            archive.writestr(name, data)
    return held.getvalue()


def _broken(random: Random, data: bytes) -> bytes:
    return MUTATIONS[random.choice(("truncate", "flip bits", "cut out", "nuls", "noise", "twice"))](
        random, data
    )


def _xz(data: bytes) -> bytes:
    return lzma.compress(data, preset=0)


@_container
def _gzip(random: Random, data: bytes) -> tuple[str, bytes]:
    return "article.xml.gz", gzip.compress(data, 1)


_BROKEN_GZIPS: tuple[Callable[[Random, bytes], bytes], ...] = (
    lambda random, data: _broken(random, gzip.compress(data, 1)),
    lambda random, data: _broken(random, gzip.compress(data, 1)),
    lambda random, data: gzip.compress(gzip.compress(data, 1), 1),
    lambda random, data: gzip.compress(data, 1) + b"junk",
    lambda random, data: gzip.compress(data, 1) + b"\0" * 99,
    lambda random, data: data,
    lambda random, data: bz2.compress(data),
    lambda random, data: gzip.compress(bytes(20_000_000), 1),
)


@_container
def _broken_gzip(random: Random, data: bytes) -> tuple[str, bytes]:
    return "article.xml.gz", random.choice(_BROKEN_GZIPS)(random, data)


@_container
def _tar(random: Random, data: bytes) -> tuple[str, bytes]:
    ending = random.choice(sorted(_TAR_MODES))
    return f"a{ending}", _tarred(random, data, ending)


@_container
def _broken_tar(random: Random, data: bytes) -> tuple[str, bytes]:
    ending = random.choice(sorted(_TAR_MODES))
    return f"a{ending}", _broken(random, _tarred(random, data, ending))


@_container
def _headers_of_tar(random: Random, data: bytes) -> tuple[str, bytes]:
    """Broken inside: the packing is whole, the headers are not."""
    inner = bytearray(_tarred(random, data, ".tar"))
    for _ in range(random.randint(1, 6)):
        inner[random.randrange(512)] = random.randrange(256)
    pack = random.choice(
        (("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress))
    )
    return f"a.tar{pack[0]}", pack[1](bytes(inner))


@_container
def _zip(random: Random, data: bytes) -> tuple[str, bytes]:
    return "a.zip", _zipped(random, data)


@_container
def _broken_zip(random: Random, data: bytes) -> tuple[str, bytes]:
    packed = bytearray(_zipped(random, data))
    if random.random() < 0.5:  # the directory at the end is where most can go wrong
        for _ in range(random.randint(1, 6)):
            packed[-random.randint(1, min(200, len(packed)))] = random.randrange(256)
        return "a.zip", bytes(packed)
    return "a.zip", _broken(random, bytes(packed))


@_container
def _nested(random: Random, data: bytes) -> tuple[str, bytes]:
    """An archive in an archive, under the name of a document."""
    inner = _packed_somehow(random, data)
    ending = random.choice(sorted(_TAR_MODES))
    kind = random.randrange(3)
    if kind == 0:
        return "a.zip", _zipped(random, inner)
    return ("a.xml", inner) if kind == 1 else (f"a{ending}", _tarred(random, inner, ending))


@_container
def _wrong_ending(random: Random, data: bytes) -> tuple[str, bytes]:
    ending = random.choice((".xml", ".nxml", ".xml.gz", ".zip", *sorted(_TAR_MODES)))
    return f"a{ending}", random.choice((data, _packed_somehow(random, data)))


def _packed_somehow(random: Random, data: bytes) -> bytes:
    kind = random.randrange(3)
    if kind == 0:
        return _zipped(random, data)
    return _tarred(random, data, ".tar.gz") if kind == 1 else gzip.compress(data, 1)
