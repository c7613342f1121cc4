"""The vectors of a corpus under one route, built once and kept beside it.

They stand in `CORPUS/.vectors/KEY/`: `vectors.npy` (texts, dimensions; float32, length 1, except where routes
with heads share them, see `heads`), `rows.npy` (each one's row in `papers.parquet`), `texts.npy` (16 bytes of
each text's SHA-256), with passages `spans.npy` (where each begins and ends in its paper's text), and their
record. KEY is a hash of what decides a vector, without the corpus: when the corpus changes, texts that it had
before keep their vectors and only the others are encoded.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.encoding.chunks import Vectors, encode_chunks
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import InputError, UsageError
from sentence_experts.progress import progress
from sentence_experts.retrieval.head_cosines import Head, shared_encoder
from sentence_experts.retrieval.texts import (
    PASSAGES,
    UNITS,
    Span,
    passages_of,
    texts_fingerprint,
    texts_of,
)
from sentence_experts.retrieval.vectors import RouteVectors
from sentence_experts.storage import (
    RECORD,
    OpenFiles,
    PartStore,
    allocate_npy,
    hashes_of,
    is_unchanged,
    locked,
    read_record,
    record_of,
    replacing_folder,
    sha256_settings,
    write_json,
    write_npy,
)

if TYPE_CHECKING:
    from sentence_experts.corpus.corpus_folder import CorpusFolder

logger = logging.getLogger(__name__)

CHUNK_SIZE = 1024  # texts lost at most by an interruption
FOLDER = ".vectors"
VECTORS, ROWS, TEXTS, SPANS = "vectors.npy", "rows.npy", "texts.npy", "spans.npy"
_WHAT = "vectors of the papers of a corpus"  # "vectors of a corpus" may hold those of other papers
_DIGEST = 16  # bytes of a text's hash
_COPIED = 65_536  # vectors copied at once


def index_key(encoder: BatchEncoder, route: str | None, unit: str) -> dict[str, Any]:
    """Return the key of an index: the settings that decide its vectors."""
    if unit not in UNITS:
        raise UsageError(f"unknown text unit {unit!r}: choose {', '.join(UNITS)}")
    return {**encoder.cache_key(route), "unit": unit}


def index_folder(corpus: CorpusFolder, settings: Mapping[str, Any]) -> Path:
    """Return the folder of the vectors with these settings."""
    return corpus.path / FOLDER / sha256_settings(dict(settings))[:16]


def route_vectors(
    encoder: BatchEncoder, corpus: CorpusFolder, route: str | None = None, unit: str = "title+abstract"
) -> RouteVectors:
    """Read the vectors of a corpus if they are there and unchanged; otherwise compute them.

    `route` None means no prompt. Papers without the unit's text (for "title+abstract": with neither) are left
    out. If another process is computing the same vectors, this one waits for them.
    """
    settings = index_key(encoder, route, unit)
    shared = shared_encoder(encoder, route)
    if shared is None:
        return _read_or_build(encoder, corpus, route, settings)[0]
    # Without the name of the route and its head: all routes of this encoder share the vectors.
    settings = index_key(shared, route, unit) | {"route": None, "shared": True}
    vectors, folder, digest = _read_or_build(shared, corpus, route, settings)
    weight, bias = encoder.model.head_routes[route]
    head = Head.open(weight, bias, vectors.vectors, folder, digest)
    return replace(vectors, head=head)


def _read_or_build(
    encoder: BatchEncoder, corpus: CorpusFolder, route: str | None, settings: dict[str, Any]
) -> tuple[RouteVectors, Path, str]:
    """Return the vectors with these settings, their folder and their hash; encoded if they are not there."""
    folder, unit = index_folder(corpus, settings), settings["unit"]
    if (opened := _open(folder, corpus)) is not None:
        return opened[0], folder, opened[1]
    try:
        with locked(folder, f"encode the corpus ({unit})", wait=True):
            if (opened := _open(folder, corpus)) is None:
                if (folder / RECORD).exists() and read_index(folder) is None:
                    logger.warning(f"{folder}: not as it was written; the corpus is encoded again")
                _build(encoder, corpus, route, settings, folder)
                opened = _open(folder, corpus)
    except PermissionError as error:
        raise InputError(f"{folder.parent}: vectors cannot be written beside the corpus: {error}") from error
    if opened is None:
        raise InputError(f"{corpus.papers} changed while it was encoded; give the same command again")
    return opened[0], folder, opened[1]


def read_index(folder: Path, what: str = _WHAT) -> dict[str, Any] | None:
    """Read the record of an index in a folder; None if there is none, or its files are not as written."""
    record = read_record(folder / RECORD)
    if record is None or record["what"] != what or not record["files"]:
        return None
    if not folder.name.endswith(sha256_settings(record["settings"])[:16]):
        return None
    # Hashing takes a second per gigabyte, so only files of another size or time are hashed.
    seen = _sizes_and_times(folder, record["files"]) == record["result"].get("seen")
    return record if seen or is_unchanged(folder, record["files"]) else None


def write_index_record(
    folder: Path, settings: Mapping[str, Any], result: Mapping[str, Any], what: str = _WHAT
) -> None:
    """Write the record of an index, once all its files are there."""
    hashes = hashes_of(folder, [file.name for file in folder.iterdir()])
    seen = {"seen": _sizes_and_times(folder, hashes)}
    write_json(folder / RECORD, record_of(what, settings, {**result, **seen}, hashes))


def _sizes_and_times(folder: Path, names: Iterable[str]) -> dict[str, list[int]]:
    files = [folder / name for name in names if (folder / name).is_file()]
    return {file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in files}


def is_current(record: Mapping[str, Any], corpus: CorpusFolder) -> bool:
    """Return whether vectors belong to a corpus as it is."""
    return bool(record["result"]["source"] == texts_fingerprint(corpus, record["settings"]["unit"]))


def _open(folder: Path, corpus: CorpusFolder) -> tuple[RouteVectors, str] | None:
    """Open the vectors in a folder if they are whole and current; with their hash."""
    record = read_index(folder)
    if record is None or not is_current(record, corpus):
        return None
    vectors = np.load(folder / VECTORS, mmap_mode="r")
    spans = np.load(folder / SPANS, mmap_mode="r") if SPANS in record["files"] else None
    files = OpenFiles(folder / name for name in (VECTORS, SPANS) if name in record["files"])
    opened = RouteVectors(vectors, np.load(folder / ROWS), spans, files=files)
    return opened, record["files"][VECTORS]


class _Plan:
    """The texts of a corpus, in its order: those that have a vector already, and those to encode.

    Attributes:
        rows, digests, spans: row, digest and span of each text.
        places: the place of each text's vector among the older ones and, behind them, the new ones.
    """

    def __init__(self, texts: Iterable[tuple[int, str, Span | None]], older: Iterable[bytes] = ()) -> None:
        self._texts = texts
        places = list(older)  # papers may share a text, and then its digest is there several times
        self._known = {digest: place for place, digest in enumerate(places)}
        self.older = self._next = len(places)
        self.rows: list[int] = []
        self.digests: list[bytes] = []
        self.spans: list[Span] = []
        self.places: list[int] = []

    def missing(self) -> Iterator[str]:
        """Yield the texts to encode, and plan all."""
        for row, text, span in self._texts:
            digest = hashlib.sha256(text.encode()).digest()[:_DIGEST]
            self.rows.append(row)
            self.digests.append(digest)
            self.spans += [] if span is None else [span]
            is_new = digest not in self._known
            if is_new:
                self._known[digest] = self._next
                self._next += 1
            self.places.append(self._known[digest])
            if is_new:
                yield text


def _build(
    encoder: BatchEncoder, corpus: CorpusFolder, route: str | None, settings: dict[str, Any], folder: Path
) -> None:
    """Encode the texts of a corpus that have no vector yet, and write all vectors."""
    unit, normalize = settings["unit"], "shared" not in settings
    old, source = read_index(folder), texts_fingerprint(corpus, unit)
    texts: Iterator[tuple[int, str, Span | None]]
    texts = ((row, text, None) for row, text in texts_of(corpus, unit))
    if unit == PASSAGES:
        texts = passages_of(texts_of(corpus, unit), encoder, route)
        if corpus.bodies is None:
            logger.info(f"{corpus.path} has no full texts (`full_text` of `import_corpus`): only abstracts")
    digests = np.load(folder / TEXTS).view(f"V{_DIGEST}").ravel().tolist() if old else ()
    plan = _Plan(texts, digests)
    # The bytes of the vectors depend on these: parts of another interrupted run are not taken.
    exact = {**encoder.rounding_settings, **settings, "chunk_size": CHUNK_SIZE, "texts": source}
    exact["older"] = None if old is None else old["files"][VECTORS]
    parts = PartStore.open(folder.with_name(f"{folder.name}.chunks"), exact, ".npy")
    # The number of passages, and of texts that were not encoded before, is not known.
    total = pq.read_metadata(corpus.papers).num_rows if unit != PASSAGES and old is None else None
    missing = plan.missing()
    chunks = iter(lambda: list(itertools.islice(missing, CHUNK_SIZE)), [])
    with progress(f"encoding the corpus ({unit})", total) as advance:
        encode = lambda texts, advance: encoder.encode(texts, route, normalize, advance)  # noqa: E731
        files = encode_chunks(encode, chunks, parts, advance)
    if not plan.rows:
        parts.remove()
    elif reused := sum(place < plan.older for place in plan.places):
        logger.info(f"{reused:,} of {len(plan.rows):,} texts were encoded before")
    arrays = [np.load(file, mmap_mode="r") for file in [*([folder / VECTORS] if old else []), *files]]
    if not plan.places:
        raise InputError(f"{corpus.papers}: no paper has a {' or '.join(UNITS[unit])}")
    with replacing_folder(folder) as temporary:
        _gather(temporary / VECTORS, arrays, np.array(plan.places))
        write_npy(temporary / ROWS, np.array(plan.rows, dtype=np.int64))
        write_npy(temporary / TEXTS, np.frombuffer(b"".join(plan.digests), np.uint8).reshape(-1, _DIGEST))
        if plan.spans:
            write_npy(temporary / SPANS, np.array(plan.spans, np.int64))
        result = {"source": source, "model": encoder.name, "texts": len(plan.places)}
        write_index_record(temporary, settings, result | {"dimensions": arrays[0].shape[1]})
    parts.remove()


def _gather(file: Path, arrays: Sequence[Vectors], places: NDArray[np.int64]) -> None:
    """Write the vectors at some places of the arrays, one behind the other, to one file."""
    starts = np.cumsum([0, *map(len, arrays)])
    target = allocate_npy(file, (len(places), arrays[0].shape[1]), "float32")
    for start in range(0, len(places), _COPIED):
        wanted, block = places[start : start + _COPIED], target[start : start + _COPIED]
        numbers = np.searchsorted(starts, wanted, side="right") - 1
        for number in np.unique(numbers):
            block[numbers == number] = arrays[number][wanted[numbers == number] - starts[number]]
    target.flush()
