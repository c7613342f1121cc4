"""The vectors of a corpus under one route, built once and kept beside it.

They stand in `CORPUS/.vectors/KEY/`: `vectors.npy` (texts, dimensions; float32, length 1), `rows.npy` (each
one's row in `papers.parquet`), `texts.npy` (16 bytes of each text's SHA-256), with passages `spans.npy`
(where each begins and ends in its paper's text), and their record. KEY is a hash of what decides a vector,
without the corpus: when the corpus changes, texts that it had before keep their vectors and only the others
are encoded.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
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
from sentence_experts.retrieval.passages import Span, Windows
from sentence_experts.retrieval.texts import PASSAGES, UNITS, texts_fingerprint, texts_of
from sentence_experts.retrieval.vectors import RouteVectors
from sentence_experts.storage import (
    RECORD,
    PartStore,
    hashes_of,
    is_unchanged,
    locked,
    record_of,
    replacing_folder,
    sha256_settings,
    write_json,
    write_npy,
)
from sentence_experts.storage.record import read_record

if TYPE_CHECKING:
    from sentence_experts.corpus.corpus_folder import CorpusFolder

logger = logging.getLogger(__name__)

CHUNK_SIZE = 1024  # texts lost at most by an interruption
FOLDER = ".vectors"
VECTORS, ROWS, TEXTS, SPANS = "vectors.npy", "rows.npy", "texts.npy", "spans.npy"
_WHAT = "vectors of a corpus"
_DIGEST = 16  # bytes of a text's hash
_COPIED = 65_536  # vectors copied at once

# Row of the paper, text, and where a passage stands in its paper's text.
Piece = tuple[int, str, Span | None]


def vector_settings(encoder: BatchEncoder, route: str | None, unit: str) -> dict[str, Any]:
    """Return what decides the vectors of texts: the key of an index."""
    if unit not in UNITS:
        raise UsageError(f"unknown text unit {unit!r}: choose {', '.join(UNITS)}")
    return {**encoder.vector_settings(route), "unit": unit}


def index_folder(corpus: CorpusFolder, settings: Mapping[str, Any]) -> Path:
    """Return the folder of the vectors with these settings."""
    return corpus.path / FOLDER / sha256_settings(dict(settings))[:16]


def route_vectors(
    encoder: BatchEncoder,
    corpus: CorpusFolder,
    route: str | None = None,
    unit: str = "title+abstract",
    window: int | None = None,
    overlap: int | None = None,
) -> RouteVectors:
    """Read the vectors of a corpus if they are there and unchanged; otherwise compute them.

    Papers without the unit's text (for "title+abstract": with neither) are left out. If another process is
    computing the same vectors, this one waits for them.

    Args:
        encoder, corpus, route: the model, the corpus and the route of its papers.
        unit: the text of a paper, or "passages".
        window, overlap: tokens of a passage, and of them those in common with the next; by default those of
            the vectors that are there, or else of `Windows.of`.
    """
    settings = vector_settings(encoder, route := encoder.chosen_route(route), unit)
    folder = index_folder(corpus, settings)
    windows = None
    if unit == PASSAGES:
        known = (read_index(folder) or {"result": {}})["result"].get("windows")
        if known and window is None and overlap is None:
            windows = Windows(**known)
        else:
            windows = Windows.of(encoder, route, window, overlap)
    if (vectors := _open(folder, corpus, windows)) is not None:
        return vectors
    try:
        with locked(folder, f"encode the corpus ({unit})", wait=True):
            if (vectors := _open(folder, corpus, windows)) is None:
                if (folder / RECORD).exists() and read_index(folder) is None:
                    logger.warning(f"{folder}: not as it was written; the corpus is encoded again")
                _build(encoder, corpus, settings, folder, windows)
                vectors = _open(folder, corpus, windows)
    except PermissionError as error:
        raise InputError(f"{folder.parent}: vectors cannot be written beside the corpus: {error}") from error
    if vectors is None:
        raise InputError(f"{corpus.papers} changed while it was encoded; give the same command again")
    return vectors


def read_index(folder: Path) -> dict[str, Any] | None:
    """Read the record of the vectors in a folder; None if there are none, or they are not as written."""
    record = read_record(folder / RECORD)
    if record is None or record["what"] != _WHAT or not record["files"]:
        return None
    if sha256_settings(record["settings"])[:16] != folder.name:
        return None
    # Hashing takes a second per gigabyte, so only files of another size or time are hashed.
    seen = _sizes_and_times(folder, record["files"]) == record["result"].get("seen")
    return record if seen or is_unchanged(folder, record["files"]) else None


def _sizes_and_times(folder: Path, names: Iterable[str]) -> dict[str, list[int]]:
    files = [folder / name for name in names if (folder / name).is_file()]
    return {file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in files}


def is_current(record: Mapping[str, Any], corpus: CorpusFolder) -> bool:
    """Return whether vectors are those of a corpus as it is."""
    return bool(record["result"]["source"] == texts_fingerprint(corpus, record["settings"]["unit"]))


def _open(folder: Path, corpus: CorpusFolder, windows: Windows | None) -> RouteVectors | None:
    """Open the vectors in a folder if they are whole, current, and of these windows."""
    record = read_index(folder)
    if record is None or not is_current(record, corpus) or record["result"]["windows"] != _json(windows):
        return None
    vectors = np.load(folder / VECTORS, mmap_mode="r")
    spans = np.load(folder / SPANS, mmap_mode="r") if windows else None
    return RouteVectors(vectors, np.load(folder / ROWS), LanceVectors.open(folder, vectors), spans)


def _json(windows: Windows | None) -> dict[str, Any] | None:
    return None if windows is None else asdict(windows)


class _Plan:
    """Which texts of a corpus have a vector already, and which must be encoded, in the corpus's order.

    Attributes:
        rows, digests, spans: of each text.
        places: the place of each text's vector among the older ones and, behind them, the new ones.
    """

    def __init__(self, pieces: Iterable[Piece], older: Sequence[bytes] = ()) -> None:
        self._pieces, self._older = pieces, older
        self.rows: list[int] = []
        self.digests: list[bytes] = []
        self.spans: list[Span] = []
        self.places: list[int] = []

    def chunks(self) -> Iterator[list[str]]:
        """Yield the texts to encode, and plan all."""
        missing = self._missing()
        while chunk := list(itertools.islice(missing, CHUNK_SIZE)):
            yield chunk

    def _missing(self) -> Iterator[str]:
        known = {digest: place for place, digest in enumerate(self._older)}
        new = itertools.count(len(self._older))
        for row, text, span in self._pieces:
            digest = hashlib.sha256(text.encode()).digest()[:_DIGEST]
            if is_new := digest not in known:
                known[digest] = next(new)
            self.rows.append(row)
            self.digests.append(digest)
            self.places.append(known[digest])
            self.spans += [] if span is None else [span]
            if is_new:
                yield text


def _build(
    encoder: BatchEncoder,
    corpus: CorpusFolder,
    settings: dict[str, Any],
    folder: Path,
    windows: Windows | None,
) -> None:
    route, unit = settings["route"], settings["unit"]
    old = read_index(folder)
    result = {"source": texts_fingerprint(corpus, unit), "windows": _json(windows), "model": encoder.name}
    exact = {**encoder.rounding_settings, **settings, "chunk_size": CHUNK_SIZE, "texts": result["source"]}
    exact |= {"older": None if old is None else old["files"][VECTORS], "windows": result["windows"]}
    texts = texts_of(corpus, unit)
    pieces: Iterator[Piece]
    if windows is None:
        pieces = ((row, text, None) for row, text in texts)
    else:
        pieces = windows.cut(texts, encoder)
        if corpus.bodies is None:
            logger.info(
                f"{corpus.path} has no full texts (`full_text` of `import_corpus`): only abstracts of more "
                f"than {windows.size} tokens are cut"
            )
    parts = PartStore.open(folder.with_name(f"{folder.name}.chunks"), exact, ".npy")
    older = [] if old is None else np.load(folder / TEXTS).view(f"V{_DIGEST}").ravel().tolist()
    plan = _Plan(pieces, older)
    # Of passages, and of texts that were not encoded before, the number is not known.
    total = pq.read_metadata(corpus.papers).num_rows if windows is None and old is None else None
    with progress(f"encoding the corpus ({unit})", total) as advance:
        encode = lambda texts, advance: encoder.encode(texts, route, True, advance)  # noqa: E731
        files = encode_chunks(encode, plan.chunks(), parts, advance)
    if not plan.rows:
        parts.remove()
    elif reused := sum(place < len(older) for place in plan.places):
        logger.info(f"{reused:,} of {len(plan.rows):,} texts were encoded before")
    arrays = [np.load(file, mmap_mode="r") for file in [*([folder / VECTORS] if old else []), *files]]
    _store(folder, corpus, settings, result, plan, _gather(plan.places, arrays))
    parts.remove()


def _gather(places: Sequence[int], arrays: Sequence[Vectors]) -> Iterator[Vectors]:
    """Yield blocks of the vectors at some places of the arrays, one behind the other."""
    starts = np.cumsum([0, *map(len, arrays)])
    for start in range(0, len(places), _COPIED):
        wanted = np.array(places[start : start + _COPIED])
        block = np.empty((len(wanted), arrays[0].shape[1]), np.float32)
        numbers = np.searchsorted(starts, wanted, side="right") - 1
        for number in np.unique(numbers):
            block[numbers == number] = arrays[number][wanted[numbers == number] - starts[number]]
        yield block


def store_vectors(
    corpus: CorpusFolder, settings: Mapping[str, Any], model: str, vectors: NDArray[Any]
) -> None:
    """Store vectors of all rows of papers.parquet, (papers, dimensions), that were encoded elsewhere."""
    folder, unit = index_folder(corpus, settings), settings["unit"]
    count = pq.read_metadata(corpus.papers).num_rows
    if len(vectors) != count:
        raise InputError(f"{len(vectors):,} vectors for the {count:,} papers of {corpus.papers}")
    plan = _Plan((row, text, None) for row, text in texts_of(corpus, unit))
    for _ in plan.chunks():
        pass

    def blocks() -> Iterator[Vectors]:
        for start in range(0, len(plan.rows), _COPIED):
            block = unit_length(np.asarray(vectors[plan.rows[start : start + _COPIED]], np.float32))
            if not np.isfinite(block).all():
                raise InputError("some of the vectors hold numbers that are not finite")
            yield block

    result = {"source": texts_fingerprint(corpus, unit), "windows": None, "model": model}
    with locked(folder, "store vectors", wait=True):
        _store(folder, corpus, dict(settings), result, plan, blocks())


def _store(
    folder: Path,
    corpus: CorpusFolder,
    settings: dict[str, Any],
    result: dict[str, Any],
    plan: _Plan,
    blocks: Iterator[Vectors],
) -> None:
    """Write vectors, in blocks, with what is known of their texts and their record."""
    if (first := next(blocks, None)) is None:
        raise InputError(f"{corpus.papers}: no paper has a {' or '.join(UNITS[settings['unit']])}")
    shape = (len(plan.rows), first.shape[1])
    with replacing_folder(folder) as temporary:
        target = np.lib.format.open_memmap(temporary / VECTORS, "w+", np.float32, shape)
        start = 0
        for block in itertools.chain([first], blocks):
            target[start : start + len(block)] = block
            start += len(block)
        target.flush()
        write_npy(temporary / ROWS, np.array(plan.rows, dtype=np.int64))
        write_npy(temporary / TEXTS, np.frombuffer(b"".join(plan.digests), np.uint8).reshape(-1, _DIGEST))
        if plan.spans:
            write_npy(temporary / SPANS, np.array(plan.spans, np.int64))
        files = hashes_of(temporary, (VECTORS, ROWS, TEXTS, SPANS))
        result |= {"texts": shape[0], "dimensions": shape[1], "seen": _sizes_and_times(temporary, files)}
        write_json(temporary / RECORD, record_of(_WHAT, settings, result, files))
