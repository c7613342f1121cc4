"""Vectors in fewer bits, by sentence-transformers' own quantisation.

8-bit numbers are steps between the least and the largest value of each dimension over all vectors of the
file. These bounds are written beside it (`NAME.ranges.npy`), because queries must be turned into steps of the
same: `quantize_embeddings(queries, precision, ranges=np.load("NAME.ranges.npy"))`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.encoding.chunks import read_chunks, write_matrix
from sentence_experts.encoding.encoder import Vectors
from sentence_experts.errors import UsageError
from sentence_experts.storage import replacing

FLOAT32, FLOAT16 = "float32", "float16"
STEPS, BITS = ("int8", "uint8"), ("binary", "ubinary")
PRECISIONS = (FLOAT32, FLOAT16, *STEPS, *BITS)


def check_precision(precision: str, out: Path) -> None:
    """Refuse what cannot be written.

    Raises:
        UsageError: an unknown precision, or one that this kind of file does not hold.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"unknown precision {precision!r}: choose {', '.join(PRECISIONS)}")
    if precision != FLOAT32 and out.suffix != ".npy":
        raise UsageError(f"{out}: vectors of {precision} are written to .npy")


def write_in_precision(out: Path, files: Sequence[Path], precision: str) -> None:
    """Join chunk files to one `.npy` of the precision; bounds of 8-bit numbers go beside it."""
    ranges = None
    if precision in STEPS:
        ranges = _ranges(files)
        with replacing(out.with_name(f"{out.stem}.ranges.npy")) as temporary, open(temporary, "wb") as file:
            np.save(file, ranges)
    write_matrix(out, files, _conversion(precision, ranges))


def _ranges(files: Sequence[Path]) -> Vectors:
    """The least and the largest value of each dimension, (2, dimensions)."""
    bounds = [np.stack([part.min(axis=0), part.max(axis=0)]) for part in read_chunks(files)]
    whole = np.stack(bounds)  # (chunks, 2, dimensions)
    found: Vectors = np.stack([whole[:, 0].min(axis=0), whole[:, 1].max(axis=0)])
    return found


def _conversion(precision: str, ranges: Vectors | None) -> Callable[[Vectors], NDArray[Any]]:
    if precision == FLOAT32:
        return lambda vectors: vectors
    if precision == FLOAT16:
        return lambda vectors: vectors.astype(np.float16)
    from sentence_transformers.util import quantize_embeddings

    return partial(_quantised, quantize_embeddings, precision=precision, ranges=ranges)


def _quantised(quantise: Any, vectors: Vectors, precision: str, ranges: Vectors | None) -> NDArray[Any]:
    found: NDArray[Any] = quantise(np.asarray(vectors), precision=precision, ranges=ranges)
    return found
