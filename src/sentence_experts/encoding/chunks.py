"""Encoding that survives interruption: a file a chunk, written then renamed, used again by the next run.

A chunk's vectors depend on its own texts and on the settings alone, and chunks are always cut alike, so the
result of an interrupted and continued run is that of an uninterrupted one, byte for byte.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.encoding.encoder import Vectors
from sentence_experts.progress import Advance
from sentence_experts.storage import read_json, replacing, write_json

logger = logging.getLogger(__name__)

SETTINGS = "settings.json"


def encode_chunks(
    encode: Callable[[Sequence[str]], Vectors],
    chunks: Iterable[Sequence[str]],
    folder: Path,
    settings: Mapping[str, Any],
    advance: Advance,
) -> list[Path]:
    """Encode each chunk of texts to a `.npy` file in `folder`; those already there are kept.

    A folder that was begun with other settings is emptied first. `settings` must say everything that decides
    the vectors: model, route, texts, and how they are cut.

    Returns:
        The files in the order of the chunks, each of shape (texts, dimensions), float32.
    """
    _prepare(folder, dict(settings))
    files = []
    found = 0
    for number, texts in enumerate(chunks):
        file = folder / f"{number:06d}.npy"
        if file.exists():
            found += 1
        else:
            vectors = encode(texts)
            with replacing(file) as temporary, open(temporary, "wb") as out:
                np.save(out, vectors)
        advance(len(texts))
        files.append(file)
    if found:
        logger.info(f"{found} of {len(files)} parts were already encoded by an earlier, interrupted run")
    return files


def read_chunks(files: Sequence[Path]) -> Iterator[Vectors]:
    """The vectors of each file in turn."""
    for file in files:
        yield np.load(file)


def write_matrix(
    path: Path, files: Sequence[Path], convert: Callable[[Vectors], NDArray[Any]] = lambda vectors: vectors
) -> None:
    """Join chunk files to one `.npy` of shape (texts, dimensions), a chunk at a time in memory.

    Args:
        path: the file.
        files: of `encode_chunks`.
        convert: (texts, dimensions) float32 -> what is written of them, a row a text.
    """
    rows = sum(len(np.load(file, mmap_mode="r")) for file in files)
    example = convert(np.load(files[0], mmap_mode="r")[:1])
    kind = example.dtype.newbyteorder("<")
    with replacing(path) as temporary, open(temporary, "wb") as out:
        header = {"descr": kind.str, "fortran_order": False, "shape": (rows, example.shape[1])}
        np.lib.format.write_array_header_2_0(out, header)
        for vectors in read_chunks(files):
            out.write(np.ascontiguousarray(convert(vectors), dtype=kind).tobytes())


def _prepare(folder: Path, settings: dict[str, Any]) -> None:
    noted = folder / SETTINGS
    if folder.exists() and (not noted.exists() or read_json(noted) != settings):
        shutil.rmtree(folder)
    if not noted.exists():
        write_json(noted, settings)
