"""A folder on a disk or object storage that several machines write: whole files, each written once.

Object storage is anything of fsspec, by URL: `s3://bucket/papers`, `gs://...`, `memory://...`.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sentence_experts.errors import InputError, SentenceExpertsError, brief, require

_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")


def is_url(path: Path | str) -> bool:
    """Whether a path is on another storage than this machine's disks."""
    return isinstance(path, str) and _URL.match(path) is not None


def file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it; credentials come from the environment.

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
    """Return the URLs of the files that a URL means: a file, a folder or a pattern with `*`, sorted."""
    system, path = file_system(url)
    found = system.glob(path) if any(sign in path for sign in "*?[") else [path]
    files = [file for each in found for file in (system.find(each) if system.isdir(each) else [each])]
    return sorted(system.unstrip_protocol(file) for file in files if system.exists(file))


def remote_fingerprint(url: str) -> str:
    """Return what changes when a file does: its size, time and tag."""
    system, path = file_system(url)
    return str(system.ukey(path))


@dataclass(frozen=True)
class SharedFolder:
    """Where processes of several machines write files, each under a name that no other one uses.

    A file appears whole or not at all. Object storage must know the condition "only if there is none", as
    S3, Google and Azure do. It is a plain value that can be sent to other processes.

    Attributes:
        path: a folder that all see, or a URL.
    """

    path: str

    @property
    def local(self) -> Path | None:
        """The folder on a disk; None for object storage."""
        return None if is_url(self.path) else Path(self.path)

    def file(self, name: str) -> str:
        """Return the path or URL of a file."""
        return f"{self.path.rstrip('/')}/{name}"

    def names(self) -> set[str]:
        """Return the names of the files in the folder, hidden ones aside."""
        if self.local is not None:
            found = os.listdir(self.local) if self.local.is_dir() else []
        else:
            system, path = file_system(self.path)
            system.invalidate_cache()
            found = system.ls(path, detail=False) if system.exists(path) else []
        names = {each.rsplit("/", 1)[-1] for each in found}
        return {name for name in names if name and name[0] != "."}

    def opened(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """Open a file for reading.

        Raises:
            FileNotFoundError: there is none.
        """
        return open_remote(self.file(name)) if self.local is None else open(self.local / name, "rb")

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is none."""
        try:
            with self.opened(name) as file:
                return file.read()
        except FileNotFoundError:
            return None

    def sha256(self, name: str) -> str:
        """Return the SHA-256 of a file's bytes, in hex.

        Raises:
            FileNotFoundError: there is none.
        """
        with self.opened(name) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a temporary file of this machine, which becomes the file unless there is one already.

        Raises:
            FileExistsError: there is.
        """
        if self.local is None:
            with tempfile.TemporaryDirectory(prefix=f"sentence-experts-{os.getpid()}-") as home:
                yield Path(home) / "file"
                with self._storage(name) as (system, path):
                    system.put_file(str(Path(home) / "file"), path, mode="create")
            return
        self.local.mkdir(parents=True, exist_ok=True)
        # Processes of several machines may have the same number.
        temporary = self.local / f".{name}.{uuid.uuid4().hex}.tmp"
        try:
            yield temporary
            _link(temporary, self.local / name)
        finally:
            temporary.unlink(missing_ok=True)

    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless there is one of this name; whether it was written."""
        try:
            with self.writing(name) as temporary:
                temporary.write_bytes(content)
        except FileExistsError:
            return False
        return True

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            if self.local is not None:
                (self.local / name).unlink()
            else:
                system, path = file_system(self.file(name))
                system.rm_file(path)

    def move(self, name: str, target: SharedFolder) -> None:
        """Move a file to another folder on the same storage, in the place of one of its name."""
        if self.local is not None and target.local is not None:
            os.replace(self.local / name, target.local / name)
        else:
            with self._storage(name) as (system, path):
                system.mv(path, file_system(target.file(name))[1])

    def remove_leftovers(self) -> None:
        """Remove what killed processes did not finish; call it while no other run writes here."""
        for file in self.local.glob(".*.tmp") if self.local is not None else ():
            if _LEFTOVER.fullmatch(file.name):
                file.unlink(missing_ok=True)

    @contextmanager
    def _storage(self, name: str) -> Iterator[tuple[Any, str]]:
        """Yield the object storage to write to, and the path of a file in it."""
        try:
            yield file_system(self.file(name))
        except (FileExistsError, SentenceExpertsError):
            raise
        except (OSError, ValueError, NotImplementedError) as error:
            raise InputError(f"{self.path}: cannot be written to: {brief(error)}") from error


def _link(file: Path, name: Path) -> None:
    """Give a file another name, which no other has.

    Raises:
        FileExistsError: there is one of this name.
    """
    try:
        os.link(file, name)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: two that come at once write the same
        if name.exists():
            raise FileExistsError(str(name)) from None
        os.replace(file, name)
