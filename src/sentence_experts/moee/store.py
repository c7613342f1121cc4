"""States on disk, so that a language model reads a text once: whatever is made of them, and however often.

A store is a folder a model and way of reading it (`StateReader.settings`), of Parquet parts with the columns
id (of the text), hidden and routing (float16). A part is written whole or not at all, so a run that was
stopped goes on where its last part ends.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.errors import InputError
from sentence_experts.moee.states import States
from sentence_experts.storage import sha256_text, write_json, write_parquet

SETTINGS = "states.json"
KEPT_AS = np.float16
SIDES = ("hidden", "routing")


class StateStore:
    """States of texts in a folder."""

    def __init__(self, cache: Path, settings: dict[str, Any]) -> None:
        """Open, or begin, the store of these settings within `cache`.

        Raises:
            InputError: a part cannot be read.
        """
        self.folder = cache / sha256_text(json.dumps(settings, sort_keys=True))[:16]
        if not (self.folder / SETTINGS).is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / SETTINGS, settings)
        self._places: dict[str, tuple[Path, int]] = {}
        for part in sorted(self.folder.glob("part-*.parquet")):
            self._know(part, _columns_of(part, ["id"])["id"].to_pylist())

    def missing(self, texts: Sequence[str]) -> list[str]:
        """The different texts that are not there, in their order."""
        return [text for text in dict.fromkeys(texts) if sha256_text(text) not in self._places]

    def add(self, texts: Sequence[str], states: States) -> None:
        """Keep the states of texts as one more part.

        Raises:
            InputError: a number is beyond float16's range, which would be kept as infinite.
        """
        parts = sorted(self.folder.glob("part-*.parquet"))  # one in the middle may have been deleted
        following = int(parts[-1].stem.removeprefix("part-")) + 1 if parts else 0
        part = self.folder / f"part-{following:06d}.parquet"
        ids = [sha256_text(text) for text in texts]
        columns = {side: _fixed(getattr(states, side), texts) for side in SIDES}
        write_parquet(part, pa.table({"id": ids, **columns}))
        self._know(part, ids)

    def get(self, texts: Sequence[str]) -> States:
        """The states of texts that are all there."""
        wanted: dict[Path, list[tuple[int, int]]] = defaultdict(list)
        for place, text in enumerate(texts):
            part, row = self._places[sha256_text(text)]
            wanted[part].append((place, row))
        found: dict[str, np.ndarray] = {}
        for part, rows in wanted.items():
            table = _columns_of(part, list(SIDES))
            places, taken = map(list, zip(*rows, strict=True))
            for side in SIDES:
                values = _matrix(table[side])
                whole = found.setdefault(side, np.empty((len(texts), values.shape[1]), np.float32))
                whole[places] = values[taken]
        return States(found["hidden"], found["routing"])

    def _know(self, part: Path, ids: Sequence[str]) -> None:
        self._places |= {identifier: (part, row) for row, identifier in enumerate(ids)}


def _fixed(rows: np.ndarray, texts: Sequence[str]) -> pa.FixedSizeListArray:
    largest = np.abs(rows).max(axis=1)
    if (largest > np.finfo(KEPT_AS).max).any():
        worst = int(largest.argmax())
        raise InputError(
            f"the text {texts[worst][:60]!r}... has a state of {largest[worst]:.0f}, and states are kept as "
            f"float16, at most {np.finfo(KEPT_AS).max:.0f}: read without a cache, or the last layer alone"
        )
    flat = pa.array(rows.astype(KEPT_AS).ravel())
    return pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])


def _matrix(column: pa.ChunkedArray) -> np.ndarray:
    lists = column.combine_chunks()
    values: np.ndarray = lists.flatten().to_numpy(zero_copy_only=False).reshape(len(lists), -1)
    return values


def _columns_of(part: Path, columns: list[str]) -> pa.Table:
    try:
        return pq.read_table(part, columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{part}: these kept states cannot be read ({error}); delete the file") from error
