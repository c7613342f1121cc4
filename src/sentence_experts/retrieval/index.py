"""The vectors of a corpus under one route, built once and kept beside it.

They stand in `CORPUS/.vectors/KEY/`: `vectors.npy` (texts, dimensions; float32, length 1), `rows.npy` (each
one's row in `papers.parquet`), `texts.npy` (16 bytes of each text's SHA-256) and `index.json`. KEY is a hash
of what decides a vector, without the corpus: when the corpus changes, texts that it had before keep their
vectors and only the others are encoded.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.encoding.chunks import Vectors, encode_chunks
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.pooling import unit as unit_length
from sentence_experts.progress import progress
from sentence_experts.retrieval.approximate import LanceVectors
from sentence_experts.retrieval.exact import Ranking, all_scores, nearest
from sentence_experts.storage import (
    PartStore,
    check_version,
    locked,
    read_json,
    replacing_folder,
    sha256_file,
    sha256_settings,
    write_json,
    write_npy,
)

if TYPE_CHECKING:
    from sentence_experts.corpus.tables import CorpusFolder

logger = logging.getLogger(__name__)

UNITS = {"title+abstract": ("title", "abstract"), "abstract": ("abstract",), "title": ("title",)}
SEPARATOR = "\n"  # between title and abstract, as in pairs of unit title+abstract
CHUNK_SIZE = 1024  # texts lost at most by an interruption
FORMAT_VERSION = 2  # of `index.json`
FOLDER = ".vectors"
VECTORS, ROWS, TEXTS, INDEX = "vectors.npy", "rows.npy", "texts.npy", "index.json"
_DIGEST = 16  # bytes of a text's hash
_COPIED = 65_536  # vectors copied at once
_SAMPLE = 10_000  # vectors that percentiles are estimated from


@dataclass(frozen=True)
class RouteVectors:
    """The vectors of a corpus under one route and text unit.

    Attributes:
        vectors: (texts, dimensions), of length 1, mapped into memory.
        rows: (texts,), ascending: the row of each in papers.parquet.
        near: finds neighbours approximately, in a large corpus.
    """

    vectors: Vectors
    rows: NDArray[np.int64]
    near: LanceVectors | None = None

    def search(self, queries: Vectors, top_k: int, allowed: NDArray[np.bool_] | None = None) -> list[Ranking]:
        """The nearest papers for each query of shape (queries, dimensions): their rows and cosines.

        Papers with equal scores stand in the order of the corpus. `allowed`, of shape (papers of the
        corpus,), selects the papers to search.

        Raises:
            UsageError: `top_k` is less than 1, or the queries come from another model.
        """
        places = None if allowed is None else np.flatnonzero(allowed[self.rows])
        if self.near is not None and top_k >= 1 and queries.shape[-1] == self.vectors.shape[1]:
            rankings = self.near.search(queries, top_k, places)
        else:
            rankings = nearest(self.vectors, queries, top_k, places)
        return [(self.rows[best], scores) for best, scores in rankings]

    def scores(self, query: Vectors) -> NDArray[np.float32]:
        """The cosine of every text with a query of shape (dimensions,): (texts,), beside `rows`."""
        scores: NDArray[np.float32] = all_scores(self.vectors, unit_length(query.reshape(1, -1)))[0]
        return scores

    def of_rows(self, rows: Any) -> Vectors:
        """The vectors of papers, (papers, dimensions); zeros for a paper without text."""
        wanted = np.asarray(rows, np.int64)
        places = np.minimum(np.searchsorted(self.rows, wanted), len(self.rows) - 1)
        vectors: Vectors = np.array(self.vectors[places], np.float32)
        vectors[self.rows[places] != wanted] = 0
        return vectors

    def sample_places(self) -> NDArray[np.int64]:
        """The places of at most 10,000 of the vectors, evenly spread over the corpus."""
        count = len(self.rows)
        return np.linspace(0, count - 1, min(count, _SAMPLE)).astype(np.int64)


def papers_fingerprint(corpus: CorpusFolder, noted: Mapping[str, Any] = {}) -> str:
    """The SHA-256 of the table of papers, which `noted` saves if it describes the same file.

    Raises:
        InputError: the table has changed since it was written.
    """
    stamp, status = noted.get("papers_file", {}), corpus.papers.stat()
    same = (stamp.get("bytes"), stamp.get("changed_ns")) == (status.st_size, status.st_mtime_ns)
    digest: str = stamp["sha256"] if same else sha256_file(corpus.papers)
    expected = corpus.manifest.get("tables", {}).get(corpus.papers.name)
    if expected and digest != expected:
        raise InputError(f"{corpus.papers} has changed since it was written: make it again with `overwrite`")
    return digest


def vector_settings(encoder: BatchEncoder, route: str | None, unit: str) -> dict[str, Any]:
    """What decides the vectors of texts: the key of an index."""
    if unit not in UNITS:
        raise UsageError(f"unknown text unit {unit!r}: choose {', '.join(UNITS)}")
    return {**encoder.vector_settings(route), "unit": unit}


def index_folder(corpus: CorpusFolder, settings: Mapping[str, Any]) -> Path:
    """Where the vectors of these settings stand."""
    return corpus.path / FOLDER / sha256_settings(dict(settings))[:16]


def route_vectors(
    encoder: BatchEncoder, corpus: CorpusFolder, route: str | None = None, unit: str = "title+abstract"
) -> RouteVectors:
    """The vectors of a corpus: read if they are there and unchanged, otherwise computed.

    Papers without the unit's text (for "title+abstract": with neither) are left out. If another process is
    computing the same vectors, this one waits for them.

    Raises:
        UsageError: an unknown unit.
        InputError: no paper has that text, the vectors cannot be written beside the corpus, or a newer
            version of this package wrote them.
        RouteError: the model needs a route, or does not know this one.
    """
    settings = vector_settings(encoder, route := encoder.chosen_route(route), unit)
    folder = index_folder(corpus, settings)
    if (known := read_index(folder, corpus)) is not None:
        return known
    try:
        with locked(folder, f"encode the corpus ({unit})", wait=True):
            if (known := read_index(folder, corpus, warn=True)) is None:
                _build(encoder, corpus, settings, folder)
                known = read_index(folder, corpus)
    except PermissionError as error:
        raise InputError(f"{folder.parent}: vectors cannot be written beside the corpus: {error}") from error
    if known is None:
        raise InputError(f"{corpus.papers} changed while it was encoded; give the same command again")
    return known


def read_index(folder: Path, corpus: CorpusFolder, warn: bool = False) -> RouteVectors | None:
    """The vectors in a folder if they are whole and those of the corpus as it is.

    Raises:
        InputError: a newer version of this package wrote them.
    """
    noted = _intact(folder, warn)
    if noted is None or papers_fingerprint(corpus, noted) != noted["papers_file"]["sha256"]:
        return None
    return _opened(folder)


def index_state(folder: Path, corpus: CorpusFolder) -> str:
    """Whether the vectors in a folder are "whole", "of an older corpus" or "damaged".

    Raises:
        InputError: a newer version of this package wrote them, or the table of papers has changed.
    """
    if (noted := _intact(folder)) is None:
        return "damaged"
    same = papers_fingerprint(corpus, noted) == noted["papers_file"]["sha256"]
    return "whole" if same else "of an older corpus"


def _opened(folder: Path) -> RouteVectors:
    vectors = np.load(folder / VECTORS, mmap_mode="r")
    return RouteVectors(vectors, np.load(folder / ROWS), LanceVectors.open(folder, vectors))


def _intact(folder: Path, warn: bool = False) -> dict[str, Any] | None:
    """What `index.json` notes, if the files are as they were written; otherwise None.

    Raises:
        InputError: a newer version of this package wrote them.
    """
    if not (folder / INDEX).exists():
        return None
    changed, noted = [INDEX], {}
    try:
        noted = read_json(folder / INDEX)
        settings = noted["settings"] if noted.get("format_version") == FORMAT_VERSION else {}
        papers_file, whole = noted["papers_file"], int(noted["texts"]) > 0
        if sha256_settings(settings)[:16] == folder.name and isinstance(papers_file["sha256"], str) and whole:
            stamps = noted["files"]
            changed = [
                name for name in (VECTORS, ROWS, TEXTS) if not _is_unchanged(folder / name, stamps[name])
            ]
    except (InputError, OSError, TypeError, KeyError, ValueError, AttributeError):
        pass
    version = noted.get("format_version") if isinstance(noted, dict) else None
    if isinstance(version, int):
        check_version(folder / INDEX, version, FORMAT_VERSION)
    if not changed:
        return dict(noted)
    if warn:
        logger.warning(f"{folder / changed[0]}: not as it was written; the corpus is encoded again")
    return None


def _stamp(file: Path) -> dict[str, Any]:
    """What tells a file from any other: its hash, and its size and time, by which it is known faster."""
    status = file.stat()
    return {"sha256": sha256_file(file), "bytes": status.st_size, "changed_ns": status.st_mtime_ns}


def _is_unchanged(file: Path, stamp: Mapping[str, Any]) -> bool:
    status = file.stat()
    if status.st_size != stamp["bytes"]:
        return False
    return bool(status.st_mtime_ns == stamp["changed_ns"]) or sha256_file(file) == stamp["sha256"]


class _Plan:
    """Which texts of a corpus have a vector already, and which must be encoded, in the corpus's order."""

    def __init__(self, corpus: CorpusFolder, unit: str, old: Path | None) -> None:
        self._corpus, self._unit = corpus, unit
        known = [] if old is None else np.load(old / TEXTS).view(f"V{_DIGEST}").ravel().tolist()
        # Text -> place: in the older vectors (negative, from -1), or among the new ones (from 0).
        self._places: dict[bytes, int] = {digest: -1 - place for place, digest in enumerate(known)}
        self.reused = 0
        self.rows: list[int] = []
        self.sources: list[int] = []
        self.digests: list[bytes] = []

    def chunks(self) -> Iterator[list[str]]:
        """The texts to encode."""
        missing = self._missing()
        while chunk := list(itertools.islice(missing, CHUNK_SIZE)):
            yield chunk

    def _missing(self) -> Iterator[str]:
        new = 0
        for row, text in texts_of(self._corpus, self._unit):
            digest = hashlib.sha256(text.encode()).digest()[:_DIGEST]
            place = self._places.get(digest)
            if is_new := place is None:
                place = self._places[digest] = new
                new += 1
            self.rows.append(row)
            self.sources.append(place)
            self.digests.append(digest)
            self.reused += place < 0
            if is_new:
                yield text


def _build(encoder: BatchEncoder, corpus: CorpusFolder, settings: dict[str, Any], folder: Path) -> None:
    route, unit = settings["route"], settings["unit"]
    old = _intact(folder)
    stamp = _stamp(corpus.papers)
    exact = {**encoder.rounding_settings, **settings, "chunk_size": CHUNK_SIZE, "papers": stamp["sha256"]}
    exact["older"] = None if old is None else old["files"][VECTORS]["sha256"]
    parts = PartStore.open(folder.with_name(f"{folder.name}.chunks"), exact, ".npy")
    plan = _Plan(corpus, unit, folder if old else None)
    with progress(f"encoding the corpus ({unit})") as advance:
        encode = lambda texts: encoder.encode(texts, route, normalize=True)  # noqa: E731
        files = encode_chunks(encode, plan.chunks(), parts, advance)
    if not plan.rows:
        parts.remove()
        raise InputError(f"{corpus.papers}: no paper has a {' or '.join(UNITS[unit])}")
    if plan.reused:
        logger.info(f"{plan.reused:,} of {len(plan.rows):,} texts were encoded before")
    older = np.load(folder / VECTORS, mmap_mode="r") if old else None
    write = lambda path: _write_vectors(path, plan.sources, files, older)  # noqa: E731
    _store(folder, settings, encoder.name, stamp, plan, write)
    parts.remove()


def store_vectors(
    corpus: CorpusFolder, settings: Mapping[str, Any], model: str, vectors: NDArray[Any]
) -> None:
    """Store vectors of all rows of papers.parquet, (papers, dimensions), that were encoded elsewhere.

    Raises:
        InputError: their number is another one, they are not finite, or no paper has the text.
    """
    folder = index_folder(corpus, settings)
    plan, stamp = _Plan(corpus, settings["unit"], None), _stamp(corpus.papers)
    for _ in plan.chunks():
        pass
    count = pq.read_metadata(corpus.papers).num_rows
    if len(vectors) != count:
        raise InputError(f"{len(vectors):,} vectors for the {count:,} papers of {corpus.papers}")
    if not plan.rows:
        raise InputError(f"{corpus.papers}: no paper has a {' or '.join(UNITS[settings['unit']])}")

    def write(path: Path) -> None:
        target = np.lib.format.open_memmap(path, "w+", np.float32, (len(plan.rows), vectors.shape[1]))
        for start in range(0, len(plan.rows), _COPIED):
            block = unit_length(np.asarray(vectors[plan.rows[start : start + _COPIED]], np.float32))
            if not np.isfinite(block).all():
                raise InputError("some of the vectors hold numbers that are not finite")
            target[start : start + _COPIED] = block
        target.flush()

    with locked(folder, "store vectors", wait=True):
        _store(folder, dict(settings), model, stamp, plan, write)


def _store(
    folder: Path,
    settings: dict[str, Any],
    model: str,
    papers_file: dict[str, Any],
    plan: _Plan,
    write: Callable[[Path], None],
) -> None:
    with replacing_folder(folder) as temporary:
        write(temporary / VECTORS)
        write_npy(temporary / ROWS, np.array(plan.rows, dtype=np.int64))
        write_npy(temporary / TEXTS, np.frombuffer(b"".join(plan.digests), np.uint8).reshape(-1, _DIGEST))
        noted = {
            "format_version": FORMAT_VERSION,
            "settings": settings,
            "model": model,
            "texts": len(plan.rows),
            "papers_file": papers_file,
            "files": {name: _stamp(temporary / name) for name in (VECTORS, ROWS, TEXTS)},
        }
        write_json(temporary / INDEX, noted)
    _remove_old_versions(folder.parent)


def _write_vectors(path: Path, sources: list[int], files: list[Path], old: Vectors | None) -> None:
    """Write the vectors at `sources`: of the older ones (-1, -2, ...), or of the parts' (0, 1, ...)."""
    parts = [np.load(file, mmap_mode="r") for file in files]
    starts = np.cumsum([0, *(len(part) for part in parts)])
    places = np.array(sources, np.int64)
    example = parts[0] if old is None else old
    target = np.lib.format.open_memmap(path, "w+", np.float32, (len(places), example.shape[1]))
    for start in range(0, len(places), _COPIED):
        wanted = places[start : start + _COPIED]
        block = target[start : start + _COPIED]
        if old is not None and (before := wanted < 0).any():
            block[before] = old[-1 - wanted[before]]
        of_part = np.searchsorted(starts, wanted, side="right") - 1
        for number in np.unique(of_part[wanted >= 0]):
            inside = (of_part == number) & (wanted >= 0)
            block[inside] = parts[number][wanted[inside] - starts[number]]
    target.flush()


def _remove_old_versions(root: Path) -> None:
    """Remove what earlier versions of this package kept there, which nothing reads any more."""
    for index in root.glob(f"*/{INDEX}"):
        try:
            version = read_json(index).get("format_version", 1)
        except (InputError, AttributeError):
            continue
        if isinstance(version, int) and version < FORMAT_VERSION:
            shutil.rmtree(index.parent, ignore_errors=True)


def texts_of(corpus: CorpusFolder, unit: str) -> Iterator[tuple[int, str]]:
    """(row in papers.parquet, text) of each paper that has the unit's text."""
    columns = UNITS[unit]
    row = 0
    for batch in pq.ParquetFile(corpus.papers).iter_batches(columns=list(columns)):
        for record in batch.to_pylist():
            text = SEPARATOR.join(record[name] for name in columns if record[name])
            if text.strip():
                yield row, text
            row += 1
