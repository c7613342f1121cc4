"""How near to each other an article mentions two works."""

from __future__ import annotations

from typing import Literal, get_args

Level = Literal["article", "section", "paragraph", "sentence", "bracket"]
# From the widest to the closest; each lies within the one before.
LEVELS: tuple[Level, ...] = get_args(Level)
# Levels at which a pair shares a paragraph.
NEAR: tuple[Level, ...] = LEVELS[LEVELS.index("paragraph") :]
