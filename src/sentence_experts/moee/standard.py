"""Standard scores: each number of a state minus its mean, divided by its standard deviation.

The published code computes mean and deviation over each batch, so a text's vector depends on its neighbours
and a batch of one becomes zero. Here they are fitted once, on texts of no test set, and saved with the
embedder; `published_scores` is the published way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.layers.weight_files import read_arrays
from sentence_experts.moee.vectors import Rows, States
from sentence_experts.storage import replacing

FILE = "standard.safetensors"
MIN_TEXTS = 2
MIN_DEVIATION = 1e-6  # numbers that never change carry no information


@dataclass(frozen=True)
class Standard:
    """Mean and deviation of each number of hidden state and routing weights.

    Attributes:
        hidden: (2, width): means, then deviations.
        routing: (2, experts of all blocks).
    """

    hidden: Rows
    routing: Rows

    @classmethod
    def fit(cls, states: States) -> Standard:
        """Fit on the states of calibration texts; too few are a UsageError."""
        if len(states) < MIN_TEXTS:
            raise UsageError(f"{len(states)} calibration texts: standard scores need {MIN_TEXTS} or more")
        return cls(_moments(states.hidden), _moments(states.routing))

    def apply(self, states: States) -> States:
        """The states as standard scores.

        Raises:
            InputError: the scores were fitted to another model.
        """
        fitted, own = ([rows.shape[-1] for rows in (of.hidden, of.routing)] for of in (self, states))
        if fitted != own:
            raise InputError(
                f"the standard scores are of hidden states and routing weights of lengths {fitted}, this "
                f"model's are {own}; fit them again (`fit_standard`)"
            )
        return States(_scores(states.hidden, self.hidden), _scores(states.routing, self.routing))

    def write(self, folder: Path) -> None:
        """Write to an embedder's folder."""
        from safetensors.numpy import save_file

        with replacing(folder / FILE) as temporary:
            save_file({"hidden": self.hidden, "routing": self.routing}, temporary)

    @classmethod
    def read(cls, folder: Path) -> Standard:
        """Read what `write` wrote.

        Raises:
            InputError: the file is damaged, or holds something else.
        """
        moments = read_arrays(folder / FILE, ("hidden", "routing"))
        if any(array.ndim != 2 or len(array) != 2 for array in moments.values()):
            raise InputError(f"{folder / FILE}: not means and deviations; make the embedder again")
        return cls(**moments)


def batch_scores(states: States, batch_size: int, score: Callable[[Rows], Rows] | None = None) -> States:
    """Standard scores within each batch of consecutive texts; `score` turns rows into scores."""
    score = score or (lambda rows: _scores(rows, _moments(rows)))
    batches = [states[start : start + batch_size] for start in range(0, len(states), batch_size)]
    return States.together([States(score(batch.hidden), score(batch.routing)) for batch in batches])


def published_scores(rows: Rows) -> Rows:
    """Standard scores of a batch exactly as in the published code; those of a single text are 0.

    The deviation has n - 1 in its denominator, and 1e-8 is added to it.
    """
    if len(rows) < MIN_TEXTS:
        return np.zeros_like(rows)
    exact = rows.astype(np.float64)
    scores: Rows = (exact - exact.mean(axis=0)) / (exact.std(axis=0, ddof=1) + 1e-8)
    return scores.astype(np.float32)


def _moments(rows: Rows) -> Rows:
    exact = rows.astype(np.float64)
    return np.stack([exact.mean(axis=0), exact.std(axis=0)]).astype(np.float32)


def _scores(rows: Rows, moments: Rows) -> Rows:
    mean, deviation = moments
    scores: Rows = np.where(
        deviation > MIN_DEVIATION, (rows - mean) / np.maximum(deviation, MIN_DEVIATION), 0
    )
    return scores.astype(np.float32)
