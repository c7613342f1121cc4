"""Vectors in fewer bits, by sentence-transformers' own quantization.

8-bit numbers are steps between the least and the largest value of each dimension over all vectors. These
bounds are written beside the file (`NAME.ranges.npy`), because queries must be quantized with the same:
`quantize_embeddings(queries, precision, ranges=np.load("NAME.ranges.npy"))`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.encoding.chunks import Vectors
from sentence_experts.errors import UsageError
from sentence_experts.storage import replacing, write_npy

FLOAT32, FLOAT16 = "float32", "float16"
WITH_RANGES, BITS = ("int8", "uint8"), ("binary", "ubinary")
PRECISIONS = (FLOAT32, FLOAT16, *WITH_RANGES, *BITS)


def check_precision(precision: str, out: Path | None) -> None:
    """Refuse a precision that `out` cannot hold; None means memory.

    Raises:
        UsageError: an unknown precision, or one that needs another kind of file.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"unknown precision {precision!r}: choose {', '.join(PRECISIONS)}")
    if out is None and precision in WITH_RANGES:
        raise UsageError(f"`precision={precision}` writes the ranges of its steps beside `out`: give `out`")
    if out is not None and precision != FLOAT32 and out.suffix != ".npy":
        raise UsageError(f"{out}: vectors of {precision} are written to .npy")


def ranges_beside(out: Path) -> Path:
    """The file of the ranges of 8-bit numbers."""
    return out.with_name(f"{out.stem}.ranges.npy")


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
    rows = sum(len(np.load(file, mmap_mode="r")) for file in files)
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
