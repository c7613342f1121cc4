"""The record of an output: what it was made from, and the hash of every file that was written.

It is `made_from.json` in a folder, and `NAME.json` beside a file, with the keys

- `format`, `format_version`, `version` (of this package)
- `what`: kind of the output, such as "training run"
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
from sentence_experts.storage.files import (
    TEMPORARY,
    check_version,
    read_json,
    remove,
    sync,
)
from sentence_experts.storage.hashes import sha256_file, sha256_unchanging

RECORD = "made_from.json"
# Name, in the folder of an output, of the one that will replace it.
NEW = ".new"
FORMAT = "sentence-experts output"
FORMAT_VERSION = 1
LARGE = 1 << 30  # bytes of weights that are not hashed each time they are read: 0.8 s of CPU per GiB
_MAX_VALUE = 40
_LATER = ("baselines", "followed", "order", "similarity")  # settings that records of earlier versions lack
_KINDS = {"what": str, "settings": dict, "result": dict, "files": dict | None, "owned": list}

Record = dict[str, Any]


# ---- the record ----------------------------------------------------------------------------------


def record_file(path: Path, is_file: bool) -> Path:
    """Return the path of the record of an output."""
    return path.with_name(f"{path.name}.json") if is_file else path / RECORD


def record_of(
    what: str,
    settings: Mapping[str, Any],
    result: Mapping[str, Any],
    files: Mapping[str, str] | None,
    owned: Iterable[str] = (),
) -> Record:
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


def read_record(file: Path) -> Record | None:
    """Read the record of an output; None if there is none, also if the file is something else.

    A record has all its keys, with values of their types, and names only files within its folder.

    Raises:
        InputError: a newer version of this package wrote it.
    """
    try:
        record = read_json(file)
    except InputError:
        return None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        return None
    check_version(file, record.get("format_version"), FORMAT_VERSION)
    if not all(isinstance(record.get(key), kind) for key, kind in _KINDS.items()):
        return None
    files, owned = record["files"] or {}, record["owned"]
    if not all(isinstance(text, str) for text in (*files, *files.values(), *owned)):
        return None
    paths = [Path(name) for name in (*files, *owned)]
    inside = all(path.parts and not path.anchor and ".." not in path.parts for path in paths)
    return record if inside else None


def is_damaged(file: Path) -> bool:
    """Return whether this was a record once, and can no longer be read as one."""
    if not file.is_file() or read_record(file) is not None:
        return False
    content = file.read_text(encoding="utf-8", errors="replace")
    # Else it may be JSON of the user's own.
    return FORMAT in content or (file.name == RECORD and not content.rstrip().endswith("}"))


def read_checked_record(file: Path) -> Record | None:
    """Read the record of an output that is to be read, as `read_record` does.

    Raises:
        InputError: the record is damaged, or a newer version of this package wrote it.
    """
    if (read_record(file.parent / NEW / RECORD) or {}).get("files"):
        raise InputError(
            f"{file.parent}: it is being replaced: try again, or if the command that does so was "
            "interrupted, give it again without `overwrite`"
        )
    if is_damaged(file):
        raise InputError(
            f"{file}: damaged: make {file.parent} again, or remove this file to read it unchecked"
        )
    return read_record(file)


def find_different_setting(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return the name of the first setting that differs, such as "config.learning_rate".

    >>> find_different_setting({"model": "a", "config": {"seed": 1}}, {"model": "a", "config": {"seed": 2}})
    'config.seed'
    """
    for name in dict.fromkeys([*now, *before]):
        old, new = before.get(name), now.get(name)
        if old != new and not (name in _LATER and name not in before):
            inner = isinstance(old, dict) and isinstance(new, dict) and find_different_setting(old, new)
            return f"{name}.{inner}" if inner else name
    return None


def describe_difference(name: str, before: Mapping[str, Any]) -> str:
    """Describe the setting that differs.

    >>> describe_difference("config.seed", {"config": {"seed": 1}})
    'another seed (1)'
    >>> describe_difference("models.tfidf", {"models": {}})
    'other models'
    """
    name = "models" if name.startswith("models.") else name  # their labels may have dots
    value: Any = before
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    # A reader learns nothing from the hash of an input.
    is_short = value is not None and not isinstance(value, dict) and len(str(value)) <= _MAX_VALUE
    shown = f" ({value})" if is_short else ""
    which = "other" if re.search("[^s]s$|data$", name) else "another"
    if name.startswith("columns."):  # of vectors: columns.vector.route
        name = name.rpartition(".")[2].replace("fingerprint", "model or route")
    return f"{which} {name.removeprefix('config.').removeprefix('fetch.')}{shown}"


# ---- reading what was written ----------------------------------------------------------------------


def check_unchanged(path: Path, only: str = "*", but: str = "") -> None:
    """Refuse to read what was damaged, or edited, since it was written.

    Weights of 1 GiB and more are not hashed.

    Args:
        path: an output, or a folder inside one.
        only: a pattern of the files in it that are read.
        but: a pattern of those among them that are not.

    Raises:
        InputError: a file of a finished output is missing or not as its record says; a run is unfinished; its
            record is damaged, or a newer version of this package wrote it.
    """
    own = record_file(path, path.is_file())
    for file, prefix in ((own, ""), (path.parent / RECORD, f"{path.name}/")):
        if (record := read_checked_record(file)) is None:
            continue
        if record["files"] is None and file == own:
            raise InputError(
                f"{path}: this {record['what']} is not finished; give the command that makes it again to "
                "finish it"
            )
        read = {
            name: digest
            for name, digest in (record["files"] or {}).items()
            if name.startswith(prefix)
            and fnmatch(name.removeprefix(prefix), only)
            and not fnmatch(name.removeprefix(prefix), but)
        }
        if (changed := find_changed_file(file.parent, read, _is_unchanged)) is not None:
            raise InputError(f"{changed}: make it again, or remove {file} if you changed it yourself")


def find_changed_file(
    folder: Path,
    hashes: Mapping[str, str],
    is_same: Callable[[Path, str], bool] = lambda file, digest: sha256_file(file) == digest,
) -> str | None:
    """Return the name of a file that is missing or has changed, and how; None if there is none."""
    for name, digest in hashes.items():
        file = folder / name
        if not file.is_file():
            return f"{file} is missing"
        if not is_same(file, digest):
            return f"{file} has changed since it was written"
    return None


def _is_unchanged(file: Path, digest: str) -> bool:
    """Return whether a file has its hash. Large weights are not hashed: loading finds broken ones."""
    if file.suffix == ".safetensors" and file.stat().st_size >= LARGE:
        return True
    return sha256_unchanging(file) == digest


def is_unchanged(folder: Path, hashes: Mapping[str, str]) -> bool:
    """Return whether all these files are in a folder, with the bytes that `hashes_of` saw."""
    return find_changed_file(folder, hashes) is None


def hashes_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return file -> SHA-256 of all files under the names."""
    return {name: sha256_file(folder / name) for name in sorted(files_under(folder, names))}


# ---- replacing what was written --------------------------------------------------------------------


def files_under(folder: Path, names: Iterable[str]) -> set[str]:
    """Return the files that are, or are in, some names in a folder, relative to it; temporary ones, locks and
    what links lead to left out."""
    files = set()
    for name in names:
        path = folder / name
        if os.path.lexists(path) and (path.is_symlink() or not path.is_dir()):
            files.add(name)
            continue
        for inner, folders, inner_names in os.walk(path):
            folders[:] = [each for each in folders if not _is_temporary(each)]
            here = [Path(inner, each) for each in inner_names if not _is_temporary(each)]
            files.update(each.relative_to(folder).as_posix() for each in here)
    return files


def _is_temporary(name: str) -> bool:
    return re.fullmatch(rf"{TEMPORARY}|\.(.+\.)?lock", name) is not None


def list_own_files(folder: Path, names: Iterable[str] = ()) -> set[str]:
    """Return the files that `output` wrote into a folder, relative to it: by its record, or under `names`.

    Files that a link leads to, out of the folder, are left out.
    """
    record = read_record(folder / RECORD)
    owned = names if record is None else record["owned"]
    hashed = {} if record is None else record["files"] or {}
    found = {RECORD, *hashed, *files_under(folder, owned)}
    # An output within this one, such as a trial of a search, may hold files of the user's too.
    for inner in [Path(name).parent for name in found if name.endswith(f"/{RECORD}")]:
        theirs = {(inner / name).as_posix() for name in list_own_files(folder / inner)}
        found -= {name for name in found if Path(name).is_relative_to(inner)} - theirs
    root = folder.resolve()
    return {
        name
        for name in found
        if os.path.lexists(folder / name) and (folder / name).parent.resolve().is_relative_to(root)
    }


def take_place(folder: Path, names: Iterable[str] = ()) -> None:
    """Put the whole output in `NEW`, if there is one, in the place of the old one, under the folder's lock.

    If it is interrupted, the next call goes on: the old record is removed after the old files, and the new
    one comes after the new files.
    """
    new = folder / NEW
    if not (read_record(new / RECORD) or {}).get("files"):
        return
    if (folder / RECORD).exists():
        old = list_own_files(folder, names)
        for name in _record_last(old):
            (folder / name).unlink()
        for inner in sorted({each for name in old for each in Path(name).parents[:-1]}, reverse=True):
            if not any(os.scandir(folder / inner)):
                (folder / inner).rmdir()
    for name in _record_last(files_under(new, os.listdir(new))):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(new / name, folder / name)
    sync(folder, inner=False)
    remove(new)


def _record_last(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (name == RECORD, name))


def check_free(old: Path, new: Path, names: Iterable[str] = (), keeps: Collection[str] = ()) -> None:
    """Refuse to put the files in `new` where `old` has a file, link or folder that is not its own.

    Raises:
        UsageError: it has.
    """
    own = list_own_files(old, names)
    for name in sorted(files_under(new, os.listdir(new))):
        for each in (Path(name), *Path(name).parents[:-1]):
            there = old / each
            in_the_way = str(each) == name or there.is_symlink() or not there.is_dir()
            if in_the_way and each.parts[0] not in keeps and not files_under(old, [each.as_posix()]) <= own:
                raise UsageError(f"{there}: not written by this program, and in the way: move it away")


def check_apart(out: Path | str | None, overwrite: bool, *inputs: Any) -> None:
    """Refuse inputs that are files of the output that will be replaced.

    Args:
        out: the output.
        overwrite: whether it will be replaced.
        inputs: paths, objects with a `path`, and lists and mappings of them; anything else is left out.

    Raises:
        UsageError: an input is one of them.
    """
    own = list_own_files(Path(out)) if out is not None and overwrite else set()
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
