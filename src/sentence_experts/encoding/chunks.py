"""Encoding that survives interruption: one file per chunk of texts, reused by the next run.

A chunk's vectors depend only on its own texts and on the settings, and texts are always cut into the same
chunks. So the result of an interrupted and continued run is that of an uninterrupted one, byte for byte.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sentence_experts.progress import Advance
from sentence_experts.storage import PartStore, write_npy

logger = logging.getLogger(__name__)

Vectors = NDArray[np.float32]


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
    files: list[Path] = []
    reused = 0
    for number, texts in enumerate(chunks):
        if parts.is_done(number):
            reused += 1
            advance(len(texts))
        else:
            vectors = encode(texts, advance)
            with parts.writing(number) as temporary:
                write_npy(temporary, vectors)
        files.append(parts.path(number))
    if reused:
        logger.info(f"{reused} of {len(files)} parts were already encoded by an earlier, interrupted run")
    return files
