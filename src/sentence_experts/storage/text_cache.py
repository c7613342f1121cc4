"""Arrays computed from texts, such as vectors, kept on disk: each text is computed once."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.errors import InputError
from sentence_experts.progress import Advance, unseen
from sentence_experts.storage.hashes import sha256_settings, sha256_text
from sentence_experts.storage.locking import locked
from sentence_experts.storage.parts import SETTINGS, PartStore

logger = logging.getLogger(__name__)

Arrays = Mapping[str, NDArray[Any]]  # name -> (texts, width)

_ID = "text_sha256"
TEXTS_PER_PART = 512


class TextCache:
    """A folder with one row of numbers per text and array name, in resumable Parquet parts.

    Settings decide the folder's name, so a changed model never meets old arrays. Several processes may use
    one cache: the first one that lacks texts computes them while the others wait.
    """

    def __init__(
        self, folder: Path, name: str, settings: Mapping[str, Any], dtype: type[np.floating] = np.float32
    ) -> None:
        """Open a cache, or begin it.

        Args:
            folder: folder of the caches of many models; `name` begins the name of this one's, for people.
            settings: everything that decides a text's arrays, as plain JSON values.
            dtype: the precision in which numbers are stored; they come back as float32.
        """
        digest = sha256_settings(dict(settings))[:16]
        readable = re.sub(r"[^\w.-]+", "-", name).strip("-.")[:60]
        self.folder = Path(folder) / "-".join(filter(None, [readable, digest]))
        self._dtype = dtype
        exists = (self.folder / SETTINGS).exists()
        with nullcontext() if exists else locked(self.folder, "begin a cache", wait=True):
            self._parts = PartStore.open(self.folder, {**settings, "dtype": dtype.__name__}, ".parquet")
        self._places: dict[bytes, tuple[Path, int]] = {}
        self._known_parts: set[Path] = set()
        self._refresh()

    def missing(self, texts: Sequence[str]) -> list[str]:
        """Return the distinct texts that have not been computed, in their order."""
        return [text for text in dict.fromkeys(texts) if _id(text) not in self._places]

    def fetch(
        self,
        texts: Sequence[str],
        compute: Callable[[list[str]], Arrays],
        advance: Advance = unseen,
        texts_per_part: int | None = None,
    ) -> dict[str, NDArray[np.float32]]:
        """Return the arrays of texts, in their order; compute and store those that are missing.

        Args:
            texts: the texts, which may repeat.
            compute: function that gives the arrays of some texts, in their order.
            advance: function that is called with the number of distinct texts that are done.
            texts_per_part: number of texts computed between two writes; an interruption loses no more.

        Raises:
            InputError: a number does not fit into the cache's precision.
        """
        if self.missing(texts):
            self._refresh()
        missing = self.missing(texts)
        advance(len(set(texts)) - len(missing))
        if missing:
            with locked(self.folder, f"fill {self.folder.name}", wait=True):
                self._refresh()
                size = texts_per_part or TEXTS_PER_PART
                for start in range(0, len(missing), size):
                    some = missing[start : start + size]
                    if new := self.missing(some):  # another process may have computed them
                        self.add(new, compute(new))
                    advance(len(some))
        return self.get(texts)

    def add(self, texts: Sequence[str], arrays: Arrays) -> None:
        """Store the arrays of distinct texts as one more part.

        Raises:
            InputError: a number does not fit into the cache's precision.
        """
        columns: dict[str, Any] = {_ID: pa.array([_id(text) for text in texts], pa.binary(32))}
        for name, rows in arrays.items():
            self._check_range(rows, texts)
            flat = pa.array(np.ascontiguousarray(rows, dtype=self._dtype).ravel())
            columns[name] = pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])
        keys = self._parts.keys()
        with self._parts.writing(int(keys[-1]) + 1 if keys else 0) as file:
            pq.write_table(pa.table(columns), file, compression="zstd")
        self._refresh()

    def get(self, texts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Return the arrays, float32, of texts that are all there."""
        wanted: dict[Path, list[tuple[int, int]]] = defaultdict(list)
        for place, text in enumerate(texts):
            part, row = self._places[_id(text)]
            wanted[part].append((place, row))
        result: dict[str, NDArray[np.float32]] = {}
        for part, rows in wanted.items():
            table = pq.read_table(part, partitioning=None)
            places, rows_of_parts = map(list, zip(*rows, strict=True))
            for name in table.drop_columns([_ID]).column_names:
                numbers = table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)
                values = numbers.reshape(len(table), -1)
                empty = np.empty((len(texts), values.shape[1]), np.float32)
                result.setdefault(name, empty)[places] = values[rows_of_parts]
        return result

    def _refresh(self) -> None:
        """Learn of parts that were added since, also by other processes."""
        for key in self._parts.keys():  # noqa: SIM118
            part = self._parts.path(key)
            if part in self._known_parts:
                continue
            self._known_parts.add(part)
            if not self._parts.is_done(key):
                logger.warning(f"{part}: damaged; what it held is computed again")
                continue
            ids = pq.read_table(part, columns=[_ID], partitioning=None)[_ID].to_pylist()
            self._places |= {identifier: (part, row) for row, identifier in enumerate(ids)}

    def _check_range(self, rows: NDArray[Any], texts: Sequence[str]) -> None:
        maximum = np.finfo(self._dtype).max
        largest = np.abs(rows).max(axis=1)
        if self._dtype is not np.float32 and (largest > maximum).any():
            worst = int(largest.argmax())
            raise InputError(
                f"the text {texts[worst][:60]!r}... has a value of {largest[worst]:.0f}, and this cache "
                f"stores {self._dtype.__name__}, at most {maximum:.0f}: give no `cache`"
            )


def _id(text: str) -> bytes:
    return bytes.fromhex(sha256_text(text))
