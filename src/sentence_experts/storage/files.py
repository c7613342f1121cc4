"""Single files: written under a temporary name and renamed; JSON, Parquet, hashes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_experts.errors import InputError
from sentence_experts.progress import announced
from sentence_experts.storage.disk import check_regular, sync, temporary_beside

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_ROWS_PER_GROUP = 1 << 14
_LARGE = 1 << 30  # bytes, which take seconds


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


def open_to_readers(path: Path) -> None:
    """Give files that a library wrote for their owner alone, as safetensors does, the mode of any new file.

    `path` is such a file, or a folder of them.
    """
    os.umask(mask := os.umask(0o077))
    for file in (path, *path.rglob("*")):
        if file.is_file() and stat.S_IMODE(file.stat().st_mode) == 0o600:
            file.chmod(0o666 & ~mask)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path` that takes the place of `path` on success."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_beside(path)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        open_to_readers(temporary)
        sync(temporary)
        if path.exists():
            retired = temporary_beside(path, ".old")
            os.replace(path, retired)
            os.replace(temporary, path)
            shutil.rmtree(retired)
        else:
            os.replace(temporary, path)
        sync(path.parent, inner=False)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any, sort: bool = True) -> None:
    """Write JSON, by default with sorted keys, so that equal values give equal bytes."""
    write_text(path, json.dumps(value, indent=1, sort_keys=sort, ensure_ascii=False) + "\n")


def update_json(path: Path, changes: dict[str, Any]) -> None:
    """Replace some keys of an object in a JSON file."""
    write_json(path, {**read_json(path), **changes})


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        InputError: the file is missing or is not JSON.
    """
    check_regular(path)
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except RecursionError as error:
        raise InputError(f"{path}: not valid JSON: nested too deep") from error
    except ValueError as error:  # also a number of 5,000 digits
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


def write_npy(path: Path, array: NDArray[Any]) -> None:
    """Write an array as `.npy`; fails on a full disk, where `np.save` may leave a truncated file."""
    import numpy as np

    content = io.BytesIO()
    np.save(content, array)
    with open(path, "wb") as file:
        file.write(content.getbuffer())


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


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hex, read in blocks."""
    waits = announced(f"checking {path.name}") if path.stat().st_size > _LARGE else nullcontext()
    with open(path, "rb") as file, waits:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_unchanging(path: Path) -> str:
    """Return `sha256_file`, computed once for a file that keeps its size and time."""
    status = path.stat()
    return _hash_of(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4096)
def _hash_of(file: Path, size: int, changed: int) -> str:
    return sha256_file(file)


def sha256_settings(settings: Any) -> str:
    """Return the SHA-256 of JSON values, which does not depend on the order of their keys."""
    return sha256_text(json.dumps(settings, sort_keys=True))


def sha256_text(*parts: str) -> str:
    """Return the SHA-256 of several strings, each ended by a zero byte so that boundaries count."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode("utf-8") + b"\0")
    return digest.hexdigest()
