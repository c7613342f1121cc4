"""OpenAlex's lists of works that no longer exist: deleted ones, and those merged into another.

Sources: `deleted_ids.csv` (a column `work_id` or `id`) and the folder `merged_ids/works` (files by date with
the columns `merge_date`, `id`, `merge_into_id`) of its snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from sentence_experts.errors import InputError

_DELETED = ("deleted_ids.csv", "deleted_ids.csv.gz")
_MERGED_FOLDER = "merged_ids"
_NUMBER = "try_cast(regexp_extract({}, '[Ww]?([0-9]+)$', 1) AS BIGINT)"
_MAX_MERGERS = 20
"""Maximum number of times that a work was merged; more are a circle."""


def list_kind(path: Path) -> str | None:
    """`deleted` or `merged` for a file that is such a list, by its name and folder."""
    if path.name in _DELETED:
        return "deleted"
    is_table = path.name.endswith((".csv", ".csv.gz"))
    return "merged" if is_table and _MERGED_FOLDER in path.parts[-3:-1] else None


@dataclass(frozen=True)
class RemovedWorks:
    """Works that no longer exist, by their numbers.

    Attributes:
        table: number of each work (ascending), and of the one that it was merged into or 0; shape (2, works).
    """

    table: np.ndarray

    @cached_property
    def _has_merged(self) -> bool:
        return bool(self.table[1].any())

    def reason(self, number: int) -> str | None:
        """`deleted` or `merged` for a work that no longer exists."""
        numbers, successors = self.table
        place = int(np.searchsorted(numbers, number))
        if place == len(numbers) or numbers[place] != number:
            return None
        return "merged" if successors[place] else "deleted"

    def renumbered(self, cited: tuple[int, ...], own: int | None) -> tuple[int, ...]:
        """Numbers of cited works with those of merged ones replaced, each once, without the citing work."""
        numbers, successors = self.table
        if not cited or not self._has_merged:
            return cited
        places = np.minimum(np.searchsorted(numbers, cited), len(numbers) - 1)
        merged = (numbers[places] == cited) & (successors[places] > 0)
        if not merged.any():
            return cited
        now = np.where(merged, successors[places], cited).tolist()
        return tuple(dict.fromkeys(number for number in now if number != own))


def read_removed(lists: list[Path]) -> np.ndarray:
    """The lists as a table for `RemovedWorks`; a merged work is followed to the end of its chain.

    Raises:
        InputError: a list lacks its columns.
    """
    of_kind = {kind: [path for path in lists if list_kind(path) == kind] for kind in ("deleted", "merged")}
    deleted = _numbers(of_kind["deleted"], "deleted", "work_id|id")[0]
    merged, successors = _numbers(of_kind["merged"], "merged", "id", "merge_into_id")
    for _ in range(_MAX_MERGERS if len(merged) else 0):
        places = np.minimum(np.searchsorted(merged, successors), len(merged) - 1)
        again = merged[places] == successors
        if not again.any():
            break
        successors = np.where(again, successors[places], successors)
    apart = merged != successors
    merged, successors = merged[apart], successors[apart]
    deleted = np.setdiff1d(deleted, merged)
    removed = np.stack([
        np.concatenate([merged, deleted]), np.concatenate([successors, np.zeros_like(deleted)]),
    ])  # fmt: skip
    return np.ascontiguousarray(removed[:, np.argsort(removed[0])])


def _numbers(files: list[Path], what: str, *columns: str) -> np.ndarray:
    """The numbers in the columns of some lists, by the first, each once; shape (columns, rows)."""
    import duckdb

    if not files:
        return np.empty((len(columns), 0), np.int64)
    chosen = ", ".join(_NUMBER.format(f"columns('^({column})$')") for column in columns)
    query = (
        f"SELECT DISTINCT {chosen} FROM read_csv(?, header = true, all_varchar = true, union_by_name = true)"
    )
    try:
        with duckdb.connect() as database:
            rows = database.execute(query, [[str(file) for file in files]]).fetchall()
    except duckdb.Error as error:
        named = " and ".join(column.split("|")[0] for column in columns)
        raise InputError(
            f"{files[0]}: not a list of {what} works with {named}: {str(error).splitlines()[0]}"
        ) from error
    numbers = np.array(sorted(row for row in rows if None not in row), np.int64).reshape(-1, len(columns))
    _, first = np.unique(numbers[:, 0], return_index=True)
    return np.ascontiguousarray(numbers[first].T)
