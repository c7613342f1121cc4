"""A recipe that is ready to run: what it needs, its steps, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sentence_experts.reproduce.comparison import Comparison
from sentence_experts.reproduce.step import Step

SCALES = ("small", "full")
SMALL, FULL = SCALES


@dataclass(frozen=True)
class Experiment:
    """One recipe at one scale.

    Attributes:
        steps: in their order.
        root: the folder of all recipes of the same protocol and scale.
        report: the folder of the comparison.
        pretrained: hub ids, folders and named models that the steps begin with.
        writes_first: what is written before the first step, in words.
        prepare: writes it, and sees that what the user has to bring is there.
        compare: reads the evaluations of finished steps.
    """

    steps: tuple[Step, ...]
    root: Path
    report: Path
    pretrained: tuple[str, ...]
    writes_first: str | None
    prepare: Callable[[], None]
    compare: Callable[[], Comparison]
