"""Pairs of texts with human scores of their similarity, such as those of the STS tasks."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.errors import InputError
from sentence_experts.evaluation.config import RatedColumns
from sentence_experts.moee import MIN_PAIRS
from sentence_experts.tables import read_columns
from sentence_experts.tasks.rows import read, warn_of_scores
from sentence_experts.tasks.task_file import KINDS, Source

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RatedPairs:
    """The pairs of one dataset: its name, the texts, and human scores of their similarity, (pairs,)."""

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
        first, second, score = RatedColumns.of(config, **settings).names(read_columns(path))
        columns = {"anchor": first, "positive": second, "score": score}
        source = Source.model_validate({"file": str(path), **columns})
        _, rows, bad, _ = read(source, KINDS["sts"], Path())
        if bad:
            of = f"{len(bad):,} of {len(bad) + len(rows):,} rows"
            logger.warning(f"{path}: {of} are left out; the first: {bad[0][0]}: {bad[0][1]}")
        if len(rows) < MIN_PAIRS:
            raise InputError(f"{path}: {len(rows)} scored pairs; at least {MIN_PAIRS} are needed")
        warn_of_scores(rows, str(path))
        texts = ([row.anchor for row in rows], [str(row.positive) for row in rows])
        scores = np.array([row.score for row in rows], dtype=np.float64)
        return cls(path.name.partition(".")[0], *texts, scores)

    @property
    def texts(self) -> list[str]:
        """The distinct texts, in their order."""
        return list(dict.fromkeys([*self.first, *self.second]))
