"""Folders of vectors that `encode` wrote: Parquet files with a column per route."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import RECORD, SharedFolder, sound_record

if TYPE_CHECKING:
    import pandas as pd

WHAT = "folder of vectors"
BEGUN = "begun.json"
_ROWS_PER_BATCH = 4096


def read_record_of(folder: SharedFolder, name: str, damaged_is_none: bool = False) -> dict[str, Any] | None:
    """Read the record of an output in a folder; None if there is none.

    Raises:
        InputError: it is damaged, or a newer version of this package wrote it.
    """
    if (content := folder.read(name)) is None:
        return None
    try:
        record = sound_record(orjson.loads(content), folder.file(name))
    except orjson.JSONDecodeError:
        record = None
    if record is None and not damaged_is_none:
        raise InputError(f"{folder.file(name)}: damaged; give `overwrite` to start over")
    return record


def check_files(folder: SharedFolder, hashes: Mapping[str, str]) -> None:
    """Check that the files of a finished folder are as they were written.

    Raises:
        InputError: one is not.
    """
    names = folder.names()
    for name, digest in hashes.items():
        if name not in names or folder.sha256(name) != digest:
            how = "has changed since it was written" if name in names else "is missing"
            raise InputError(f"{folder.file(name)} {how}: encode again into another folder, or replace it")


@dataclass(frozen=True)
class EncodedFolder:
    """A folder of vectors that `encode` wrote, on a disk or object storage.

    Attributes:
        path: a path or URL.
        texts, empty: the number of texts, and of empty ones among them.
        dimension: of a vector.
        routes: column -> route of its vectors (None for a model without routes).
        model: what the model is called.
        settings: what decided the vectors.
        hashes: the SHA-256 of each Parquet file.
    """

    path: str
    texts: int
    empty: int
    dimension: int
    routes: Mapping[str, str | None]
    model: str
    settings: Mapping[str, Any] = field(repr=False)
    hashes: Mapping[str, str] = field(repr=False)

    @classmethod
    def open(cls, path: Path | str) -> EncodedFolder:
        """Open a finished folder.

        Raises:
            InputError: it is not finished or not such a folder, a file is missing, or a newer version of this
                package wrote it.
        """
        folder = SharedFolder(str(path))
        record = read_record_of(folder, RECORD)
        if record is None and folder.read(BEGUN) is not None:
            raise InputError(f"{path}: not finished; give the command that makes it again to finish it")
        if record is None or record["what"] != WHAT:
            raise InputError(f"{path}: not a folder of vectors that `encode` wrote")
        if missing := set(record["files"] or {}) - folder.names():
            raise InputError(f"{folder.file(min(missing))} is missing: give `overwrite` to make it again")
        return cls(str(path), **record["result"], settings=record["settings"], hashes=record["files"])

    @property
    def files(self) -> list[str]:
        """The names of the Parquet files, in the order of the texts."""
        return sorted(self.hashes)

    def check_unchanged(self) -> None:
        """Check that all files are as they were written.

        Raises:
            InputError: one is not.
        """
        check_files(SharedFolder(self.path), self.hashes)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order: `row`, `id` (if wanted) and a column of vectors for each route.

        Raises:
            InputError: a file is damaged.
        """
        folder = SharedFolder(self.path)
        for name in self.files:
            try:
                with folder.opened(name) as content:
                    file = pq.ParquetFile(content, page_checksum_verification=True)
                    yield from file.iter_batches(_ROWS_PER_BATCH, columns=columns)
            except (OSError, pa.ArrowException) as error:
                raise InputError(f"{folder.file(name)}: damaged ({error}): give `overwrite`") from error

    def vectors(self, column: str | None = None) -> NDArray[np.float32]:
        """Return the vectors of a route, (texts, dimensions); the column may be left out if there is one.

        Raises:
            UsageError: there is no such column, or none is named of several.
        """
        if (name := column or (next(iter(self.routes)) if len(self.routes) == 1 else "")) not in self.routes:
            raise UsageError(f"name one of the columns {', '.join(self.routes)}")
        vectors = np.empty((self.texts, self.dimension), np.float32)
        self.copy(name, vectors)
        return vectors

    def copy(self, column: str, target: NDArray[np.float32]) -> None:
        """Copy the vectors of a column to an array of shape (texts, dimensions), such as one on a disk."""
        done = 0
        for batch in self.batches([column]):
            rows = batch.column(0).flatten().to_numpy()
            target[done : done + len(batch)] = rows.reshape(len(batch), -1)
            done += len(batch)

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per text: `row`, `id` (if wanted), and a column of vectors for each route."""
        frame: pd.DataFrame = pa.Table.from_batches(self.batches()).to_pandas()
        return frame
