"""The vectors of a corpus under one route, built once and kept beside it.

They stand in `CORPUS/.vectors/KEY/`: `vectors.npy` (texts, dimensions; float32, length 1), `rows.npy` (each
one's row in `papers.parquet`), `texts.npy` (16 bytes of each text's SHA-256), with passages `spans.npy`
(where each begins and ends in its paper's text), and `index.json`. KEY is a hash of what decides a vector,
without the corpus: when the corpus changes, texts that it had before keep their vectors and only the others
are encoded.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
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
from sentence_experts.retrieval.texts import PASSAGES, UNITS, are_of, stamp, stamps, texts_of
from sentence_experts.retrieval.vectors import RouteVectors
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
    from sentence_experts.corpus.corpus_folder import CorpusFolder

logger = logging.getLogger(__name__)

CHUNK_SIZE = 1024  # texts lost at most by an interruption
FORMAT_VERSION = 2  # of `index.json`
FOLDER = ".vectors"
VECTORS, ROWS, TEXTS, SPANS, INDEX = "vectors.npy", "rows.npy", "texts.npy", "spans.npy", "index.json"
_DIGEST = 16  # bytes of a text's hash
_COPIED = 65_536  # vectors copied at once


def vector_settings(encoder: BatchEncoder, route: str | None, unit: str) -> dict[str, Any]:
    """What decides the vectors of texts: the key of an index."""
    if unit not in UNITS:
        raise UsageError(f"unknown text unit {unit!r}: choose {', '.join(UNITS)}")
    return {**encoder.vector_settings(route), "unit": unit}


def index_folder(corpus: CorpusFolder, settings: Mapping[str, Any]) -> Path:
    """Where the vectors of these settings stand."""
    return corpus.path / FOLDER / sha256_settings(dict(settings))[:16]


def route_vectors(
    encoder: BatchEncoder,
    corpus: CorpusFolder,
    route: str | None = None,
    unit: str = "title+abstract",
    window: int | None = None,
    overlap: int | None = None,
) -> RouteVectors:
    """The vectors of a corpus: read if they are there and unchanged, otherwise computed.

    Papers without the unit's text (for "title+abstract": with neither) are left out. If another process is
    computing the same vectors, this one waits for them.

    Args:
        encoder, corpus, route: the model, the corpus and the route of its papers.
        unit: the text of a paper, or "passages".
        window, overlap: tokens of a passage, and of them those in common with the next; by default those of
            the vectors that are there, or else of `Windows.of`.

    Raises:
        UsageError: an unknown unit, or windows that the model does not read.
        InputError: no paper has that text, the vectors cannot be written beside the corpus, or a newer
            version of this package wrote them.
        RouteError: the model needs a route, or does not know this one.
    """
    settings = vector_settings(encoder, route := encoder.chosen_route(route), unit)
    folder = index_folder(corpus, settings)
    windows = None
    if unit == PASSAGES:
        noted = (_intact(folder) or {}).get("windows", {})
        if window is None and overlap is None and noted:
            windows = Windows(**noted)
        else:
            windows = Windows.of(encoder, route, window, overlap)
    if (known := read_index(folder, corpus, windows)) is not None:
        return known
    try:
        with locked(folder, f"encode the corpus ({unit})", wait=True):
            if (known := read_index(folder, corpus, windows, warn=True)) is None:
                _build(encoder, corpus, settings, folder, windows)
                known = read_index(folder, corpus, windows)
    except PermissionError as error:
        raise InputError(f"{folder.parent}: vectors cannot be written beside the corpus: {error}") from error
    if known is None:
        raise InputError(f"{corpus.papers} changed while it was encoded; give the same command again")
    return known


def read_index(
    folder: Path, corpus: CorpusFolder, windows: Windows | None = None, warn: bool = False
) -> RouteVectors | None:
    """The vectors in a folder if they are whole, and those of the corpus as it is and of these windows.

    Raises:
        InputError: a newer version of this package wrote them.
    """
    noted = _intact(folder, warn)
    if noted is None or not are_of(noted, corpus, noted["settings"]["unit"]):
        return None
    if windows is not None and noted.get("windows") != windows.to_json():
        return None
    vectors = np.load(folder / VECTORS, mmap_mode="r")
    spans = np.load(folder / SPANS, mmap_mode="r") if SPANS in noted["files"] else None
    return RouteVectors(vectors, np.load(folder / ROWS), LanceVectors.open(folder, vectors), spans)


def index_state(folder: Path, corpus: CorpusFolder) -> str:
    """Whether the vectors in a folder are "whole", "of an older corpus" or "damaged".

    Raises:
        InputError: a newer version of this package wrote them, or the table of papers has changed.
    """
    if (noted := _intact(folder)) is None:
        return "damaged"
    same = are_of(noted, corpus, noted["settings"]["unit"])
    return "whole" if same else "of an older corpus"


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
            files = [VECTORS, ROWS, TEXTS, *([SPANS] if settings["unit"] == PASSAGES else [])]
            changed = [name for name in files if not _is_unchanged(folder / name, noted["files"][name])]
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


def _is_unchanged(file: Path, stamp: Mapping[str, Any]) -> bool:
    status = file.stat()
    if status.st_size != stamp["bytes"]:
        return False
    return bool(status.st_mtime_ns == stamp["changed_ns"]) or sha256_file(file) == stamp["sha256"]


class _Plan:
    """Which texts of a corpus have a vector already, and which must be encoded, in the corpus's order."""

    def __init__(self, pieces: Iterator[tuple[int, str, Span | None]], old: Path | None) -> None:
        """Plan the texts in `pieces`: row of the paper, text, and where a passage stands in its paper's."""
        self._pieces = pieces
        known = [] if old is None else np.load(old / TEXTS).view(f"V{_DIGEST}").ravel().tolist()
        # Text -> place: in the older vectors (negative, from -1), or among the new ones (from 0).
        self._places: dict[bytes, int] = {digest: -1 - place for place, digest in enumerate(known)}
        self.reused = 0
        self.rows: list[int] = []
        self.sources: list[int] = []
        self.digests: list[bytes] = []
        self.spans: list[Span] = []

    @property
    def files(self) -> list[str]:
        """The names of the files that are written."""
        return [VECTORS, ROWS, TEXTS, *([SPANS] if self.spans else [])]

    def chunks(self) -> Iterator[list[str]]:
        """The texts to encode."""
        missing = self._missing()
        while chunk := list(itertools.islice(missing, CHUNK_SIZE)):
            yield chunk

    def _missing(self) -> Iterator[str]:
        new = 0
        for row, text, span in self._pieces:
            digest = hashlib.sha256(text.encode()).digest()[:_DIGEST]
            place = self._places.get(digest)
            if is_new := place is None:
                place = self._places[digest] = new
                new += 1
            self.rows.append(row)
            self.sources.append(place)
            self.digests.append(digest)
            self.reused += place < 0
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
    old = _intact(folder)
    noted: dict[str, Any] = stamps(corpus, unit)
    exact = {**encoder.rounding_settings, **settings, "chunk_size": CHUNK_SIZE}
    exact |= {"texts": [file["sha256"] for file in noted.values()]}
    exact["older"] = None if old is None else old["files"][VECTORS]["sha256"]
    pieces: Iterator[tuple[int, str, Span | None]]
    if windows is None:
        pieces = ((row, text, None) for row, text in texts_of(corpus, unit))
    else:
        exact["windows"] = noted["windows"] = windows.to_json()
        pieces = windows.cut(texts_of(corpus, unit), encoder)
        if corpus.bodies is None:
            logger.info(
                f"{corpus.path} has no full texts (`full_text` of `import_corpus`): only abstracts of more "
                f"than {windows.size} tokens are cut"
            )
    parts = PartStore.open(folder.with_name(f"{folder.name}.chunks"), exact, ".npy")
    plan = _Plan(pieces, folder if old else None)
    # Of passages, and of texts that were not encoded before, the number is not known.
    total = pq.read_metadata(corpus.papers).num_rows if windows is None and old is None else None
    with progress(f"encoding the corpus ({unit})", total) as advance:
        encode = lambda texts, advance: encoder.encode(texts, route, True, advance)  # noqa: E731
        files = encode_chunks(encode, plan.chunks(), parts, advance)
    if not plan.rows:
        parts.remove()
        raise InputError(f"{corpus.papers}: no paper has a {' or '.join(UNITS[unit])}")
    if plan.reused:
        logger.info(f"{plan.reused:,} of {len(plan.rows):,} texts were encoded before")
    older = np.load(folder / VECTORS, mmap_mode="r") if old else None
    write = lambda path: _write_vectors(path, plan.sources, files, older)  # noqa: E731
    _store(folder, settings, encoder.name, noted, plan, write)
    parts.remove()


def store_vectors(
    corpus: CorpusFolder, settings: Mapping[str, Any], model: str, vectors: NDArray[Any]
) -> None:
    """Store vectors of all rows of papers.parquet, (papers, dimensions), that were encoded elsewhere.

    Raises:
        InputError: their number is another one, they are not finite, or no paper has the text.
    """
    folder = index_folder(corpus, settings)
    unit = settings["unit"]
    plan, noted = _Plan(((*each, None) for each in texts_of(corpus, unit)), None), stamps(corpus, unit)
    for _ in plan.chunks():
        pass
    count = pq.read_metadata(corpus.papers).num_rows
    if len(vectors) != count:
        raise InputError(f"{len(vectors):,} vectors for the {count:,} papers of {corpus.papers}")
    if not plan.rows:
        raise InputError(f"{corpus.papers}: no paper has a {' or '.join(UNITS[unit])}")

    def write(path: Path) -> None:
        target = np.lib.format.open_memmap(path, "w+", np.float32, (len(plan.rows), vectors.shape[1]))
        for start in range(0, len(plan.rows), _COPIED):
            block = unit_length(np.asarray(vectors[plan.rows[start : start + _COPIED]], np.float32))
            if not np.isfinite(block).all():
                raise InputError("some of the vectors hold numbers that are not finite")
            target[start : start + _COPIED] = block
        target.flush()

    with locked(folder, "store vectors", wait=True):
        _store(folder, dict(settings), model, noted, plan, write)


def _store(
    folder: Path,
    settings: dict[str, Any],
    model: str,
    noted: dict[str, Any],
    plan: _Plan,
    write: Callable[[Path], None],
) -> None:
    with replacing_folder(folder) as temporary:
        write(temporary / VECTORS)
        write_npy(temporary / ROWS, np.array(plan.rows, dtype=np.int64))
        write_npy(temporary / TEXTS, np.frombuffer(b"".join(plan.digests), np.uint8).reshape(-1, _DIGEST))
        if plan.spans:
            write_npy(temporary / SPANS, np.array(plan.spans, np.int64))
        notes = {
            "format_version": FORMAT_VERSION,
            "settings": settings,
            "model": model,
            "texts": len(plan.rows),
            **noted,
            "files": {name: stamp(temporary / name) for name in plan.files},
        }
        write_json(temporary / INDEX, notes)
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
