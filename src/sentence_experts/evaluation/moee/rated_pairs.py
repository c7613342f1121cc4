"""Pairs of texts with human scores of their similarity, such as those of the STS tasks."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.errors import InputError
from sentence_experts.evaluation.config import RatedColumns
from sentence_experts.tables import BadRowError, as_text, check_columns, read_columns, read_rows

logger = logging.getLogger(__name__)

MIN_PAIRS = 10


@dataclass(frozen=True)
class RatedPairs:
    """The pairs of one dataset.

    Attributes:
        name: the file's name without its endings.
        first, second: the texts.
        scores: human scores of their similarity, shape (pairs,).
    """

    name: str
    first: list[str]
    second: list[str]
    scores: NDArray[np.float64]

    @classmethod
    def read(cls, path: Path, config: RatedColumns | None = None, **settings: Any) -> RatedPairs:
        """Read a table; rows without two texts and a number are left out and logged.

        Args:
            path: a file with two texts and a score in each row.
            config, settings: a `RatedColumns`, or single fields of it.

        Raises:
            InputError: no such file or column, or too few usable rows.
        """
        columns = read_columns(path)
        names = RatedColumns.of(config, **settings).names(columns)
        check_columns(str(path), names, columns)
        rows, bad = [], []
        for number, row in enumerate(read_rows(path), start=1):
            try:
                rows.append(_usable(row, *names))
            except BadRowError as error:
                bad.append(f"row {number}: {error}")
        if bad:
            logger.info(f"{path.name}: {len(bad)} rows left out; the first: {bad[0]}")
        if len(rows) < MIN_PAIRS:
            raise InputError(f"{path}: {len(rows)} scored pairs; at least {MIN_PAIRS} are needed")
        first, second, scores = map(list, zip(*rows, strict=True))
        return cls(path.name.partition(".")[0], first, second, np.array(scores, dtype=np.float64))

    @property
    def texts(self) -> list[str]:
        """The distinct texts, in their order."""
        return list(dict.fromkeys([*self.first, *self.second]))


def _usable(row: object, anchor: str, positive: str, score: str) -> tuple[str, str, float]:
    if isinstance(row, BadRowError):
        raise row
    assert isinstance(row, dict)
    texts = [(as_text(row.get(name)) or "").strip() for name in (anchor, positive)]
    if not all(texts):
        raise BadRowError(f"no text in {anchor if not texts[0] else positive}")
    try:
        value = float(row[score])
    except (TypeError, ValueError, KeyError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise BadRowError(f"{score} is {row.get(score)!r}, not a number")
    return texts[0], texts[1], value
