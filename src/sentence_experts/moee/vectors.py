"""One vector per text from hidden state (HS) and routing weights (RW) (MoEE, section 3.3).

The paper's best, "sum", is cos_HS + alpha * cos_RW. That is the dot product of the vectors
[hs / |hs| ; sqrt(alpha) * rw / |rw|], which all have the same length: an ordinary embedding, usable for
clustering, classification and vector indexes too.

Standard scores are each number of a state minus its mean, divided by its standard deviation. The published
code computes both over each batch, so a text's vector depends on its neighbours and a batch of one becomes
zero. Here they are fitted once, on texts of no test set, and saved with the embedder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sentence_experts.errors import UsageError
from sentence_experts.models.layers.weight_files import read_arrays
from sentence_experts.models.pooling import unit
from sentence_experts.storage import replacing

Rows = NDArray[np.float32]

HIDDEN, ROUTING, CONCAT, SUM = "hs", "rw", "concat", "sum"
PARTS = (HIDDEN, ROUTING, CONCAT, SUM)
MIN_TEXTS = 2
MIN_DEVIATION = 1e-6  # numbers that never change carry no information


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
    """Return vectors of shape (texts, dimensions), float32.

    "concat" joins both as they are, as the paper does. Hidden states are some 20 times as long as routing
    weights, so its cosines are nearly the same as of hidden states alone, unless both are standard scores.

    Args:
        hidden: hidden states, (texts, width).
        routing: routing weights, (texts, experts of all blocks).
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


@dataclass(frozen=True)
class Standard(States):
    """Means, then deviations, of each number of hidden states, (2, width), and of routing weights."""

    @classmethod
    def fit(cls, states: States) -> Standard:
        """Fit on the states of calibration texts; too few are a UsageError."""
        if len(states) < MIN_TEXTS:
            raise UsageError(f"{len(states)} calibration texts: standard scores need {MIN_TEXTS} or more")
        return cls(_compute_moments(states.hidden), _compute_moments(states.routing))

    def apply(self, states: States) -> States:
        """Return the states as standard scores."""
        return States(_standardize(states.hidden, self.hidden), _standardize(states.routing, self.routing))

    def write(self, file: Path) -> None:
        """Write to a safetensors file."""
        from safetensors.numpy import save_file

        with replacing(file) as temporary:
            save_file({"hidden": self.hidden, "routing": self.routing}, temporary)

    @classmethod
    def read(cls, file: Path) -> Standard:
        """Read the standard scores that `write` wrote."""
        return cls(**read_arrays(file, ("hidden", "routing")))


def batch_scores(states: States, batch_size: int, published: bool = False) -> States:
    """Return standard scores within each batch of consecutive texts; `published`: exactly as in that code.

    There the deviation has n - 1 in its denominator, 1e-8 is added to it, and the scores of a single text
    are 0.
    """

    def scores(rows: Rows) -> Rows:
        if not published:
            return _standardize(rows, _compute_moments(rows))
        if len(rows) < MIN_TEXTS:
            return np.zeros_like(rows)
        exact = rows.astype(np.float64)
        scored: Rows = (exact - exact.mean(axis=0)) / (exact.std(axis=0, ddof=1) + 1e-8)
        return scored.astype(np.float32)

    batches = [states[start : start + batch_size] for start in range(0, len(states), batch_size)]
    return States.together([States(scores(batch.hidden), scores(batch.routing)) for batch in batches])


def _compute_moments(rows: Rows) -> Rows:
    exact = rows.astype(np.float64)
    return np.stack([exact.mean(axis=0), exact.std(axis=0)]).astype(np.float32)


def _standardize(rows: Rows, moments: Rows) -> Rows:
    mean, deviation = moments
    divisor = np.maximum(deviation, MIN_DEVIATION)
    return np.where(deviation > MIN_DEVIATION, (rows - mean) / divisor, 0).astype(np.float32)
