"""SIMULATED texts with three sides (subject, method, place), each of which is a kind of similarity."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any
from zlib import crc32

SIDES = {
    "subject": [
        *("drought in rice", "sleep and memory", "rust of wheat", "hearing loss", "coral bleaching"),
        *("malaria in children", "bird migration", "bone repair"),
    ],
    "method": [
        *("by sequencing", "in a field trial", "with a questionnaire", "by electron microscopy"),
        *("by simulation", "with brain scans", "by mass spectrometry", "from satellite images"),
    ],
    "place": [
        *("in Kenya", "in Norway", "in Brazil", "in Japan"),
        *("in Canada", "in Egypt", "in Peru", "in Nepal"),
    ],
}
COUNTS = {"train": 192, "validation": 64, "test": 128}  # pairs per route
TEMPLATES = (
    "{subject}, studied {method} {place}",
    "{place}: {subject}, seen {method}",
    "{method}: {subject} {place}",
)


def simulated_texts(seed: int = 0, count: int = 800) -> list[dict[str, str]]:
    """Return rows with a text and a column for each side, which have nothing to do with each other."""
    generator = random.Random(seed)
    rows: dict[str, dict[str, str]] = {}
    while len(rows) < count:
        sides = {name: generator.choice(values) for name, values in SIDES.items()}
        text = generator.choice(TEMPLATES).format(**sides)
        rows[text] = {"text": text, **sides}
    return list(rows.values())


def simulated_pairs(routes: Sequence[str], seed: int = 0) -> list[dict[str, Any]]:
    """Return rows for `import_pairs`: anchor, positive, label, route and split; no text is in two sets.

    Texts of a linked pair agree in the route's side alone, of an unlinked pair in another side alone. A
    model that is blind to the route cannot tell them apart.
    """
    generator = random.Random(f"{seed} {','.join(routes)}")
    rows = []
    for route in routes:
        others = [side for side in SIDES if side != route]
        for split, count in COUNTS.items():
            for number in range(count):
                label = 1 if split == "train" else number % 2
                anchor, positive = _draw_pair(route if label else generator.choice(others), split, generator)
                rows.append(
                    {"anchor": anchor, "positive": positive, "label": label, "route": route, "split": split}
                )
    return rows


def _draw_pair(shared: str, split: str, generator: random.Random) -> tuple[str, str]:
    """Return two texts of a set that agree in one side alone."""
    while True:
        sides = {name: generator.sample(values, 2) for name, values in SIDES.items()}
        sides[shared][1] = sides[shared][0]
        first, second = (
            generator.choice(TEMPLATES).format(**{name: values[place] for name, values in sides.items()})
            for place in (0, 1)
        )
        if _set_of(first) == _set_of(second) == split:
            return first, second


def _set_of(text: str) -> str:
    """Return the set that a text is for: half of all are for training."""
    return ("train", "train", "validation", "test")[crc32(text.encode()) % 4]
