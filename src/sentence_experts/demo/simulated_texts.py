"""SIMULATED texts with three sides (subject, method, place), each of which is a kind of similarity."""

from __future__ import annotations

import random

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
