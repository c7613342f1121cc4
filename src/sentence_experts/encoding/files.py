"""A file of texts to a file of vectors."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.encoding.chunks import encode_chunks, read_chunks
from sentence_experts.encoding.encoder import BatchEncoder, Vectors
from sentence_experts.encoding.inputs import Row, TextFile
from sentence_experts.encoding.precisions import FLOAT32, check_precision, write_in_precision
from sentence_experts.errors import InputError, UsageError
from sentence_experts.progress import progress
from sentence_experts.storage import replacing, sha256_file

ENDINGS = (".parquet", ".npy")
CHUNK = 1024  # texts lost at most by an interruption


@dataclass(frozen=True)
class Encoded:
    """What `encode_file` wrote."""

    path: Path
    texts: int
    empty: int
    dimension: int


def encode_file(
    encoder: BatchEncoder,
    source: TextFile,
    out: Path,
    route: str | None = None,
    normalize: bool = False,
    chunk: int = CHUNK,
    precision: str = FLOAT32,
) -> Encoded:
    """Encode every text of `source`, in order, to `out`.

    `.npy` holds float32 of shape (texts, dimensions). `.parquet` holds `row` (int64, counted from 0), `id`
    (where the source has an id column) and `vector` (fixed-size list of float32). With another `precision`
    (`precisions`), `.npy` holds that. Chunks are kept in a hidden
    folder beside `out` until it is whole; the same call after an interruption goes on from there.

    Raises:
        UsageError: `out` ends in neither, or names the source.
        InputError: the source cannot be read or holds no texts (`TextFile.rows`), or an empty one that the
            model does not take.
        RouteError: as `Encoder.chosen_route`.
    """
    if out.suffix not in ENDINGS:
        raise UsageError(f"{out}: the output's name must end in {' or '.join(ENDINGS)}")
    check_precision(precision, out)
    if out.resolve() == source.path.resolve():
        raise UsageError(f"{out}: the output would overwrite the input")
    route = encoder.chosen_route(route)
    settings = {
        **encoder.exact_settings(route),
        "normalize": normalize,
        "input_sha256": _input_hash(source),
        "column": source.column,
        "chunk": chunk,
    }
    folder = out.with_name(f".{out.name}.chunks")
    counted = _Counted(source.path, encoder.takes_empty)
    with progress(f"encoding {source.path.name}") as advance:
        texts = counted.watch(source.chunks(chunk))
        files = encode_chunks(
            lambda part: encoder.encode(part, route, normalize), texts, folder, settings, advance
        )
    encoder.say_unsure()
    if not files:
        shutil.rmtree(folder)
        raise InputError(f"{source.path}: no texts in it")
    dimension = next(read_chunks(files)).shape[1]
    if out.suffix == ".npy":
        write_in_precision(out, files, precision)
    else:
        note = {"model": encoder.name, "fingerprint": encoder.fingerprint, "route": route or ""}
        _write_parquet(out, files, source, chunk, dimension, note)
    shutil.rmtree(folder)
    return Encoded(out, counted.texts, counted.empty, dimension)


class _Counted:
    """Counts texts and empty texts on their way to the model, and stops at one that it does not take."""

    def __init__(self, path: Path, takes_empty: bool) -> None:
        self.path = path
        self.takes_empty = takes_empty
        self.texts = 0
        self.empty = 0

    def watch(self, chunks: Iterator[list[Row]]) -> Iterator[list[str]]:
        for rows in chunks:
            empty = [number for number, row in enumerate(rows, start=1) if not row.text.strip()]
            if empty and not self.takes_empty:
                raise InputError(
                    f"{self.path}: text {self.texts + empty[0]} is empty, and this model has nothing to read "
                    f"then: take it out (the {self.texts:,} texts of the chunks before it are read)"
                )
            self.texts += len(rows)
            self.empty += len(empty)
            yield [row.text for row in rows]


def _input_hash(source: TextFile) -> str:
    if not source.path.is_file():
        raise InputError(f"{source.path}: no such file")
    return sha256_file(source.path)


def _write_parquet(
    out: Path, files: Sequence[Path], source: TextFile, chunk: int, dimension: int, note: dict[str, Any]
) -> None:
    fields = [pa.field("row", pa.int64()), pa.field("vector", pa.list_(pa.float32(), dimension))]
    if source.id_column:
        fields.insert(1, pa.field("id", pa.string()))
    schema = pa.schema(fields, metadata=note)
    first = 0
    with replacing(out) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for vectors, rows in zip(read_chunks(files), source.chunks(chunk), strict=True):
            columns: dict[str, Any] = {
                "row": pa.array(range(first, first + len(rows)), pa.int64()),
                "vector": _fixed_size_list(vectors),
            }
            if source.id_column:
                columns["id"] = pa.array([row.id for row in rows], pa.string())
            writer.write_table(pa.table([columns[name] for name in schema.names], schema=schema))
            first += len(rows)


def _fixed_size_list(vectors: Vectors) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), vectors.shape[1])
