"""What is new in pairs that replace others."""

from __future__ import annotations

import logging
from pathlib import Path

import duckdb
import numpy as np

from sentence_experts.pairs.splits import SPLITS

logger = logging.getLogger(__name__)
_LINKED = """SELECT DISTINCT hash(least(anchor_id, positive_id), greatest(anchor_id, positive_id)) AS pair
    FROM read_parquet(?, union_by_name = true) WHERE label = 1 ORDER BY 1"""


def linked_in(folder: Path) -> np.ndarray | None:
    """A number for each linked pair in a folder, ascending; None if there are no pairs that can be read."""
    files = [str(path) for name in SPLITS if (path := folder / f"{name}.parquet").is_file()]
    if not files:
        return None
    try:
        with duckdb.connect() as database:
            return np.asarray(database.execute(_LINKED, [files]).fetchnumpy()["pair"])
    except duckdb.Error:
        return None


def report_new(before: np.ndarray | None, after: np.ndarray | None) -> None:
    """Log how many linked pairs are new, and how many of those before are gone."""
    if before is not None and after is not None:
        common = len(np.intersect1d(before, after, assume_unique=True))
        logger.info(
            f"in place of {len(before):,} linked pairs: {len(after):,}, of which {len(after) - common:,} are "
            f"new; {len(before) - common:,} are gone"
        )
