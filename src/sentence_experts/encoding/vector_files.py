"""Vectors on a disk: `.parquet` or `.npy`, or folders of Parquet files."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import RECORD, allocate_npy, check_unchanged, read_checked_record

if TYPE_CHECKING:
    import pandas as pd

WHAT = {False: "file of vectors", True: "folder of vectors"}
NPY, PARQUET = ".npy", ".parquet"
ROW, ID, VECTOR = "row", "id", "vector"  # columns
_ROWS_PER_BATCH = 4096


def is_folder(out: Path | str) -> bool:
    """Return whether vectors go to a folder: an existing one, or a name without an ending."""
    return Path(out).is_dir() or not Path(out).suffix


def part_name(number: int) -> str:
    """Return the name of a file in a folder of vectors."""
    return f"part-{number:06d}{PARQUET}"


def check_form(out: Path, precision: str) -> None:
    """Refuse an output that cannot hold vectors of this precision.

    Raises:
        UsageError: another ending, also of what a link leads to, or a precision that needs another
            kind of file.
    """
    if re.match(r"\w\w+:/", str(out)):  # `s3://...` as a path
        raise UsageError(f"{out}: vectors are written to a disk: name a file or folder, and copy it")
    if precision != "float32" and out.suffix != NPY:
        raise UsageError(f"{out}: vectors of {precision} are written to {NPY}")
    if not is_folder(out) and out.suffix not in (NPY, PARQUET):
        raise UsageError(f"{out}: the output's name must end in {PARQUET} or {NPY}, or be a folder's")
    if not out.is_dir() and (real := Path(os.path.realpath(out))).suffix != out.suffix:
        raise UsageError(
            f"{out} is a link to {real}: give a name of a {NPY} or {PARQUET} file, or of a folder"
        )


@dataclass(frozen=True)
class Encoded:
    """Vectors that `encode` wrote: a file (`.npy` or `.parquet`), or a folder of Parquet files.

    Attributes:
        path: the file or folder.
        texts, empty: number of texts, and of empty ones among them.
        dimension: length of a vector.
        routes: column -> route of its vectors (None for a model without routes).
        model: name of the model.
        settings: settings that decided the vectors.
    """

    path: Path
    texts: int
    empty: int
    dimension: int
    routes: Mapping[str, str | None]
    model: str
    settings: Mapping[str, Any] = field(repr=False)

    @classmethod
    def open(cls, path: Path | str) -> Encoded:
        """Open vectors that are finished.

        Raises:
            InputError: there are none, or a newer version of this package wrote them.
        """
        path = Path(path)
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        record = read_checked_record(path / RECORD if path.is_dir() else path.with_name(f"{path.name}.json"))
        if record is None or record["what"] != WHAT[path.is_dir()] or record["files"] is None:
            raise InputError(f"{path}: not vectors that `encode` wrote and finished")
        return cls(path, **record["result"], settings=record["settings"])

    @property
    def files(self) -> list[Path]:
        """The files, in the order of the texts."""
        if not self.path.is_dir():
            return [self.path]
        parts = math.ceil(self.texts / self.settings["shard_size"])
        return [self.path / part_name(number) for number in range(parts)]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of Parquet files: `row`, `id` (if wanted) and a column of vectors for each route.

        Raises:
            InputError: a file is missing, damaged or changed.
        """
        check_unchanged(self.path)
        for file in self.files:
            try:
                with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
                    yield from parquet.iter_batches(_ROWS_PER_BATCH, columns=columns)
            except (OSError, pa.ArrowException) as error:
                raise InputError(f"{file}: damaged ({error}): give `overwrite`") from error

    def vectors(self, column: str | None = None) -> NDArray[Any]:
        """Return the vectors of a route, (texts, dimensions); `.npy` is mapped into memory.

        `column` may be left out if there is one route.

        Raises:
            UsageError: there is no such column, or none is named of several.
            InputError: a file is missing, damaged or changed.
        """
        if (name := column or (next(iter(self.routes)) if len(self.routes) == 1 else "")) not in self.routes:
            raise UsageError(f"name one of the columns {', '.join(self.routes)}")
        if self.path.suffix == NPY:
            check_unchanged(self.path)
            array: NDArray[Any] = np.load(self.path, mmap_mode="r")
            return array
        vectors = np.empty((self.texts, self.dimension), np.float32)
        done = 0
        for batch in self.batches([name]):
            vectors[done : done + len(batch)] = _read_rows(batch.column(0))
            done += len(batch)
        return vectors

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per text: `row`, `id` (if wanted), and a column of vectors for each route."""
        import pandas as pd

        if self.path.suffix == NPY:
            return pd.DataFrame({"row": range(self.texts), "vector": list(self.vectors())})
        frame: pd.DataFrame = pa.Table.from_batches(self.batches()).to_pandas()
        return frame


def write_vectors(out: Path, files: Sequence[Path], rows: int, precision: str) -> None:
    """Join parts, `rows` vectors in all, to one `.npy`."""
    joined, done = None, 0
    for file in files:
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(_ROWS_PER_BATCH, columns=[VECTOR]):
                part = _read_rows(batch.column(0))
                if joined is None:
                    joined = allocate_npy(out, (rows, part.shape[1]), precision)
                joined[done : done + len(part)] = as_precision(part, precision)
                done += len(part)


def as_precision(vectors: NDArray[np.float32], precision: str) -> NDArray[Any]:
    """Return vectors as numbers of this type.

    Raises:
        InputError: one is too large for it.
    """
    with np.errstate(over="ignore"):
        cast = vectors.astype(precision, copy=False)
    if cast.dtype != vectors.dtype and not np.isfinite(cast).all():
        raise InputError(f"vectors have numbers that {precision} cannot hold; leave out `precision`")
    return cast


def _read_rows(vectors: pa.FixedSizeListArray) -> NDArray[np.float32]:
    """Return a column of vectors as an array, without pandas, which `to_numpy` would import."""
    values = vectors.flatten()
    numbers = np.frombuffer(values.buffers()[1], np.float32)
    rows: NDArray[np.float32] = numbers[values.offset : values.offset + len(values)]
    return rows.reshape(len(vectors), -1)


def write_parquet(out: Path, files: Sequence[Path], made_by: dict[str, str]) -> None:
    """Join parts to one `.parquet`; `made_by` is its metadata."""
    schema = pa.schema([field.remove_metadata() for field in pq.read_schema(files[0])], metadata=made_by)
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for file in files:
            writer.write_table(pq.read_table(file, partitioning=None).cast(schema))
