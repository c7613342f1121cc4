"""Kinds of similarity, taught from labels: two routes, and a third one that is added later.

The texts are the descriptions of the machine's own package lists where it has any, else SIMULATED ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import sentence_experts as se
from sentence_experts.demo.main_job import DemoConfig, step
from sentence_experts.demo.package_lists import FACETS, labelled_programs
from sentence_experts.demo.simulated_texts import SIDES, simulated_texts

TWO, THREE = "two-routes", "three-routes"


@dataclass(frozen=True)
class LabelledRows:
    """Texts with label columns.

    Attributes:
        name: what they are.
        rows: with the columns `text` and one per route.
        routes: the label columns; the last one is added later.
        query: one of the texts.
    """

    name: str
    rows: Sequence[dict[str, Any]]
    routes: Sequence[str]
    query: str

    @classmethod
    def find(cls, seed: int = 0) -> LabelledRows:
        """Take the machine's package lists, or simulate texts."""
        programs = labelled_programs()
        if not programs:
            rows = simulated_texts(seed)
            return cls("SIMULATED texts", rows, tuple(SIDES), rows[0]["text"])
        rows = [{"text": row["summary"], **{name: row[name] for name in FACETS}} for row in programs]
        query = next((row["text"] for row in rows if "image viewer" in row["text"].lower()), rows[0]["text"])
        return cls(f"{len(rows):,} programs of this machine's package lists", rows, FACETS, query)


def run_route_job(
    texts: LabelledRows, folder: Path, config: DemoConfig, base: str = "minilm"
) -> tuple[se.FitResult, se.FitResult]:
    """Teach the base two routes, then that model a third one; and make a corpus of the texts."""
    *first, added = texts.routes
    papers = [{"id": f"text{number}", "title": row["text"]} for number, row in enumerate(texts.rows)]
    se.import_corpus(papers=papers, out=folder / "corpus")
    options: dict[str, Any] = {"text": ["text"], "seed": config.seed}
    with step(f"fit: {' and '.join(first)}"):
        two = se.fit(base, list(texts.rows), by=first, out=folder / TWO, **options)
    with step(f"fit: {added}, added to that model"):
        three = se.fit(folder / TWO, list(texts.rows), by=[added], out=folder / THREE, **options)
    return two, three


def nearest_texts(
    model: se.ExpertEncoder, texts: LabelledRows, count: int = 3
) -> Iterator[tuple[str, list[str]]]:
    """Return each route with the texts that are nearest to the query under it."""
    all_texts = [row["text"] for row in texts.rows]
    place = all_texts.index(texts.query)
    pooled = model.without_heads().encode(all_texts, prompt_name=texts.routes[0], batch_size=256)
    for route, (weight, bias) in model.head_routes.items():
        vectors = model.finish(pooled @ weight.T + bias)
        nearest = np.argsort(-(vectors @ vectors[place]), kind="stable")
        yield route, [all_texts[row] for row in nearest if all_texts[row] != texts.query][:count]


def describe_change(texts: LabelledRows, two: se.FitResult, three: se.FitResult) -> str:
    """Return a sentence on what the third route did to the first two."""
    *first, added = texts.routes
    changed = [
        route
        for route in first
        if not np.array_equal(
            two.model.encode([texts.query], prompt_name=route),
            three.model.encode([texts.query], prompt_name=route),
        )
    ]
    fate = (
        f"changed {' and '.join(changed)}" if changed else f"left {' and '.join(first)} the same to the bit"
    )
    return f"Adding {added} {fate}."
