"""One process at a time writes a folder or file; the operating system releases the lock when it dies."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage.files import explained, hidden_beside, remove_leftovers

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_MAX_COMMAND_LENGTH = 200
_MAX_FOLDERS = 250  # depth of a path; missing folders are made by recursion
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}


class InUseError(InputError):
    """Another process is writing the same folder or file."""


@contextmanager
def locked(path: Path | str, purpose: str, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock of a folder or file while the block runs.

    The lock is a hidden file beside `path`, removed at the end. If the process dies, the system releases the
    lock, and the next one that takes it removes the temporary files left behind. A lock is
    not re-entrant.

    Args:
        path: folder or file that is written; it need not exist yet.
        purpose: short description for others who want the lock, such as "encode papers.csv".
        wait: whether to wait until the lock is free, as for caches that several runs fill, or refuse.

    Raises:
        InUseError: another process holds the lock, and `wait` is false. Names that process.
        InputError: the folder of `path` cannot be written to, or its disk is full.
        UsageError: it is the root of a file system, its name is not UTF-8, or its path has too many folders.

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
    if os.fspath(path).encode(errors="ignore") != os.fsencode(path):
        raise UsageError(f"{str(path)!a}: this name is not UTF-8: choose another one")
    if (folders := len(path.parts)) > _MAX_FOLDERS:
        raise UsageError(f"{str(path)[:60]}...: {folders:,} folders in each other: choose a shorter path")
    with explained(path):
        inside = path.is_dir() and not os.access(path.parent, os.W_OK)
        file = path / ".lock" if inside else hidden_beside(path, ".lock")
        lock = FileLock(file, thread_local=False, poll_interval=_POLL_SECONDS, fallback_to_soft=False)
        _acquire(lock, path, file, wait)
        owner = os.getpid()
        try:
            with suppress(OSError):  # a full disk, or Windows, where a locked file is not written
                file.write_text(_describe_this_process(purpose), encoding="utf-8")
            remove_leftovers(path)
            yield
        finally:
            if os.getpid() == owner:  # not in a forked child
                # Removed while it is locked: who opened it before sees that it is gone, and opens the next.
                with suppress(OSError):
                    file.unlink()
                lock.release()


def _acquire(lock: FileLock, path: Path, file: Path, wait: bool) -> None:
    """Acquire a lock that nobody holds, or wait for it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()  # `filelock` takes a place where no file can be made for a lock that is held
        try:
            lock.acquire(blocking=False)
        except Timeout:
            holder = "another process"
            with suppress(OSError, ValueError):
                holder = file.read_text(encoding="utf-8") or holder
            if not wait:
                raise InUseError(f"{path} is in use by {holder}; wait for it, or write elsewhere") from None
            logger.info(f"{path}: waiting for {holder}")
            lock.acquire()
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise InputError(
                f"{path} cannot be written to ({error.strerror}): make it writable, or write elsewhere"
            ) from error
        logger.warning(
            f"{path}: this file system has no locks ({error}); do not let two processes write it at once"
        )


def _describe_this_process(purpose: str) -> str:
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:_MAX_COMMAND_LENGTH]
    since = datetime.now().astimezone().isoformat(timespec="seconds")
    return f"process {os.getpid()} ({purpose}; `{command}`) since {since}"
