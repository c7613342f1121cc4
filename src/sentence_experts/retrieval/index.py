"""Exact nearest neighbours among the papers of a corpus, by cosine, over a memory-mapped matrix.

Vectors stand beside the corpus in `CORPUS/.vectors/KEY/`: `vectors.npy` (papers with text, dimensions;
float32, length 1), `rows.npy` (each vector's row in `papers.parquet`) and `index.json`. KEY is a hash of
model, route, text unit and corpus, so a changed model or corpus gets vectors of its own; those of an older
state of the corpus are removed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.encoding.chunks import encode_chunks, write_matrix
from sentence_experts.encoding.encoder import BatchEncoder, Vectors
from sentence_experts.errors import InputError, UsageError
from sentence_experts.progress import progress
from sentence_experts.storage import read_json, replacing_folder, sha256_text, write_json

if TYPE_CHECKING:
    from sentence_experts.corpus.tables import CorpusFolder

UNITS = {"title+abstract": ("title", "abstract"), "abstract": ("abstract",), "title": ("title",)}
BETWEEN_PARTS = "\n"  # as in pairs of unit title+abstract
CHUNK = 1024  # texts lost at most by an interruption
ROWS_AT_ONCE = 65_536
SHOWN = ("paper_id", "title", "year", "doi", "retracted")


@dataclass(frozen=True)
class Hit:
    """A paper found: `rank` from 1, `score` the cosine, `row` its row in papers.parquet."""

    rank: int
    score: float
    row: int


@dataclass(frozen=True)
class CorpusIndex:
    """The vectors of a corpus under one model, route and text unit."""

    vectors: Vectors
    rows: NDArray[np.int64]

    def search(self, queries: Vectors, k: int) -> list[list[Hit]]:
        """The k nearest papers for each query of shape (queries, dimensions), best first.

        Papers with equal scores stand in the order of the corpus. A smaller corpus gives fewer than k.

        Raises:
            UsageError: k is less than 1.
        """
        if k < 1:
            raise UsageError(f"the number of neighbours must be at least 1, not {k}")
        unit = _unit_length(queries)
        blocks = [
            self.vectors[start : start + ROWS_AT_ONCE] @ unit.T
            for start in range(0, len(self.vectors), ROWS_AT_ONCE)
        ]
        return [self._best(scores, k) for scores in np.concatenate(blocks).T]

    def _best(self, scores: NDArray[np.float32], k: int) -> list[Hit]:
        k = min(k, scores.size)
        lowest = np.partition(scores, scores.size - k)[scores.size - k]
        candidates = np.flatnonzero(scores >= lowest)
        best = candidates[np.argsort(-scores[candidates], kind="stable")][:k]
        return [Hit(rank, float(scores[i]), int(self.rows[i])) for rank, i in enumerate(best, start=1)]


def corpus_index(
    encoder: BatchEncoder, corpus: CorpusFolder, route: str | None = None, unit: str = "title+abstract"
) -> CorpusIndex:
    """The corpus's vectors: read where they are, made where not; an interrupted making goes on.

    Papers without the unit's text (for "title+abstract": with neither) are left out.

    Raises:
        UsageError: an unknown unit.
        InputError: no paper has that text, or the vectors cannot be written beside the corpus.
        RouteError: as `Encoder.chosen_route`.
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
            _build(encoder, corpus, route, unit, settings, folder)
        except PermissionError as error:
            raise InputError(f"{root}: vectors cannot be written beside the corpus: {error}") from error
    return CorpusIndex(np.load(folder / "vectors.npy", mmap_mode="r"), np.load(folder / "rows.npy"))


def shown_papers(corpus: CorpusFolder, rows: Sequence[int]) -> list[dict[str, Any]]:
    """What a list of hits shows of each paper (`SHOWN`, as far as there), in the order of `rows`."""
    file = pq.ParquetFile(corpus.papers)
    columns = [name for name in SHOWN if name in file.schema_arrow.names]
    found: list[dict[str, Any]] = file.read(columns=columns).take(list(rows)).to_pylist()
    return found


def _build(
    encoder: BatchEncoder,
    corpus: CorpusFolder,
    route: str | None,
    unit: str,
    settings: dict[str, Any],
    folder: Path,
) -> None:
    chunks = folder.with_name(f"{folder.name}.chunks")
    rows: list[int] = []

    def texts_with_rows() -> Iterator[list[str]]:
        for part in _chunked(_texts(corpus, unit)):
            rows.extend(row for row, _ in part)
            yield [text for _, text in part]

    with progress(f"encoding the corpus ({unit})", pq.read_metadata(corpus.papers).num_rows) as advance:
        files = encode_chunks(
            lambda texts: encoder.encode(texts, route, normalize=True),
            texts_with_rows(),
            chunks,
            settings | encoder.exact_settings(route) | {"chunk": CHUNK},
            advance,
        )
    if not files:
        shutil.rmtree(chunks)
        raise InputError(f"{corpus.papers}: no paper has a {' or '.join(UNITS[unit])}")
    with replacing_folder(folder) as temporary:
        write_matrix(temporary / "vectors.npy", files)
        np.save(temporary / "rows.npy", np.array(rows, dtype=np.int64))
        write_json(temporary / "index.json", settings | {"papers": len(rows)})
    shutil.rmtree(chunks)
    _remove_outdated(folder.parent, settings["corpus_fingerprint"])


def _texts(corpus: CorpusFolder, unit: str) -> Iterator[tuple[int, str]]:
    """(row in papers.parquet, text) of each paper that has the text."""
    parts = UNITS[unit]
    row = 0
    for batch in pq.ParquetFile(corpus.papers).iter_batches(columns=list(parts)):
        for record in batch.to_pylist():
            text = BETWEEN_PARTS.join(record[part] for part in parts if record[part])
            if text.strip():
                yield row, text
            row += 1


def _chunked(texts: Iterator[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    chunk: list[tuple[int, str]] = []
    for text in texts:
        chunk.append(text)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _remove_outdated(root: Path, corpus_fingerprint: str) -> None:
    for noted in root.glob("*/index.json"):
        if read_json(noted).get("corpus_fingerprint") != corpus_fingerprint:
            shutil.rmtree(noted.parent)


def _unit_length(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    result: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return result
