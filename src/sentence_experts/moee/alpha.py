"""Choose alpha, the weight of the routing weights' cosine, on a development split (MoEE, section 3.3).

The paper tunes alpha and does not say on what data. Here it is tuned on scored pairs that no result is
reported on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from sentence_experts.encoding.encoder import cosines
from sentence_experts.errors import UsageError
from sentence_experts.moee.vectors import States

# 0 ignores the routing weights.
GRID = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
MIN_PAIRS = 10


@dataclass(frozen=True)
class AlphaChoice:
    """The result of a search for alpha; `tried`: alpha -> Spearman's correlation with the scores."""

    tried: dict[float, float]

    @property
    def alpha(self) -> float:
        """The best value; of equally good ones the smallest."""
        return max(sorted(self.tried), key=lambda alpha: round(self.tried[alpha], 6))


def part_cosines(first: States, second: States) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return cosines of the hidden states and of the routing weights, row by row, (pairs,) each."""
    return cosines(first.hidden, second.hidden), cosines(first.routing, second.routing)


def choose_alpha(
    first: States, second: States, scores: Sequence[float], grid: Sequence[float] = GRID
) -> AlphaChoice:
    """Try each alpha of a grid on development pairs.

    Args:
        first, second: states of the first and the second text of each pair.
        scores: the similarity of each pair as people judge it.
        grid: the values to try.
    """
    if len(scores) < MIN_PAIRS or len(set(scores)) < 2:
        raise UsageError(
            f"{len(scores)} development pairs with {len(set(scores))} different scores: alpha needs "
            f"{MIN_PAIRS} pairs and two scores"
        )
    hidden, routing = part_cosines(first, second)
    return AlphaChoice(
        {alpha: float(spearmanr(hidden + alpha * routing, scores).statistic) for alpha in grid}
    )
