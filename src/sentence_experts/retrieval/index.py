"""Exact nearest neighbours among the papers of a corpus, by cosine, over a memory-mapped matrix.

Vectors are stored beside the corpus in `CORPUS/.vectors/KEY/`: `vectors.npy` (papers with text, dimensions;
float32, length 1), `rows.npy` (each vector's row in `papers.parquet`) and `index.json`. KEY is a hash of
model, route, text unit and corpus, so a changed model or corpus gets vectors of its own; those of an older
state of the corpus are removed.
"""

from __future__ import annotations

import itertools
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.encoding.chunks import Vectors, encode_chunks
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.encoding.vector_files import write_matrix
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.pooling import unit
from sentence_experts.progress import progress
from sentence_experts.storage import (
    PartStore,
    check_version,
    locked,
    read_json,
    replacing_folder,
    sha256_file,
    sha256_text,
    write_json,
    write_npy,
)

if TYPE_CHECKING:
    from sentence_experts.corpus.tables import CorpusFolder

logger = logging.getLogger(__name__)

UNITS = {"title+abstract": ("title", "abstract"), "abstract": ("abstract",), "title": ("title",)}
SEPARATOR = "\n"  # between title and abstract, as in pairs of unit title+abstract
CHUNK_SIZE = 1024  # texts lost at most by an interruption
ROWS_PER_BLOCK = 65_536
FORMAT_VERSION = 1  # of `index.json`
VECTORS, ROWS, INDEX = "vectors.npy", "rows.npy", "index.json"
PAPER_COLUMNS = ["paper_id", "title", "year", "doi", "retracted"]


@dataclass(frozen=True)
class Hit:
    """A paper found: `rank` from 1, `score` the cosine, `row` its row in papers.parquet."""

    rank: int
    score: float
    row: int


@dataclass(frozen=True)
class CorpusIndex:
    """The vectors of a corpus under one model, route and text unit.

    Attributes:
        vectors: (papers with text, dimensions), of length 1.
        rows: the row of each in papers.parquet.
    """

    vectors: Vectors
    rows: NDArray[np.int64]

    def search(self, queries: Vectors, top_k: int) -> list[list[Hit]]:
        """The nearest papers for each query of shape (queries, dimensions), best first.

        Papers with equal scores stand in the order of the corpus. A smaller corpus gives fewer than `top_k`.

        Raises:
            UsageError: `top_k` is less than 1.
        """
        if top_k < 1:
            raise UsageError(f"`top_k` must be at least 1, got {top_k}")
        queries, starts = unit(queries), range(0, len(self.vectors), ROWS_PER_BLOCK)
        blocks = [self.vectors[start : start + ROWS_PER_BLOCK] @ queries.T for start in starts]
        return [self._best(scores, top_k) for scores in np.concatenate(blocks).T]

    def _best(self, scores: NDArray[np.float32], top_k: int) -> list[Hit]:
        top_k = min(top_k, scores.size)
        lowest = np.partition(scores, scores.size - top_k)[scores.size - top_k]
        candidates = np.flatnonzero(scores >= lowest)
        best = candidates[np.argsort(-scores[candidates], kind="stable")][:top_k]
        return [Hit(rank, float(scores[i]), int(self.rows[i])) for rank, i in enumerate(best, start=1)]


def corpus_index(
    encoder: BatchEncoder, corpus: CorpusFolder, route: str | None = None, unit: str = "title+abstract"
) -> CorpusIndex:
    """The vectors of a corpus: read if they are there and unchanged, otherwise computed.

    Papers without the unit's text (for "title+abstract": with neither) are left out. If another process is
    computing the same vectors, this one waits for them.

    Raises:
        UsageError: an unknown unit.
        InputError: no paper has that text, the vectors cannot be written beside the corpus, or a newer
            version of this package wrote them.
        RouteError: the model needs a route, or does not know this one.
    """
    if unit not in UNITS:
        raise UsageError(f"unknown text unit {unit!r}: choose {', '.join(UNITS)}")
    route = encoder.chosen_route(route)
    settings = {
        "fingerprint": encoder.fingerprint,
        "route": route,
        "max_length": encoder.model.max_seq_length,
        "unit": unit,
        "corpus_fingerprint": corpus.fingerprint(),
    }
    root = Path(corpus.papers).parent / ".vectors"
    key = sha256_text(*(f"{name}={value}" for name, value in sorted(settings.items())))[:16]
    folder = root / key
    if not _is_intact(folder, settings):
        try:
            with locked(folder, f"encode the corpus ({unit})", wait=True):
                if not _is_intact(folder, settings):
                    _build(encoder, corpus, settings, folder)
        except PermissionError as error:
            raise InputError(f"{root}: vectors cannot be written beside the corpus: {error}") from error
    return CorpusIndex(np.load(folder / VECTORS, mmap_mode="r"), np.load(folder / ROWS))


def _is_intact(folder: Path, settings: Mapping[str, Any]) -> bool:
    """Whether the folder holds these vectors, as they were written; what does not fit is logged.

    Raises:
        InputError: a newer version of this package wrote them.
    """
    if not (folder / INDEX).exists():
        return False
    version = None
    try:
        noted = read_json(folder / INDEX)
        version = noted.get("format_version")  # version 0.1.0 noted none
        files = noted.pop("files", {}) if isinstance(noted, dict) else {}
        fits = bool(files) and all(noted.get(name) == value for name, value in settings.items())
        changed = [] if fits else [INDEX]
        changed += [name for name, stamp in files.items() if not _is_unchanged(folder / name, stamp)]
    except (InputError, OSError, TypeError, ValueError, AttributeError):
        changed = [INDEX]
    if isinstance(version, int):
        check_version(folder / INDEX, version, FORMAT_VERSION)
    for name in changed[:1]:
        logger.warning(f"{folder / name}: not as it was written; the corpus is encoded again")
    return not changed


def _stamp(file: Path) -> dict[str, Any]:
    """What tells a file from any other: its hash, and its size and time, by which it is known faster."""
    status = file.stat()
    return {"sha256": sha256_file(file), "bytes": status.st_size, "changed_ns": status.st_mtime_ns}


def _is_unchanged(file: Path, stamp: Mapping[str, Any]) -> bool:
    status = file.stat()
    if status.st_size != stamp["bytes"]:
        return False
    return bool(status.st_mtime_ns == stamp["changed_ns"]) or sha256_file(file) == stamp["sha256"]


def describe_papers(corpus: CorpusFolder, rows: Sequence[int]) -> list[dict[str, Any]]:
    """The `PAPER_COLUMNS` that the corpus has, of the papers in `rows`, in their order."""
    table = pq.ParquetFile(corpus.papers).read(columns=PAPER_COLUMNS)  # leaves out what is not there
    # From a buffer, since pyarrow imports pandas to look at a list.
    places = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(np.array(rows, np.int64))])
    papers: list[dict[str, Any]] = table.take(places).to_pylist()
    return papers


def _build(encoder: BatchEncoder, corpus: CorpusFolder, settings: dict[str, Any], folder: Path) -> None:
    route, unit = settings["route"], settings["unit"]
    exact = settings | encoder.exact_settings(route) | {"chunk_size": CHUNK_SIZE}
    parts = PartStore.open(folder.with_name(f"{folder.name}.chunks"), exact, ".npy")
    rows: list[int] = []

    def chunks() -> Iterator[list[str]]:
        texts = _texts(corpus, unit)
        while chunk := list(itertools.islice(texts, CHUNK_SIZE)):
            rows.extend(row for row, _ in chunk)
            yield [text for _, text in chunk]

    with progress(f"encoding the corpus ({unit})", pq.read_metadata(corpus.papers).num_rows) as advance:
        encode = lambda texts: encoder.encode(texts, route, normalize=True)  # noqa: E731
        files = encode_chunks(encode, chunks(), parts, advance)
    if not files:
        parts.remove()
        raise InputError(f"{corpus.papers}: no paper has a {' or '.join(UNITS[unit])}")
    with replacing_folder(folder) as temporary:
        write_matrix(temporary / VECTORS, files)
        write_npy(temporary / ROWS, np.array(rows, dtype=np.int64))
        stamps = {name: _stamp(temporary / name) for name in (VECTORS, ROWS)}
        noted = {"format_version": FORMAT_VERSION, **settings}
        write_json(temporary / INDEX, noted | {"papers": len(rows), "files": stamps})
    parts.remove()
    for index in folder.parent.glob(f"*/{INDEX}"):
        if _corpus_of(index) != settings["corpus_fingerprint"]:
            shutil.rmtree(index.parent)


def _corpus_of(index: Path) -> str | None:
    try:
        noted = read_json(index)
    except InputError:
        return None
    return noted.get("corpus_fingerprint") if isinstance(noted, dict) else None


def _texts(corpus: CorpusFolder, unit: str) -> Iterator[tuple[int, str]]:
    """(row in papers.parquet, text) of each paper that has the text."""
    columns = UNITS[unit]
    row = 0
    for batch in pq.ParquetFile(corpus.papers).iter_batches(columns=list(columns)):
        for record in batch.to_pylist():
            text = SEPARATOR.join(record[name] for name in columns if record[name])
            if text.strip():
                yield row, text
            row += 1
