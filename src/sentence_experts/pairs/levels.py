"""How near to each other an article mentions two works."""

from __future__ import annotations

from typing import Literal, get_args

Level = Literal["article", "section", "paragraph", "sentence", "bracket"]
# From the widest to the closest; each lies within the one before.
LEVELS: tuple[Level, ...] = get_args(Level)
# Levels at which a pair shares a paragraph.
NEAR: tuple[Level, ...] = LEVELS[LEVELS.index("paragraph") :]
AUTO_LEVEL: Literal["auto"] = "auto"
# Levels that training pairs are kept to where enough are so near, since those have more in common.
TRAINED_LEVELS: tuple[Level, ...] = ("bracket", "sentence", "paragraph")
# Training pairs of a domain that are enough to leave wider levels out: some thirty batches of 32, with which
# a first training was better than the base (docs/training.md).
ENOUGH_TO_TRAIN = 1_000
