"""Vectors on a disk: `.parquet`, `.npy` in any precision (by sentence-transformers' quantization), folders.

8-bit numbers are steps between the least and the largest value of each dimension over all vectors. These
bounds are written beside the file (`NAME.ranges.npy`), because queries must be quantized with the same:
`quantize_embeddings(queries, precision, ranges=np.load("NAME.ranges.npy"))`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.encoding.chunks import Vectors
from sentence_experts.errors import InputError, UsageError, require
from sentence_experts.storage import RECORD, checked_record, write_npy

if TYPE_CHECKING:
    import pandas as pd

WHAT = {False: "file of vectors", True: "folder of vectors"}
FLOAT32, FLOAT16 = "float32", "float16"
WITH_RANGES = ("int8", "uint8")
NPY, PARQUET = ".npy", ".parquet"
_ROWS_PER_BATCH = 4096


def is_folder(out: Path | str) -> bool:
    """Whether vectors go to a folder: what is one, or a name without an ending."""
    return Path(out).is_dir() or not Path(out).suffix


def check_form(out: Path | None, precision: str) -> None:
    """Refuse an output that cannot hold vectors of this precision; None means memory.

    Raises:
        UsageError: another ending, or a precision that needs another kind of file.
    """
    if out is None:
        if precision in WITH_RANGES:
            raise UsageError(f"`precision={precision}` also writes the ranges of its steps: give `out`")
    elif re.match(r"\w\w+:/", str(out)):  # `s3://...` as a path
        raise UsageError(f"{out}: vectors are written to a disk: name a file or folder, and copy it")
    elif precision != FLOAT32 and out.suffix != NPY:
        raise UsageError(f"{out}: vectors of {precision} are written to {NPY}")
    elif not is_folder(out) and out.suffix not in (NPY, PARQUET):
        raise UsageError(f"{out}: the output's name must end in {PARQUET} or {NPY}, or be a folder's")


def ranges_beside(out: Path) -> Path:
    """Return the name of the file of the ranges of 8-bit numbers."""
    return out.with_name(f"{out.stem}.ranges{NPY}")


@dataclass(frozen=True)
class Encoded:
    """Vectors that `encode` wrote: a file (`.npy` or `.parquet`), or a folder of Parquet files.

    Attributes:
        path: the file or folder.
        texts, empty: the number of texts, and of empty ones among them.
        dimension: of a vector.
        routes: column -> route of its vectors (None for a model without routes).
        model: what the model is called.
        settings: what decided the vectors.
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
        record = checked_record(path / RECORD if path.is_dir() else path.with_name(f"{path.name}.json"))
        if record is None or record["what"] != WHAT[path.is_dir()] or record["files"] is None:
            raise InputError(f"{path}: not vectors that `encode` wrote and finished")
        return cls(path, **record["result"], settings=record["settings"])

    @property
    def files(self) -> list[Path]:
        """The files, in the order of the texts."""
        return sorted(self.path.glob(f"part-*{PARQUET}")) if self.path.is_dir() else [self.path]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of Parquet files: `row`, `id` (if wanted) and a column of vectors for each route.

        Raises:
            InputError: a file is damaged.
        """
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
        """
        if (name := column or (next(iter(self.routes)) if len(self.routes) == 1 else "")) not in self.routes:
            raise UsageError(f"name one of the columns {', '.join(self.routes)}")
        if self.path.suffix == NPY:
            return read_vectors(self.path)
        vectors = np.empty((self.texts, self.dimension), np.float32)
        done = 0
        for batch in self.batches([name]):
            vectors[done : done + len(batch)] = batch.column(0).flatten().to_numpy().reshape(len(batch), -1)
            done += len(batch)
        return vectors

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per text: `row`, `id` (if wanted), and a column of vectors for each route."""
        import pandas as pd

        if self.path.suffix == NPY:
            return pd.DataFrame({"row": range(self.texts), "vector": list(self.vectors())})
        frame: pd.DataFrame = pa.Table.from_batches(self.batches()).to_pandas()
        return frame


def read_vectors(file: Path, column: str = "vector") -> NDArray[Any]:
    """Read the vectors in a file, (texts, dimensions); `.npy` is mapped into memory."""
    if file.suffix == NPY:
        array: NDArray[Any] = np.load(file, mmap_mode="r")
        return array
    # `pq.read_table` and `to_numpy` would import pandas.
    with pq.ParquetFile(file) as parquet:
        vectors = parquet.read(columns=[column])[column].combine_chunks()
    values = vectors.flatten()
    numbers = np.frombuffer(values.buffers()[1], values.type.to_pandas_dtype())
    rows: NDArray[Any] = numbers[values.offset : values.offset + len(values)].reshape(len(vectors), -1)
    return rows


def write_in_precision(out: Path, files: Sequence[Path], rows: int, precision: str) -> None:
    """Join files of vectors, `rows` in all, to one `.npy`; ranges of 8-bit numbers go to a file beside it."""
    ranges = None
    if precision in WITH_RANGES:
        bounds = [(part.min(axis=0), part.max(axis=0)) for part in map(read_vectors, files)]
        least, largest = map(np.array, zip(*bounds, strict=True))
        ranges = np.stack([least.min(axis=0), largest.max(axis=0)])  # (2, dimensions)
        write_npy(ranges_beside(out), ranges)
    joined, done = None, 0
    for file in files:
        part = in_precision(read_vectors(file), precision, ranges)
        if joined is None:
            joined = np.lib.format.open_memmap(out, "w+", part.dtype, (rows, part.shape[1]))
        joined[done : done + len(part)] = part
        done += len(part)


def in_precision(vectors: Vectors, precision: str, ranges: Vectors | None = None) -> NDArray[Any]:
    """Return vectors, (texts, dimensions), in a precision; 8-bit numbers are steps of `ranges`."""
    if precision in (FLOAT32, FLOAT16):
        return vectors.astype(precision, copy=False)
    quantize = require("sentence_transformers.util", "models").quantize_embeddings
    quantized: NDArray[Any] = quantize(np.asarray(vectors), precision=precision, ranges=ranges)
    return quantized


def write_parquet(out: Path, files: Sequence[Path], made_by: dict[str, str]) -> None:
    """Join parts to one `.parquet`; `made_by` is its metadata."""
    schema = pa.schema([field.remove_metadata() for field in pq.read_schema(files[0])], metadata=made_by)
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for file in files:
            writer.write_table(pq.read_table(file, partitioning=None).cast(schema))
