"""Encoding that survives interruption: one file per chunk of texts, reused by the next run.

A chunk's vectors depend only on its own texts and on the settings, and texts are always cut into the same
chunks. So an interrupted and continued run gives the same result as an uninterrupted one, byte for byte.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sentence_experts.progress import Advance
from sentence_experts.storage import PartStore, write_npy

logger = logging.getLogger(__name__)

Vectors = NDArray[np.float32]
Rows = TypeVar("Rows", bound=Sequence[object])


def find_missing_parts(
    chunks: Iterable[Rows], parts: PartStore, advance: Advance
) -> Iterator[tuple[int, int, Rows]]:
    """Yield each chunk of texts whose part is not there yet: its number, its first text's number, the texts.

    `advance` is called with the number of texts in the other chunks.
    """
    first = number = reused = 0
    for number, rows in enumerate(chunks, start=1):
        if parts.is_done(number - 1):
            reused += 1
            advance(len(rows))
        else:
            yield number - 1, first, rows
        first += len(rows)
    if reused:
        logger.info(f"{reused} of {number} parts were already encoded by an earlier, interrupted run")


def encode_chunks(
    encode: Callable[[Sequence[str], Advance], Vectors],
    chunks: Iterable[Sequence[str]],
    parts: PartStore,
    advance: Advance,
) -> list[Path]:
    """Encode each chunk of texts to a `.npy` part, unless it is there already.

    `encode` counts the texts that are done. The settings of `parts` must hold everything that decides the
    vectors: model, route, texts, chunk size.

    Returns:
        The files in the order of the chunks, each of shape (texts, dimensions), float32.
    """
    for number, _, texts in find_missing_parts(chunks, parts, advance):
        vectors = encode(texts, advance)
        with parts.writing(number) as temporary:
            write_npy(temporary, vectors)
    return parts.paths()
