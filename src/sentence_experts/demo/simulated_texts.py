"""SIMULATED texts with three sides (subject, method, place), and pairs that are alike in one of them.

Each route asks for another side: a pair that is alike under one route is unlike under the others. So a model
that is blind to the route cannot tell the classes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

from sentence_experts.corpus.identifiers import SIMULATED_DOI
from sentence_experts.corpus.simulate import JOURNAL

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
COUNTS = {"train": 192, "validation": 64, "test": 128}
_ENDS = ("anchor", "positive")


def simulated_pairs(routes: Sequence[str], seed: int = 0) -> list[dict[str, Any]]:
    """Rows for `import_pairs`: anchor, positive, label, route and split; no text is in two sets.

    Texts of a linked pair agree in the route's side alone; those of an unlinked one in another side alone.
    """
    generator = random.Random(f"{seed} {','.join(routes)}")
    rows = []
    for route in routes:
        others = [side for side in SIDES if side != route]
        for split, count in COUNTS.items():
            for number in range(count):
                label = 1 if split == "train" else number % 2
                shared = route if label else generator.choice(others)
                anchor, positive = _pair(shared, split, generator)
                row = {"anchor": anchor, "positive": positive, "label": label, "route": route, "split": split}
                rows.append(row | {"anchor_id": _doi(anchor), "positive_id": _doi(positive)})
    return rows


def simulated_papers(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The texts of the test pairs, each once, as a table of papers for `import_corpus`."""
    texts = {row[end]: row[f"{end}_id"] for row in rows if row["split"] == "test" for end in _ENDS}
    return [{"id": doi, "doi": doi, "title": text, "journal": JOURNAL} for text, doi in texts.items()]


def _doi(text: str) -> str:
    """A DOI that says what its text is."""
    return f"{SIMULATED_DOI}route.{crc32(text.encode()):08x}"


def _pair(shared: str, split: str, generator: random.Random) -> tuple[str, str]:
    """Two texts of a set that agree in one side alone."""
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
    """The set that a text is for: half of all are for training."""
    return ("train", "train", "validation", "test")[crc32(text.encode()) % 4]
