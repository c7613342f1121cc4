"""Files of vectors: `.parquet`, or `.npy` in any precision (by sentence-transformers' own quantization).

8-bit numbers are steps between the least and the largest value of each dimension over all vectors. These
bounds are written beside the file (`NAME.ranges.npy`), because queries must be quantized with the same:
`quantize_embeddings(queries, precision, ranges=np.load("NAME.ranges.npy"))`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.encoding.chunks import Vectors
from sentence_experts.errors import UsageError
from sentence_experts.storage import is_url, write_npy

FLOAT32, FLOAT16 = "float32", "float16"
WITH_RANGES = ("int8", "uint8")
NPY, PARQUET = ".npy", ".parquet"
ENDINGS = (PARQUET, NPY)


def is_folder(out: Path | str) -> bool:
    """Whether vectors go to a folder: what is one, a URL, or a name without an ending."""
    return is_url(out) or Path(out).is_dir() or not Path(out).suffix


def check_form(out: Path | None, precision: str, of_folder: bool = False) -> None:
    """Refuse an output that cannot hold vectors of this precision; None means memory, or a folder.

    Raises:
        UsageError: another ending, or a precision that needs another kind of file.
    """
    if of_folder and precision != FLOAT32:
        raise UsageError(f"`precision={precision}`: a folder holds {FLOAT32}; other vectors go to {NPY}")
    if out is None and precision in WITH_RANGES:
        raise UsageError(
            f"`precision={precision}` also writes the ranges of its steps, beside `out`: give `out`"
        )
    if out is not None and precision != FLOAT32 and out.suffix != NPY:
        raise UsageError(f"{out}: vectors of {precision} are written to {NPY}")
    if out is not None and out.suffix not in ENDINGS:
        raise UsageError(f"{out}: the output's name must end in {' or '.join(ENDINGS)}, or be a folder's")


def ranges_beside(out: Path) -> Path:
    """Return the name of the file of the ranges of 8-bit numbers."""
    return out.with_name(f"{out.stem}.ranges{NPY}")


def read_vectors(file: Path) -> NDArray[Any]:
    """Read the vectors in a file, (texts, dimensions); `.npy` is mapped into memory."""
    if file.suffix == NPY:
        array: NDArray[Any] = np.load(file, mmap_mode="r")
        return array
    # `pq.read_table` and `to_numpy` would import pandas.
    with pq.ParquetFile(file) as parquet:
        column = parquet.read(columns=["vector"])["vector"].combine_chunks()
    values = column.flatten()
    numbers = np.frombuffer(values.buffers()[1], values.type.to_pandas_dtype())
    rows: NDArray[Any] = numbers[values.offset : values.offset + len(values)].reshape(len(column), -1)
    return rows


def write_in_precision(out: Path, files: Sequence[Path], rows: int, precision: str) -> None:
    """Join files of vectors to one `.npy` in a precision; ranges of 8-bit numbers go to a file beside it.

    Args:
        out: the file.
        files: parts of an encoding, or other files of vectors.
        rows: the number of vectors in all files.
        precision: as `EncodeConfig` has it.
    """
    ranges = None
    if precision in WITH_RANGES:
        bounds = np.stack(
            [np.stack([part.min(axis=0), part.max(axis=0)]) for part in map(read_vectors, files)]
        )
        ranges = np.stack([bounds[:, 0].min(axis=0), bounds[:, 1].max(axis=0)])  # (2, dimensions)
        write_npy(ranges_beside(out), ranges)
    convert = _conversion(precision, ranges)
    example = convert(read_vectors(files[0])[:1])
    kind = example.dtype.newbyteorder("<")
    with open(out, "wb") as target:
        header = {"descr": kind.str, "fortran_order": False, "shape": (rows, example.shape[1])}
        np.lib.format.write_array_header_2_0(target, header)
        for file in files:
            target.write(np.ascontiguousarray(convert(read_vectors(file)), dtype=kind).tobytes())


def in_precision(vectors: Vectors, precision: str) -> NDArray[Any]:
    """Return vectors of shape (texts, dimensions) in a precision that needs no ranges."""
    return _conversion(precision, None)(vectors)


def _conversion(precision: str, ranges: Vectors | None) -> Callable[[Vectors], NDArray[Any]]:
    if precision in (FLOAT32, FLOAT16):
        return lambda vectors: vectors.astype(precision, copy=False)
    from sentence_transformers.util import quantize_embeddings

    # Typed for both tensors and arrays.
    quantize: Callable[..., Any] = quantize_embeddings
    return lambda vectors: quantize(np.asarray(vectors), precision=precision, ranges=ranges)  # type: ignore[no-any-return]


def write_parquet(out: Path, files: Sequence[Path], made_by: dict[str, str]) -> None:
    """Join parts to one `.parquet`; `made_by` is its metadata."""
    schema = pa.schema([field.remove_metadata() for field in pq.read_schema(files[0])], metadata=made_by)
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for file in files:
            writer.write_table(pq.read_table(file, partitioning=None).cast(schema))
