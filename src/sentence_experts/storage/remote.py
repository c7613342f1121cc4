"""Object storage and other places of fsspec, by URL: `s3://bucket/papers`, `gs://...`, `memory://...`."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any

from sentence_experts.errors import InputError, SentenceExpertsError, brief, require

_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def is_url(path: Path | str) -> bool:
    """Whether a path is on another storage than this machine's disks."""
    return isinstance(path, str) and _URL.match(path) is not None


def file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it; credentials come from the environment.

    Raises:
        SentenceExpertsError: what reads this kind of storage is not installed.
        InputError: no such kind of storage.
    """
    fsspec = require("fsspec", "models")
    try:
        system, path = fsspec.url_to_fs(url)
    except ImportError as error:  # its message names the package
        raise SentenceExpertsError(f"{url}: {brief(error)}") from error
    except ValueError as error:
        raise InputError(f"{url}: {brief(error)}") from error
    return system, path


def open_remote(url: Path | str) -> AbstractContextManager[IO[bytes]]:
    """Open a file for reading."""
    system, path = file_system(str(url))
    opened: AbstractContextManager[IO[bytes]] = system.open(path, "rb")
    return opened


def remote_files(url: str) -> list[str]:
    """The URLs of the files that a URL means: a file, a folder or a pattern with `*`, sorted."""
    system, path = file_system(url)
    found = system.glob(path) if any(sign in path for sign in "*?[") else [path]
    files = [file for each in found for file in (system.find(each) if system.isdir(each) else [each])]
    return sorted(system.unstrip_protocol(file) for file in files if system.exists(file))


def remote_fingerprint(url: str) -> str:
    """What changes when a file does: its size, time and tag."""
    system, path = file_system(url)
    return str(system.ukey(path))
