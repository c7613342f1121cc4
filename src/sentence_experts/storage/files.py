"""Single files and folders: written under a temporary name and renamed; JSON, Parquet, full disks."""

from __future__ import annotations

import errno
import io
import itertools
import json
import os
import re
import shutil
import signal
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sentence_experts.errors import InputError, SentenceExpertsError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy import memmap
    from numpy.typing import NDArray

_ROWS_PER_GROUP = 1 << 14
_NO_SPACE = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
# Libraries that write from C++ or Rust put the system's error into their message, if anywhere.
_NO_SPACE_WORDS = re.compile(
    r"no space left on device|os error (28|27|122)\b|errno\W+(28|27|122)\b|database or disk is full|"
    r"file too large$|quota exceeded$|requested and \d+ written$|PytorchStreamWriter failed writing|"
    r"inline_container.*unexpected pos",
    re.IGNORECASE,
)
TEMPORARY = r"\.(.+)\.(\d+)\.(?:new|old|scratch\.\w+)\.tmp"
"""Names of what a process, of which they have the number, is writing or replacing."""
_RETIRED = ".old.tmp"
_MOST_LEASES = 100  # of the files that a process may open


class NoSpaceError(InputError):
    """The disk, or what the user may write to it, is full."""


# ---- temporary names -----------------------------------------------------------------------------


def hidden_beside(path: Path, ending: str) -> Path:
    """Return a hidden name beside `path`, such as `.corpus.lock`."""
    return path.parent / f".{path.name}{ending}"


@contextmanager
def have_writers_wait(files: Iterable[Path]) -> Iterator[None]:
    """Have programs that open these files to write into them wait while the block runs (45 s at most).

    A file that is cut while it is mapped into memory ends the process. Only Linux grants such leases, to the
    owner of a file on a local disk; the process must ignore SIGIO, which tells it that somebody waits.
    """
    with ExitStack() as leases:
        if sys.platform == "linux" and signal.getsignal(signal.SIGIO) is signal.SIG_IGN:
            import fcntl

            for path in itertools.islice(files, _MOST_LEASES):
                with suppress(OSError):  # of another owner, or being written to
                    file = leases.enter_context(open(path, "rb"))
                    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        yield


def temporary_beside(path: Path, ending: str = ".new.tmp") -> Path:
    """Return the name under which this process writes what will take the place of `path`."""
    # Arrow would read a relative path with a colon as an address.
    return hidden_beside(Path(os.path.abspath(path)), f".{os.getpid()}{ending}")


def temporary_folder() -> TemporaryDirectory[str]:
    """Make a folder in the system's temporary folder, removed at the end of a `with`, or with the object."""
    return TemporaryDirectory(prefix=f"sentence-experts-{os.getpid()}-")


def remove_leftovers(path: Path) -> None:
    """Remove what killed processes left of `path`, beside it and in it; call it under the lock of `path`.

    A folder that was retired while its successor did not yet take its place comes back. What other processes
    are writing in the folder stays.
    """
    for folder in (path.parent, path):
        # It may hold many thousand others.
        hidden = (
            [entry.name for entry in os.scandir(folder) if entry.name[0] == "."] if folder.is_dir() else []
        )
        for file in map(folder.joinpath, hidden):
            match = re.fullmatch(TEMPORARY, file.name)
            if match is None or (folder != path and match[1] != path.name):
                continue
            # An output in the folder has its own lock; who takes that one next removes the file.
            if folder == path and ((path / f".{match[1]}.lock").exists() or _is_alive(match[2])):
                continue
            replaced = folder / match[1]
            if file.name.endswith(_RETIRED) and not os.path.lexists(replaced):
                os.replace(file, replaced)
            else:
                remove(file)


def _is_alive(pid: str) -> bool:
    """Return whether another process has this number."""
    if os.name == "nt" or int(pid) == os.getpid():  # there, `os.kill` would end the process
        return False
    try:
        os.kill(int(pid), 0)
    except PermissionError:  # it is another user's
        return True
    except OSError:
        return False
    return True


def remove(path: Path) -> None:
    """Remove a file or folder, as far as possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


# ---- writing -------------------------------------------------------------------------------------


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` on success, remove it on failure.

    A reader therefore sees the old file or the whole new one, never a part of it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_beside(path)
    try:
        yield temporary
        open_to_readers(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path` that takes the place of `path` on success."""
    path = Path(path)
    temporary, retired = temporary_beside(path), temporary_beside(path, _RETIRED)
    remove(temporary)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        open_to_readers(temporary)
        sync(temporary)
        if path.exists():
            os.replace(path, retired)
        os.replace(temporary, path)
        remove(retired)
        sync(path.parent, inner=False)
    finally:
        remove(temporary)


def check_listed(folder: Path, hidden: str | None) -> None:
    """Check that a folder and those in it can be listed: the files of others would be left out silently.

    Those whose names begin with a character of `hidden` may be closed, and the system's; with None all in it.

    Raises:
        InputError: one cannot be listed.
    """

    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename}: the folder cannot be read: {error.strerror}") from error

    for _, folders, _ in os.walk(folder, onerror=refuse):
        folders[:] = [
            name for name in folders if hidden is not None and name[0] not in hidden and name != "lost+found"
        ]


def walk_files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, also in folders that are links, unless they lead back upwards.

    Inside each folder that is a link, others that are links are followed once only, and not to folders that
    are walked anyway: folders that lead to each other have too many paths.
    """
    root = os.path.realpath(folder)
    # Path -> the real folders above it, and what was followed inside the first link above it, if any.
    above: dict[str, tuple[set[str], set[str] | None]] = {str(folder): ({root}, None)}
    for parent, folders, names in os.walk(folder, followlinks=True):
        yield from (Path(parent, name) for name in names)
        places, followed = above.pop(parent)
        inner = sorted(folders, key=lambda name: (name[0] == ".", name))
        folders.clear()
        for name in inner:
            path = os.path.join(parent, name)
            real, is_link, known = os.path.realpath(path), os.path.islink(path), followed
            inside = real.startswith(root + os.sep) and f"{os.sep}." not in real.removeprefix(root)
            if real in places or (is_link and known is not None and (inside or real in known)):
                continue
            if is_link:
                known = set() if known is None else known
                known.add(real)
            folders.append(name)
            above[path] = {*places, real}, known


def open_to_readers(path: Path) -> None:
    """Give files that a library wrote for their owner alone, as safetensors does, the mode of any new file.

    `path` is such a file, or a folder of them.
    """
    os.umask(mask := os.umask(0o077))
    for file in (path, *path.rglob("*")):
        if file.is_file() and stat.S_IMODE(file.stat().st_mode) == 0o600:
            file.chmod(0o666 & ~mask)


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


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_new_text(path: Path, text: str) -> None:
    """Write UTF-8 text to a file that is not there yet, whole or not at all.

    Raises:
        InputError: it is there, perhaps since a moment ago.
        NoSpaceError: the disk is full.
    """
    temporary = temporary_beside(path)
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_text(text, encoding="utf-8")
            _link_or_move(temporary, path)
        except FileExistsError:
            raise InputError(f"{path} exists; give another `out`") from None
        finally:
            temporary.unlink(missing_ok=True)


def _link_or_move(file: Path, path: Path) -> None:
    """Give a file a name that no file has."""
    try:
        os.link(file, path)
    except FileExistsError:
        raise
    except OSError:  # a disk without links
        open(path, "x").close()  # takes the name
        os.replace(file, path)


def write_json(path: Path, value: Any, sort: bool = True) -> None:
    """Write JSON, by default with sorted keys, so that equal values give equal bytes."""
    write_text(path, json.dumps(value, indent=1, sort_keys=sort, ensure_ascii=False) + "\n")


def update_json(path: Path, changes: dict[str, Any]) -> None:
    """Replace some keys of an object in a JSON file."""
    write_json(path, {**read_json(path), **changes})


def write_npy(path: Path, array: NDArray[Any], name: str | None = None) -> None:
    """Write an array as `.npy`, or under a name as `.npz`, which has a checksum.

    It fails on a full disk, where `np.save` may leave a truncated file.
    """
    import numpy as np

    content = io.BytesIO()
    if name is None:
        np.save(content, array)
    else:
        np.savez(content, allow_pickle=False, **{name: array})
    with open(path, "wb") as file:
        file.write(content.getbuffer())


def allocate_npy(path: Path, shape: tuple[int, int], dtype: str) -> memmap[Any, Any]:
    """Return an array on the disk, in a new `.npy`; fails on a full disk, where writing to it would crash."""
    import numpy as np

    array: memmap[Any, Any] = np.lib.format.open_memmap(path, "w+", dtype, shape)
    if hasattr(os, "posix_fallocate"):
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a table as Parquet (zstd); equal tables give equal bytes under one pyarrow version."""
    import pyarrow.parquet as pq

    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def write_stream(path: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    """Write record batches as Parquet in row groups of one size; the batches' sizes change no byte."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        waiting = schema.empty_table()
        for batch in batches:
            waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch]).cast(schema)])
            whole = waiting.num_rows - waiting.num_rows % _ROWS_PER_GROUP
            if whole:
                # In one piece, since pages of Parquet end where a piece ends.
                writer.write_table(waiting.slice(0, whole).combine_chunks(), row_group_size=_ROWS_PER_GROUP)
                waiting = waiting.slice(whole)
        if waiting.num_rows:
            writer.write_table(waiting.combine_chunks())


# ---- reading -------------------------------------------------------------------------------------


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        InputError: the file is missing or is not JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (ValueError, RecursionError) as error:  # also a number of 5,000 digits
        raise InputError(f"{path}: not valid JSON: {str(error).partition('; use sys.')[0]}") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def check_version(where: Path | str, version: Any, newest: int) -> int:
    """Return the format version that was found in `where` if it is at most `newest`.

    Raises:
        InputError: it is not a version, or a newer one.
    """
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise InputError(f"{where}: damaged: {version!r} is not a format version")
    if version > newest:
        raise InputError(
            f"{where}: written by a newer sentence-experts (format version {version}, this one reads up to "
            f"{newest}): update it with `pip install -U sentence-experts`"
        )
    return version


def check_kinds(path: Path, value: Mapping[str, Any], **kinds: type) -> None:
    """Check that the values under some keys of a JSON object, where it has them, are of these types.

    Raises:
        InputError: one is not; `path` is the file that the object comes from.
    """
    for name, kind in kinds.items():
        if not isinstance(value.get(name, kind()), kind):
            raise InputError(f"{path}: damaged: {name!r} is a {type(value[name]).__name__}; make it again")


# ---- full disks ----------------------------------------------------------------------------------


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
        if (message := describe_full_disk(error, path)) is not None:
            raise NoSpaceError(message) from error
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            raise InputError(f"{error.filename or path}: {error.strerror}; give a shorter name") from error
        raise


def describe_full_disk(error: BaseException, path: Path) -> str | None:
    """Return the message for an error that a full disk caused, directly or indirectly; None for any other."""
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, OSError) and current.errno in _NO_SPACE:
            path = Path(os.fsdecode(current.filename)) if isinstance(current.filename, str) else path
            break
        # Other errors may quote the user's texts.
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
