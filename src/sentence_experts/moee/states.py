"""What a language model gives for texts: a hidden state and routing weights per text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sentence_experts.moee.vectors import Rows


@dataclass(frozen=True)
class States:
    """Hidden states, (texts, width), and routing weights, (texts, experts of all blocks)."""

    hidden: Rows
    routing: Rows

    def __len__(self) -> int:
        return len(self.hidden)

    def __getitem__(self, rows: Sequence[int] | slice) -> States:
        return States(self.hidden[rows], self.routing[rows])

    @classmethod
    def together(cls, parts: Sequence[States]) -> States:
        """Concatenate the rows of all parts."""
        return cls(
            *(np.concatenate([getattr(part, side) for part in parts]) for side in ("hidden", "routing"))
        )
