"""Full disks, names that are too long, and files that killed processes leave behind."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from sentence_experts.errors import InputError, SentenceExpertsError

_MAX_NAME_BYTES = 255
_NO_SPACE = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
# Libraries that write from C++ or Rust put the system's error into their message, if anywhere.
_NO_SPACE_WORDS = re.compile(
    r"no space left on device|os error (28|27|122)\b|errno\W+(28|27|122)\b|database or disk is full|"
    r"file too large$|"
    r"quota exceeded$|requested and \d+ written$|PytorchStreamWriter failed writing|"
    r"inline_container.*unexpected pos",
    re.IGNORECASE,
)
_LEFTOVER = r"\.\d+(?:\.scratch\.\w+)?\.(?:tmp|old)"
_INNER = re.compile(r"(\..+)\.(\d+)(?:\.scratch\.\w+)?\.(?:tmp|old)")


class NoSpaceError(InputError):
    """The disk, or what the user may write to it, is full."""


def hidden_beside(path: Path, ending: str) -> Path:
    """Return a hidden name beside `path`, such as `.corpus.lock`, as short as file systems want it."""
    name = path.name
    if len(f".{name}{ending}".encode()) > _MAX_NAME_BYTES:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        name = name.encode()[: _MAX_NAME_BYTES - len(digest) - 40].decode(errors="ignore") + digest
    return path.with_name(f".{name}{ending}")


def temporary_beside(path: Path, ending: str = ".tmp") -> Path:
    """Return the name under which this process writes what will take the place of `path`."""
    return hidden_beside(path, f".{os.getpid()}{ending}")


def remove_leftovers(path: Path) -> None:
    """Remove what killed processes left of `path`, beside it and in it; call it under the lock of `path`.

    A folder that was retired while its successor did not yet take its place comes back. What other processes
    are writing in the folder stays.
    """
    prefix = hidden_beside(path, "").name
    beside = re.compile(rf"\.*{re.escape(prefix)}(?:{_LEFTOVER})+")
    leftovers = [file for file in _hidden(path.parent) if beside.fullmatch(file.name)]
    if not path.exists():
        for retired in (file for file in leftovers if file.suffix == ".old"):
            os.replace(retired, path)
            break
    for file in _hidden(path):
        match = _INNER.fullmatch(file.name)
        # An output in the folder has its own lock; who takes that one next removes the file.
        if match is None or (path / f"{match[1]}.lock").exists() or _is_alive(match[2]):
            continue
        replaced = path / match[1][1:]
        if file.suffix == ".old" and not os.path.lexists(replaced):
            os.replace(file, replaced)
        leftovers.append(file)
    for file in leftovers:
        remove(file)


def temporary_folder() -> TemporaryDirectory[str]:
    """Make a folder in the system's temporary folder, removed at the end of a `with`, or with the object."""
    return TemporaryDirectory(prefix=f"sentence-experts-{os.getpid()}-")


def _is_alive(pid: str) -> bool:
    """Whether another process has this number."""
    if os.name == "nt" or int(pid) == os.getpid():  # there, `os.kill` would end the process
        return False
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is another user's
        return True
    return True


def remove(path: Path) -> None:
    """Remove a file or folder, as far as possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sync(path: Path, inner: bool = True) -> None:
    """Wait until the disk holds a file, or a folder with (unless `inner` is false) all that is in it."""
    for each in (*path.rglob("*"), path) if inner else (path,):
        is_folder = each.is_dir()
        if each.is_symlink() or (is_folder and os.name == "nt"):  # Windows opens no folders
            continue
        descriptor = os.open(each, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError:
            if not is_folder:  # some network file systems do not know it of folders
                raise
        finally:
            os.close(descriptor)


def _hidden(folder: Path) -> list[Path]:
    """Return the hidden entries of a folder, which may hold many thousand others."""
    try:
        return [Path(entry.path) for entry in os.scandir(folder) if entry.name[0] == "."]
    except OSError:
        return []


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the errors of a full disk, and of a name too long for it, into one line about `path`.

    Raises:
        NoSpaceError: the disk is full.
        InputError: a name is too long.
    """
    try:
        yield
    except SentenceExpertsError:
        raise
    except Exception as error:
        if (message := no_space(error, path)) is not None:
            raise NoSpaceError(message) from error
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            raise InputError(f"{error.filename or path}: {error.strerror}; give a shorter name") from error
        raise


def no_space(error: BaseException, path: Path) -> str | None:
    """Return the message for an error that a full disk caused, directly or indirectly; None for any other."""
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, OSError) and current.errno in _NO_SPACE:
            path = Path(os.fsdecode(current.filename)) if isinstance(current.filename, str) else path
            break
        # The words of other errors may be those of the user's texts.
        named = isinstance(current, SentenceExpertsError | LookupError | TypeError | UnicodeError)
        if not named and _NO_SPACE_WORDS.search(str(current)):
            break
        current = current.__cause__ or current.__context__
    if current is None:
        return None
    folder = next((each for each in (path, *path.absolute().parents) if each.is_dir()), Path())
    free = shutil.disk_usage(folder).free / 1e6
    return (
        f"{path}: no space left on the disk, or a quota is reached ({free:,.1f} MB free in {folder}); make "
        "room and give the same command again, or write elsewhere"
    )


def check_regular(path: Path | str) -> None:
    """Refuse pipes, sockets and devices, which could block for ever or have no end.

    Raises:
        InputError: it is one of these.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:  # opening it then gives the error
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InputError(f"{path}: a pipe or device, not a file: write its content to a file first")
