"""One vector per text from hidden state (HS) and routing weights (RW) (MoEE, section 3.3).

The paper's best, "sum", is cos_HS + alpha * cos_RW. That is the dot product of the vectors
[hs / |hs| ; sqrt(alpha) * rw / |rw|], which all have the same length: an ordinary embedding, usable for
clustering, classification and vector indexes too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sentence_experts.errors import UsageError
from sentence_experts.models.pooling import unit

Rows = NDArray[np.float32]

HIDDEN, ROUTING, CONCAT, SUM = "hs", "rw", "concat", "sum"
PARTS = (HIDDEN, ROUTING, CONCAT, SUM)
DESCRIPTIONS = {
    HIDDEN: "its hidden state",
    ROUTING: "its routing weights",
    CONCAT: "its hidden state and routing weights, joined",
    SUM: "its hidden state and routing weights, whose dot product is the weighted sum of two cosines",
}


@dataclass(frozen=True)
class States:
    """Hidden states, (texts, width), and routing weights, (texts, experts of all blocks)."""

    hidden: Rows
    routing: Rows

    def __len__(self) -> int:
        return len(self.hidden)

    def __getitem__(self, rows: Sequence[int] | NDArray[np.int64] | slice) -> States:
        return States(self.hidden[rows], self.routing[rows])

    @classmethod
    def together(cls, parts: Sequence[States]) -> States:
        """Concatenate the rows of all parts."""
        sides = [[part.hidden for part in parts], [part.routing for part in parts]]
        return cls(*map(np.concatenate, sides))


def check_parts(parts: str, alpha: float) -> None:
    """Refuse, with a UsageError, unknown parts and an alpha that is not a weight."""
    if parts not in PARTS:
        raise UsageError(f"unknown `parts` {parts!r}: choose {', '.join(PARTS)}")
    if not (alpha >= 0 and np.isfinite(alpha)):
        raise UsageError(f"`alpha` is {alpha}: the weight of the routing weights' cosine must be 0 or more")


def joined(hidden: Rows, routing: Rows, parts: str, alpha: float = 1.0) -> Rows:
    """Vectors of shape (texts, dimensions), float32.

    "concat" joins both as they are, as the paper does. Hidden states are some 20 times as long as routing
    weights, so its cosines are nearly those of hidden states alone, unless both are standard scores.

    Args:
        hidden: (texts, width), hidden states.
        routing: (texts, experts of all blocks), routing weights.
        parts: "hs", "rw", "concat" or "sum".
        alpha: the weight of the routing weights in "sum".
    """
    check_parts(parts, alpha)
    if parts == HIDDEN:
        return hidden
    if parts == ROUTING:
        return routing
    if parts == SUM:
        hidden, routing = unit(hidden), np.float32(np.sqrt(alpha)) * unit(routing)
    return np.concatenate([hidden, routing], axis=1)
