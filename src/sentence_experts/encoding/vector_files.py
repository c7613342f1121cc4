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
from sentence_experts.encoding.config import EncodeConfig
from sentence_experts.errors import UsageError
from sentence_experts.storage import is_url, replacing, write_npy
from sentence_experts.tables import TextTable

FLOAT32, FLOAT16 = "float32", "float16"
WITH_RANGES, BITS = ("int8", "uint8"), ("binary", "ubinary")
NPY, PARQUET = ".npy", ".parquet"
ENDINGS = (PARQUET, NPY)
PRECISIONS = (FLOAT32, FLOAT16, *WITH_RANGES, *BITS)


def is_folder(out: Path | str) -> bool:
    """Whether vectors go to a folder: what is one, a URL, or a name without an ending."""
    return is_url(out) or Path(out).is_dir() or not Path(out).suffix


def check_form(out: Path | None, precision: str, of_folder: bool = False) -> None:
    """Refuse an output that cannot hold vectors of this precision; None means memory, or a folder.

    Raises:
        UsageError: another ending, an unknown precision, or one that needs another kind of file.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"unknown precision {precision!r}: choose {', '.join(PRECISIONS)}")
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
    """The file of the ranges of 8-bit numbers."""
    return out.with_name(f"{out.stem}.ranges{NPY}")


def read_vectors(file: Path) -> NDArray[Any]:
    """The vectors in a file, (texts, dimensions); `.npy` is mapped into memory."""
    if file.suffix == NPY:
        array: NDArray[Any] = np.load(file, mmap_mode="r")
        return array
    column = pq.read_table(file, columns=["vector"])["vector"].combine_chunks()
    rows: NDArray[Any] = column.flatten().to_numpy().reshape(len(column), -1)
    return rows


def shape_of(files: Sequence[Path]) -> tuple[int, int]:
    """(texts, dimensions) of all vectors in chunk files."""
    shapes = [np.load(file, mmap_mode="r").shape for file in files]
    return sum(rows for rows, _ in shapes), shapes[0][1]


def write_vectors(
    path: Path,
    ranges: Path,
    out: Path,
    files: Sequence[Path],
    source: TextTable,
    config: EncodeConfig,
    made_by: dict[str, str],
) -> None:
    """Join chunk files to one file of vectors, in the form and precision wanted.

    Args:
        path: the file to write, which becomes `out`.
        ranges: the file of the ranges of 8-bit numbers, which goes beside `out`.
        out: its ending decides the form.
        files: from `encode_chunks`.
        source: the texts, whose ids a `.parquet` file holds.
        config: the settings of the chunks.
        made_by: metadata of a `.parquet` file.
    """
    if out.suffix == NPY:
        write_in_precision(path, files, config.precision, ranges)
    else:
        write_parquet(path, files, source, config.chunk_size, made_by)


def write_in_precision(
    out: Path, files: Sequence[Path], precision: str, ranges_file: Path | None = None
) -> None:
    """Join chunk files to one `.npy` in a precision; the ranges of 8-bit numbers go to a file beside it."""
    ranges = None
    if precision in WITH_RANGES:
        bounds = np.stack([np.stack([part.min(axis=0), part.max(axis=0)]) for part in map(np.load, files)])
        ranges = np.stack([bounds[:, 0].min(axis=0), bounds[:, 1].max(axis=0)])  # (2, dimensions)
        with replacing(ranges_file or ranges_beside(out)) as temporary:
            write_npy(temporary, ranges)
    write_matrix(out, files, _conversion(precision, ranges))


def write_matrix(
    path: Path, files: Sequence[Path], convert: Callable[[Vectors], NDArray[Any]] = lambda vectors: vectors
) -> None:
    """Join chunk files to one `.npy` of shape (texts, dimensions), with one chunk at a time in memory.

    Args:
        path: the file.
        files: from `encode_chunks`.
        convert: (texts, dimensions) float32 -> the rows to write.
    """
    rows, _ = shape_of(files)
    example = convert(np.load(files[0], mmap_mode="r")[:1])
    kind = example.dtype.newbyteorder("<")
    with open(path, "wb") as out:
        header = {"descr": kind.str, "fortran_order": False, "shape": (rows, example.shape[1])}
        np.lib.format.write_array_header_2_0(out, header)
        for file in files:
            out.write(np.ascontiguousarray(convert(np.load(file)), dtype=kind).tobytes())


def in_precision(vectors: Vectors, precision: str) -> NDArray[Any]:
    """Vectors of shape (texts, dimensions) in a precision that needs no ranges."""
    return _conversion(precision, None)(vectors)


def _conversion(precision: str, ranges: Vectors | None) -> Callable[[Vectors], NDArray[Any]]:
    if precision in (FLOAT32, FLOAT16):
        return lambda vectors: vectors.astype(precision, copy=False)
    from sentence_transformers.util import quantize_embeddings

    # Typed for both tensors and arrays.
    quantize: Callable[..., Any] = quantize_embeddings
    return lambda vectors: quantize(np.asarray(vectors), precision=precision, ranges=ranges)  # type: ignore[no-any-return]


def write_parquet(
    out: Path, files: Sequence[Path], source: TextTable, chunk_size: int, made_by: dict[str, str]
) -> None:
    """Join chunk files to one `.parquet` with the rows' numbers and, if wanted, the texts' ids.

    Args:
        out: the file.
        files: from `encode_chunks`.
        source: the texts, and the column with their ids.
        chunk_size: number of texts per file.
        made_by: metadata of the file.
    """
    dimension = shape_of(files)[1]
    fields = [pa.field("row", pa.int64()), pa.field("vector", pa.list_(pa.float32(), dimension))]
    if source.id_column:
        fields.insert(1, pa.field("id", pa.string()))
    schema = pa.schema(fields, metadata=made_by)
    first = 0
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for vectors, rows in zip(map(np.load, files), source.chunks(chunk_size), strict=True):
            flat = pa.array(vectors.ravel(), pa.float32())
            columns = {
                "row": range(first, first + len(rows)),
                "id": [row.id for row in rows],
                "vector": pa.FixedSizeListArray.from_arrays(flat, dimension),
            }
            writer.write_table(pa.table([columns[name] for name in schema.names], schema=schema))
            first += len(rows)
