"""One process at a time writes a folder or file; the operating system releases the lock when it dies."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO

from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage.disk import explained, hidden_beside, remove_leftovers

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_MAX_COMMAND_LENGTH = 200
_LOCKED_BYTE = 1 << 30  # Windows forbids reading locked bytes: lock one behind the text

if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[str]) -> bool:
        file.seek(_LOCKED_BYTE)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(file: IO[str], path: Path) -> None:
        file.seek(_LOCKED_BYTE)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
        with suppress(OSError):
            file.close()
        with suppress(OSError):  # another process may have opened it by now
            path.unlink()

else:
    import fcntl

    def _try_lock(file: IO[str]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(file: IO[str], path: Path) -> None:
        # Removed while still locked: a process that opened it before sees in `_acquire` that it is gone.
        with suppress(OSError):
            path.unlink()
        fcntl.flock(file, fcntl.LOCK_UN)
        with suppress(OSError):  # a full disk
            file.close()


class InUseError(InputError):
    """Another process is writing the same folder or file."""


def is_later_process() -> bool:
    """Whether `torchrun` started this process beside a first one, which writes."""
    return "LOCAL_RANK" in os.environ and os.environ.get("RANK", "0") != "0"


@contextmanager
def locked(path: Path | str, purpose: str, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock of a folder or file while the block runs.

    The lock is a hidden file beside `path`, removed at the end. If the process dies, the system releases the
    lock, and the next one that takes it removes the temporary files left behind. A lock is
    not re-entrant.

    Args:
        path: what is written; it need not exist yet.
        purpose: a short description for others who want the lock, such as "encode papers.csv".
        wait: wait until the lock is free, as for caches that several runs fill; otherwise refuse.

    Raises:
        InUseError: another process holds the lock, and `wait` is false. Names that process.
        InputError: the folder of `path` cannot be written to, or its disk is full.
        UsageError: it has no name, or one that is not UTF-8.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with locked(f"{folder}/out", "an example"):
    ...         try:
    ...             with locked(f"{folder}/out", "another"):
    ...                 pass
    ...         except InUseError as error:
    ...             print("in use" in str(error))
    True
    """
    path = Path(os.path.abspath(path))
    if not path.name:
        raise UsageError(f"{path}: nothing can take the place of a whole file system: name a folder in it")
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{str(path)!a}: this name is not UTF-8: choose another one") from error
    with explained(path):
        file, lock_file = _acquire(path, purpose, wait)
        owner = os.getpid()
        try:
            yield
        finally:
            if os.getpid() == owner:  # not in a forked child
                _unlock(file, lock_file)


def _acquire(path: Path, purpose: str, wait: bool) -> tuple[IO[str], Path]:
    lock_file = hidden_beside(path, ".lock")
    if path.is_dir() and not os.access(path.parent, os.W_OK):
        lock_file = path / ".lock"
    announced = False
    while True:
        try:
            lock_file.parent.mkdir(parents=True, exist_ok=True)
            file = open(lock_file, "a+", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise InputError(f"{path} cannot be written to ({error.strerror}): write elsewhere") from error
        try:
            free = _try_lock(file)
        except OSError as error:
            logger.warning(
                f"{path}: this file system has no locks ({error}); do not let two processes write it at once"
            )
            return file, lock_file
        if free and _is_current(file, lock_file):
            _write_holder(file, purpose)
            remove_leftovers(path)
            return file, lock_file
        holder = _describe_holder(file)
        file.close()
        if free:  # the file was removed between opening and locking it: lock the new one
            continue
        if not wait:
            raise InUseError(f"{path} is in use by {holder}; wait for it, or write elsewhere")
        if not announced:
            logger.info(f"{path}: waiting for {holder}")
            announced = True
        time.sleep(_POLL_SECONDS)


def _is_current(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _write_holder(file: IO[str], purpose: str) -> None:
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:_MAX_COMMAND_LENGTH]
    since = datetime.now().astimezone().isoformat(timespec="seconds")
    with suppress(OSError):  # on a full disk the holder's number is not written
        file.truncate(0)
        json.dump({"pid": os.getpid(), "purpose": purpose, "command": command, "since": since}, file)
        file.flush()


def _describe_holder(file: IO[str]) -> str:
    try:
        file.seek(0)
        holder = json.load(file)
        return f"process {holder['pid']} ({holder['purpose']}; `{holder['command']}`) since {holder['since']}"
    except (ValueError, TypeError, KeyError, OSError):  # it has not written its number yet
        return "another process"
