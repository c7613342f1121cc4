"""The record of an output: what it was made from, and the hash of every file that was written.

It is `made_from.json` in a folder, and `NAME.json` beside a file, with the keys

- `format`, `format_version`, `version` (of this package)
- `what`: such as "training run"
- `settings`: those that decide the result, and the fingerprints of what was read
- `result`: small values such as counts, for a run that finds the output finished
- `files`: file -> SHA-256; null while the output is not finished
- `owned`: names in the folder that belong to the run with all that is in them, without hashes
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path
from typing import Any

from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage.disk import remove, sync
from sentence_experts.storage.files import (
    check_version,
    read_json,
    sha256_file,
    sha256_unchanging,
    write_json,
)

RECORD = "made_from.json"
# In the folder of an output: the one that will replace it, while it grows, and when it is whole.
NEW, WHOLE = ".new", ".whole"
FORMAT = "sentence-experts output"
FORMAT_VERSION = 1
_MAX_VALUE = 40
LARGE = 1 << 30  # bytes of weights that are not hashed each time they are read: 0.8 s of CPU per GiB
_KINDS = {"what": str, "settings": dict, "result": dict, "files": dict | None, "owned": list}


def note_changes(folder: Path, names: Iterable[str]) -> None:
    """Note that this package added or changed files of `folder`, a finished output or a folder in one."""
    for home in (folder, folder.parent):
        record = read_record(home / RECORD)
        if record is None or record["files"] is None:
            continue
        prefix = "" if home == folder else f"{folder.name}/"
        if home == folder or any(name.startswith(prefix) for name in record["files"]):
            hashes = hashes_of(folder, names)
            files = record["files"] | {f"{prefix}{name}": digest for name, digest in hashes.items()}
            write_json(home / RECORD, record | {"files": files})


def own_files(folder: Path, names: Iterable[str] = ()) -> set[str]:
    """Return the files that `output` wrote into a folder, relative to it: by its record, or under `names`."""
    record = read_record(folder / RECORD)
    owned = names if record is None else record["owned"]
    files = set() if record is None else set(record["files"] or {})
    own = {RECORD, *files, *(name for each in owned for name in _files_under(folder, each))}
    return {name for name in own if os.path.lexists(folder / name)}


def removable_files(folder: Path, names: Iterable[str] = ()) -> list[str]:
    """Return `own_files`, the record last.

    Raises:
        InputError: a link leads out of the folder.
    """
    own = sorted(own_files(folder, names), key=lambda name: name == RECORD)
    for name in own:
        if not (folder / name).parent.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{folder / name}: a link leads out of {folder}: remove it yourself")
    return own


def remove_own_files(folder: Path, names: Iterable[str] = ()) -> None:
    """Remove `own_files`, and the folders that are empty then; call it under the folder's lock.

    Raises:
        InputError: a link leads out of the folder.
    """
    own = removable_files(folder, names)
    for name in own:
        (folder / name).unlink()
    for inner in sorted({each for name in own for each in Path(name).parents[:-1]}, reverse=True):
        if not any(os.scandir(folder / inner)):
            (folder / inner).rmdir()


def take_place(folder: Path, names: Iterable[str] = ()) -> None:
    """Put the whole output in `WHOLE`, or `NEW`, in the place of the old one, under the folder's lock.

    If it is interrupted, the next call goes on: the old record is removed after the old files, and the new
    one comes after the new files.
    """
    new, whole = folder / NEW, folder / WHOLE
    if (read_record(new / RECORD) or {}).get("files"):  # finished, and interrupted before this rename
        os.replace(new, whole)
    if not whole.is_dir():
        return
    if (whole / RECORD).is_file():
        if (folder / RECORD).exists():
            remove_own_files(folder, names)
        for name in sorted(files_in(whole), key=lambda name: name == RECORD):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(whole / name, folder / name)
        sync(folder, inner=False)
    remove(whole)


def check_apart(out: Path | str | None, overwrite: bool, *inputs: Any) -> None:
    """Refuse inputs that are files of the output that will be replaced.

    Args:
        out: the output.
        overwrite: whether it will be replaced.
        inputs: paths, objects with a `path`, and lists and mappings of them; anything else is left out.

    Raises:
        UsageError: an input is one of them.
    """
    own = own_files(Path(out)) if out is not None and overwrite else set()
    if out is None or not own:
        return
    for given in inputs:
        if isinstance(given, Mapping):
            check_apart(out, True, *given.values())
        elif isinstance(given, list | tuple) and not any(isinstance(row, Mapping) for row in given):
            check_apart(out, True, *given)
        path = getattr(given, "path", given)
        if isinstance(path, str | Path) and os.path.exists(path):
            inner = Path(os.path.relpath(os.path.realpath(path), os.path.realpath(out))).as_posix()
            if any(inner == "." or name == inner or name.startswith(f"{inner}/") for name in own):
                raise UsageError(
                    f"{path} is read, and is in {out}, which `overwrite` would replace: give another `out`, "
                    "or read a copy elsewhere"
                )


def check_unchanged(folder: Path, but: str = "") -> None:
    """Refuse to read what was damaged, or edited, since it was written.

    Weights of 1 GiB and more are not hashed.

    Args:
        folder: an output, or a folder inside one.
        but: a pattern of the files in `folder` that are not read.

    Raises:
        InputError: a file of a finished output is missing or not as its record says; a run is unfinished; its
            record is damaged, or a newer version of this package wrote it.
    """
    record = checked_record(folder / RECORD)
    if record is not None and record["files"] is None:
        raise InputError(
            f"{folder}: this {record['what']} is not finished; give the command that makes it again to "
            "finish it"
        )
    for home, prefix in ((folder, ""), (folder.parent, f"{folder.name}/")):
        files = (checked_record(home / RECORD) or {}).get("files") or {}
        read = {
            name: digest
            for name, digest in files.items()
            if name.startswith(prefix) and not fnmatch(name.removeprefix(prefix), but)
        }
        if (changed := changed_file(home, read, _is_unchanged)) is not None:
            raise InputError(
                f"{changed}: make it again, or remove {home / RECORD} if you changed it yourself"
            )


def _has_hash(file: Path, digest: str) -> bool:
    return sha256_file(file) == digest


def changed_file(
    folder: Path, hashes: Mapping[str, str], is_same: Callable[[Path, str], bool] = _has_hash
) -> str | None:
    """Return which of some files is missing or has changed, and how; None if none has."""
    for name, digest in hashes.items():
        file = folder / name
        if not file.is_file():
            return f"{file} is missing"
        if not is_same(file, digest):
            return f"{file} has changed since it was written"
    return None


def _is_unchanged(file: Path, digest: str) -> bool:
    """Whether a file has its hash. Large weights are not hashed: loading finds out whether they are whole."""
    if file.suffix == ".safetensors" and file.stat().st_size >= LARGE:
        return True
    return sha256_unchanging(file) == digest


def different_setting(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return the name of the first setting that differs, such as "config.learning_rate".

    >>> different_setting({"model": "a", "config": {"seed": 1}}, {"model": "a", "config": {"seed": 2}})
    'config.seed'
    """
    for name in dict.fromkeys([*now, *before]):
        old, new = before.get(name), now.get(name)
        if old != new:
            inner = isinstance(old, dict) and isinstance(new, dict) and different_setting(old, new)
            return f"{name}.{inner}" if inner else name
    return None


def described(name: str, before: Mapping[str, Any]) -> str:
    """Describe the setting that differs, such as "another seed (1)", or "other sources"."""
    value: Any = before
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    # A reader learns nothing from the hash of an input.
    shown = "" if value is None or len(str(value)) > _MAX_VALUE else f" ({value})"
    which = "other" if re.search("[^s]s$", name) else "another"
    return f"{which} {name.removeprefix('config.').removeprefix('fetch.')}{shown}"


def record_file(path: Path, is_file: bool) -> Path:
    """Return the path of the record of an output."""
    return path.with_name(f"{path.name}.json") if is_file else path / RECORD


def record_of(
    what: str,
    settings: Mapping[str, Any],
    result: Mapping[str, Any],
    files: Mapping[str, str] | None,
    owned: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the record of an output, as it is written."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": metadata.version("sentence-experts"),
        "what": what,
        "settings": dict(settings),
        "result": dict(result),
        "files": files,
        "owned": sorted(owned),
    }


def checked_record(file: Path) -> dict[str, Any] | None:
    """Read the record of an output that is to be read, as `read_record` does.

    Raises:
        InputError: the record is damaged, or a newer version of this package wrote it.
    """
    if (file.parent / WHOLE / RECORD).is_file():
        raise InputError(
            f"{file.parent}: it was being replaced when a command was interrupted: give that command again, "
            "without `overwrite`, to finish it"
        )
    if is_damaged(file):
        raise InputError(
            f"{file}: damaged: make {file.parent} again, or remove this file to read it unchecked"
        )
    return read_record(file)


def is_damaged(file: Path) -> bool:
    """Whether this was a record once, and can no longer be read as one."""
    if not file.is_file() or read_record(file) is not None:
        return False
    content = file.read_text(encoding="utf-8", errors="replace")
    if FORMAT in content or sum(f'"{key}"' in content for key in _KINDS) > 2:
        return True
    return file.name == RECORD and not content.rstrip().endswith("}")  # else it may be JSON of the user's own


def read_record(file: Path) -> dict[str, Any] | None:
    """Read the record of an output; None if there is none, also if the file is something else.

    A record has all its keys, with values of their types, and names only files within its folder.

    Raises:
        InputError: a newer version of this package wrote it.
    """
    try:
        record = read_json(file)
    except (InputError, OSError):
        return None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        return None
    check_version(file, record.get("format_version"), FORMAT_VERSION)
    if not all(isinstance(record.get(key), kind) for key, kind in _KINDS.items()) or "files" not in record:
        return None
    files, owned = record["files"] or {}, record["owned"]
    if not all(isinstance(text, str) for text in (*files, *files.values(), *owned)):
        return None
    paths = [Path(name) for name in (*files, *owned)]
    inside = all(path.parts and not path.anchor and ".." not in path.parts for path in paths)
    return record if inside else None


def hashes_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return file -> SHA-256 of all files under the names."""
    files = {name for each in names for name in _files_under(folder, each)}
    return {name: sha256_file(folder / name) for name in sorted(files)}


def is_unchanged(folder: Path, hashes: Mapping[str, str]) -> bool:
    """Whether all these files are in a folder, with the bytes that `hashes_of` saw."""
    return changed_file(folder, hashes) is None


def _files_under(folder: Path, name: str) -> set[str]:
    return {f"{name}/{each}" if each else name for each in files_in(folder / name)}


def files_in(path: Path) -> set[str]:
    """Return the files in a folder, relative to it, but temporary ones and locks; "" for a file itself."""
    if not path.is_dir():
        return {""} if os.path.lexists(path) else set()
    files = set()
    for inner, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not _is_temporary(name)]
        files |= {Path(inner, name).relative_to(path).as_posix() for name in names if not _is_temporary(name)}
    return files


def check_free(old: Path, new: Path, names: Iterable[str] = (), keeps: Collection[str] = ()) -> None:
    """Refuse to put the files in `new` where `old` has a file, link or folder that is not its own.

    Raises:
        UsageError: it has.
    """
    own = own_files(old, names)
    for name in sorted(files_in(new)):
        for each in (Path(name), *Path(name).parents[:-1]):
            there, is_needed = old / each, str(each) == name
            is_folder = there.is_dir() and not there.is_symlink()
            if not os.path.lexists(there) or each.as_posix() in own or each.parts[0] in keeps:
                continue
            if is_folder and (not is_needed or _files_under(old, each.as_posix()) <= own):
                continue
            raise UsageError(f"{there}: not written by this program, and in the way: move it away")


def _is_temporary(name: str) -> bool:
    return re.fullmatch(r"\..+\.\d+(\.scratch\.\w+)?\.tmp|\.(.+\.)?lock", name) is not None
