"""One vector per text from hidden state (HS) and routing weights (RW) (MoEE, section 3.3).

The paper's best, "sum", is cos_HS + alpha * cos_RW. That is the dot product of the vectors
[hs / |hs| ; sqrt(alpha) * rw / |rw|], which all have the same length: an ordinary embedding, usable for
clustering, classification and vector indexes too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sentence_experts.errors import UsageError

Rows = NDArray[np.float32]

HIDDEN, ROUTING, CONCAT, SUM = "hs", "rw", "concat", "sum"
PARTS = (HIDDEN, ROUTING, CONCAT, SUM)


def check_parts(parts: str, alpha: float) -> None:
    """Check how vectors are to be made.

    Raises:
        UsageError: unknown parts, or an alpha that is no weight.
    """
    if parts not in PARTS:
        raise UsageError(f"unknown `parts` {parts!r}: choose {', '.join(PARTS)}")
    if not (alpha >= 0 and np.isfinite(alpha)):
        raise UsageError(f"`alpha` is {alpha}: the weight of the routing weights' cosine must be 0 or more")


def joined(hidden: Rows, routing: Rows, parts: str, alpha: float = 1.0) -> Rows:
    """Vectors of shape (texts, dimensions), float32.

    Args:
        hidden: (texts, width), hidden states.
        routing: (texts, experts of all blocks), routing weights.
        parts: "hs", "rw", "concat" (both unscaled) or "sum".
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


def unit(rows: Rows) -> Rows:
    """Scale rows to length 1; rows of zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    found: Rows = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return found
