"""Vectors kept by text: one Parquet file a model and route, shared by all sets of texts.

A row is a text's SHA-256 and its vector (float32). Whoever asks for texts gets those that are there read and
the others encoded and added, so another split, or more texts, cost only what is new. What decides a vector
(model, route, pooling, longest text) names the file and stands in it, so a changed model never meets old
vectors. While texts are encoded, each part is a file of its own beside it (`NAME.part-...`), written under
another name and renamed; an interrupted encoding loses one part at most.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.encoding.encoder import Vectors
from sentence_experts.errors import InputError
from sentence_experts.progress import Advance
from sentence_experts.storage import sha256_text, write_parquet

TEXTS_OF_A_PART = 512
SETTINGS = b"settings"


class VectorFile:
    """The vectors of one model and route in a folder.

    Args:
        folder: may hold the files of many models.
        name: begins the file's name, for people.
        settings: all that decides a text's vector, as plain JSON values.
    """

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any]) -> None:
        self._noted = json.dumps(dict(settings), sort_keys=True)
        readable = re.sub(r"[^\w.-]+", "-", name).strip("-.")[:60]
        self.path = Path(folder) / f"{readable}-{sha256_text(self._noted)[:16]}.parquet"

    def vectors(
        self,
        texts: Sequence[str],
        encode: Callable[[list[str]], Vectors],
        advance: Advance = lambda steps=1: None,
    ) -> Vectors:
        """Vectors of shape (texts, dimensions), float32, in the order of the texts.

        Args:
            texts: distinct ones, at least one.
            encode: gives the vectors of the texts that are missing, some at a time, in the order given.
            advance: told of each text that is there.

        Raises:
            InputError: the file is not one of vectors of these settings.
        """
        hashes = pa.array([bytes.fromhex(sha256_text(text)) for text in texts], pa.binary(32))
        parts = self._parts()
        known = self._read([self.path, *parts])
        place = pc.index_in(hashes, known["text_sha256"].combine_chunks()) if known else pa.nulls(len(texts))
        missing = np.flatnonzero(pc.is_null(place).to_numpy(zero_copy_only=False)).astype(np.int64)
        advance(len(texts) - len(missing))
        added = self._encode(texts, hashes, missing, encode, advance)
        tables = [table for table in (known, *added) if table is not None]
        everything = pa.concat_tables(tables)
        if added or parts:
            self._keep(everything, parts)
        rows = pc.index_in(hashes, everything["text_sha256"].combine_chunks())
        return _matrix(everything.take(rows))

    def _encode(
        self,
        texts: Sequence[str],
        hashes: pa.Array,
        missing: NDArray[np.int64],
        encode: Callable[[list[str]], Vectors],
        advance: Advance,
    ) -> list[pa.Table]:
        tables = []
        for start in range(0, len(missing), TEXTS_OF_A_PART):
            rows = missing[start : start + TEXTS_OF_A_PART]
            vectors = encode([texts[row] for row in rows])
            tables.append(self._table(hashes.take(pa.array(rows)), vectors))
            write_parquet(self._part(start), tables[-1])
            advance(len(rows))
        return tables

    def _keep(self, everything: pa.Table, parts: Sequence[Path]) -> None:
        """Join what is there and what was added to one file; the parts have then done their work."""
        hashes = everything["text_sha256"].combine_chunks()
        first = pc.index_in(hashes, hashes)  # a part may have been joined already, but not yet removed
        write_parquet(self.path, everything.filter(pc.equal(first, pa.array(np.arange(len(first))))))
        for part in {*parts, *self.path.parent.glob(self._part("*").name)}:
            part.unlink(missing_ok=True)

    def _parts(self) -> list[Path]:
        return sorted(self.path.parent.glob(f"{self.path.name}.part-*"))

    def _part(self, start: int | str) -> Path:
        # With the process's number: two processes may fill one folder at a time.
        return self.path.with_name(f"{self.path.name}.part-{os.getpid()}-{start}")

    def _table(self, hashes: pa.Array, vectors: Vectors) -> pa.Table:
        flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).ravel())
        columns = {
            "text_sha256": hashes,
            "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        }
        return pa.table(columns).replace_schema_metadata({SETTINGS: self._noted})

    def _read(self, files: Sequence[Path]) -> pa.Table | None:
        """All rows of the files that are there; None where none is."""
        tables = []
        for file in files:
            try:
                table = pq.read_table(file, partitioning=None)
            except FileNotFoundError:  # also a part that another process has just joined
                continue
            except (pa.ArrowInvalid, OSError) as error:
                raise InputError(f"{file}: not readable as kept vectors, delete it: {error}") from error
            noted = (table.schema.metadata or {}).get(SETTINGS, b"")
            if noted.decode() != self._noted:
                raise InputError(f"{file}: holds vectors of another model, delete it")
            tables.append(table)
        return pa.concat_tables(tables) if tables else None


def _matrix(table: pa.Table) -> Vectors:
    column = table["vector"].combine_chunks()
    matrix: Vectors = column.flatten().to_numpy().reshape(len(table), -1)
    return matrix
