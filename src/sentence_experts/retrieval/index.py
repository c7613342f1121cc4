"""Exact nearest neighbours among the papers of a corpus, by cosine, over a memory-mapped matrix.

Vectors are stored beside the corpus in `CORPUS/.vectors/KEY/`: `vectors.npy` (papers with text, dimensions;
float32, length 1), `rows.npy` (each vector's row in `papers.parquet`) and `index.json`. KEY is a hash of
model, route, text unit and corpus, so a changed model or corpus gets vectors of its own; those of an older
state of the corpus are removed.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.encoding.chunks import Vectors, encode_chunks, write_matrix
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.pooling import unit
from sentence_experts.progress import progress
from sentence_experts.storage import PartStore, locked, read_json, replacing_folder, sha256_text, write_json

if TYPE_CHECKING:
    from sentence_experts.corpus.tables import CorpusFolder

UNITS = {"title+abstract": ("title", "abstract"), "abstract": ("abstract",), "title": ("title",)}
SEPARATOR = "\n"  # between title and abstract, as in pairs of unit title+abstract
CHUNK_SIZE = 1024  # texts lost at most by an interruption
ROWS_PER_BLOCK = 65_536
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
    """The vectors of a corpus: read if they are there, otherwise computed; an interrupted run goes on.

    Papers without the unit's text (for "title+abstract": with neither) are left out. If another process is
    computing the same vectors, this one waits for them.

    Raises:
        UsageError: an unknown unit.
        InputError: no paper has that text, or the vectors cannot be written beside the corpus.
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
    if not (folder / "index.json").exists():
        try:
            with locked(folder, f"encode the corpus ({unit})", wait=True):
                if not (folder / "index.json").exists():
                    _build(encoder, corpus, settings, folder)
        except PermissionError as error:
            raise InputError(f"{root}: vectors cannot be written beside the corpus: {error}") from error
    return CorpusIndex(np.load(folder / "vectors.npy", mmap_mode="r"), np.load(folder / "rows.npy"))


def describe_papers(corpus: CorpusFolder, rows: Sequence[int]) -> list[dict[str, Any]]:
    """The `PAPER_COLUMNS` that the corpus has, of the papers in `rows`, in their order."""
    found = pq.ParquetFile(corpus.papers).read(columns=PAPER_COLUMNS)  # leaves out what is not there
    # From a buffer, since pyarrow imports pandas to look at a list.
    places = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(np.array(rows, np.int64))])
    papers: list[dict[str, Any]] = found.take(places).to_pylist()
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
        write_matrix(temporary / "vectors.npy", files)
        np.save(temporary / "rows.npy", np.array(rows, dtype=np.int64))
        write_json(temporary / "index.json", settings | {"papers": len(rows)})
    parts.remove()
    for index in folder.parent.glob("*/index.json"):
        if read_json(index).get("corpus_fingerprint") != settings["corpus_fingerprint"]:
            shutil.rmtree(index.parent)


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
