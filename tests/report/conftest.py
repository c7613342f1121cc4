"""An evaluation of invented scores, with names that need escaping."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sentence_experts.evaluation.pair_evaluation import evaluate_scorers
from sentence_experts.evaluation.results import PairEvaluation

DOMAINS = ("crops & <soil>", "neuro")


class Invented:
    def __init__(self, label: str, gap: float) -> None:
        self.label, self.gap = label, gap

    def settings(self):
        return {"model": self.label}

    def score(self, anchors, positives, domain):
        linked = np.array([int(text) for text in positives])
        noise = np.random.default_rng(list(self.label.encode())).normal(scale=0.2, size=len(linked))
        return 0.3 + self.gap * linked + noise


def invented(
    labels=lambda number: number % 2, models=(("good [bold]", 0.5), ("<b>bad", 0.0)), **options
) -> PairEvaluation:
    rows = [
        {
            "anchor": "",
            "positive": str(labels(number)),
            "label": labels(number),
            "domain": domain,
            "anchor_id": f"a{number % 7}",
            "positive_id": f"b{number % 5}",
        }
        for domain in DOMAINS
        for number in range(60)
    ]
    by_model: dict[str, list[Invented]] = {}
    for label, gap in models:
        by_model.setdefault(label.partition(" #")[0], []).append(Invented(label, gap))
    settings = {"pairs": "pairs", "split": "test"}
    return evaluate_scorers(by_model, pa.Table.from_pylist(rows), bootstrap=20, settings=settings, **options)


@pytest.fixture(scope="session")
def evaluation() -> PairEvaluation:
    return invented()


@pytest.fixture(scope="session")
def only_linked() -> PairEvaluation:
    return invented(labels=lambda number: 1)


@pytest.fixture(scope="session")
def several() -> PairEvaluation:
    """A model of three seeds, one of a single run, and a baseline."""
    runs = [f"seeded #{number}" for number in (1, 2, 3)]
    models = [*((run, 0.4) for run in runs), ("single", 0.2), ("fixed", 0.0)]
    return invented(models=models, baseline=["fixed"])
