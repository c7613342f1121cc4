"""A folder on a disk or object storage that several machines write: whole files, each written once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sentence_experts.errors import InputError, SentenceExpertsError, brief
from sentence_experts.storage.disk import remove
from sentence_experts.storage.remote import file_system, is_url, open_remote

_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")


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
        """The path or URL of a file."""
        return f"{self.path.rstrip('/')}/{name}"

    def names(self) -> set[str]:
        """The files in the folder, hidden ones aside."""
        if self.local is not None:
            found = os.listdir(self.local) if self.local.is_dir() else []
        else:
            system, path = self._remote()
            system.invalidate_cache()
            found = (
                [each.rsplit("/", 1)[-1] for each in system.ls(path, detail=False)]
                if system.exists(path)
                else []
            )
        return {name for name in found if name and name[0] != "."}

    def opened(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """Open a file for reading.

        Raises:
            FileNotFoundError: there is none.
        """
        return open_remote(self.file(name)) if self.local is None else open(self.local / name, "rb")

    def read(self, name: str) -> bytes | None:
        """What is in a file; None if there is none."""
        try:
            with self.opened(name) as file:
                return file.read()
        except FileNotFoundError:
            return None

    def sha256(self, name: str) -> str:
        """The SHA-256 of a file's bytes, in hex, read in blocks.

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
                system, path = self._remote()
                with self._explained():
                    system.put_file(str(Path(home) / "file"), f"{path}/{name}", mode="create")
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
        """Write a small file unless there is one of this name; whether it was written."""
        try:
            if self.local is not None:
                with self.writing(name) as temporary:
                    temporary.write_bytes(content)
            else:
                system, path = self._remote()
                with self._explained():
                    system.pipe_file(f"{path}/{name}", content, mode="create")
        except FileExistsError:
            return False
        return True

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            if self.local is not None:
                (self.local / name).unlink()
            else:
                system, path = self._remote()
                system.rm_file(f"{path}/{name}")

    def move(self, name: str, target: SharedFolder) -> None:
        """Move a file to another folder on the same storage, in the place of one of its name."""
        if self.local is not None and target.local is not None:
            os.replace(self.local / name, target.local / name)
        else:
            system, path = self._remote()
            with self._explained():
                system.mv(f"{path}/{name}", f"{file_system(target.path)[1]}/{name}")

    def remove_leftovers(self) -> None:
        """Remove what killed processes did not finish; call it while no other run writes here."""
        if self.local is not None:
            for file in self.local.glob(".*.tmp"):
                if _LEFTOVER.fullmatch(file.name):
                    remove(file)

    def _remote(self) -> tuple[Any, str]:
        return file_system(self.path)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
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
