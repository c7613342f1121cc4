"""SHA-256 of files and values; states of files, which change when their bytes do."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import finalize

from sentence_experts.errors import InputError
from sentence_experts.progress import announce

FileState = tuple[int, int, int, int]
_LARGE = 1 << 30  # bytes, which take seconds


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hex, read in blocks."""
    waits = announce(f"checking {path.name}") if path.stat().st_size > _LARGE else nullcontext()
    with open(path, "rb") as file, waits:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_unchanging(path: Path) -> str:
    """Return `sha256_file`, computed once for a file that keeps its state."""
    return _hash_of(path, file_state(path))


@lru_cache(maxsize=4096)
def _hash_of(file: Path, state: FileState) -> str:
    return sha256_file(file)


def file_state(path: str | Path | int) -> FileState:
    """Return what changes with a file's bytes, of a path or an open file: its number, size and times.

    The time of its last change (ctime) is one of them, since programs can set the other back.

    Raises:
        OSError: there is no such file.
    """
    status = os.stat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class OpenFiles:
    """Files that stay open as long as this object, so that a write into one of them is noticed.

    Another file that takes the name of one of them changes nothing: it is still the old one that is open.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._open = {path: os.open(path, os.O_RDONLY) for path in paths}
        self._states = self._read()
        for number in self._open.values():
            finalize(self, os.close, number)

    def _read(self) -> dict[Path, tuple[int, int]]:
        states = {path: os.fstat(number) for path, number in self._open.items()}
        return {path: (state.st_size, state.st_mtime_ns) for path, state in states.items()}

    def check(self) -> None:
        """Refuse files that were written to.

        Raises:
            InputError: one was.
        """
        if (now := self._read()) != self._states:
            path = next(path for path, state in now.items() if state != self._states[path])
            raise InputError(f"{path}: another program wrote to it while it was in use: start again")


def sha256_settings(settings: Any) -> str:
    """Return the SHA-256 of JSON values, which does not depend on the order of their keys."""
    return sha256_text(json.dumps(settings, sort_keys=True))


def sha256_text(*parts: str) -> str:
    """Return the SHA-256 of several strings, each ended by a zero byte so that boundaries count."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode("utf-8") + b"\0")
    return digest.hexdigest()
