"""Results of invented scores, with names that need escaping and lines that are long."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from helpers.planted_embedder import PlantedEmbedder
from sentence_experts.evaluation.audit import Audit, audit
from sentence_experts.evaluation.moee.analysis import Analysis, analyse_states
from sentence_experts.evaluation.moee.rated_pairs import RatedPairs
from sentence_experts.evaluation.pair_evaluation import evaluate_scorers
from sentence_experts.evaluation.results import PairEvaluation
from sentence_experts.evaluation.scorers import Scorer
from sentence_experts.moee.vectors import States

DOMAINS = ("crops & <soil>", "neuro")


def scorer(label: str, gap: float) -> Scorer:
    def score(anchors, positives, domain):
        linked = np.array([int(text) for text in positives])
        noise = np.random.default_rng(list(label.encode())).normal(scale=0.2, size=len(linked))
        return 0.3 + gap * linked + noise

    return Scorer(label, score, lambda: {"model": label})


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
    by_model: dict[str, list[Scorer]] = {}
    for label, gap in models:
        by_model.setdefault(label.partition(" #")[0], []).append(scorer(label, gap))
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


@pytest.fixture(scope="session")
def analysis() -> Analysis:
    """Analysis of a language model with a long name, under two prompts."""
    texts = [f"text {number}, which is about {'an-unbroken-word' * 4}" for number in range(12)]
    data = RatedPairs("sts-of-a-long-name", texts[:6], texts[6:], np.arange(6.0))

    def read(prompt: str, texts: Any) -> States:
        values = np.random.default_rng(len(texts)).random((2, len(texts), 4))
        return States(hidden=values[0], routing=values[1])

    found = analyse_states(PlantedEmbedder(read), [data], prompts=["none", "eol"], clusters=2, bootstrap=0)
    return Analysis(found, {"model": "olmoe-" * 12, "seed": 0, "replicates": 0})


@pytest.fixture(scope="session")
def audited() -> Audit:
    """Audit of pairs whose test texts are training texts."""
    rows = [
        {
            "anchor": f"{domain} leaves {number}",
            "positive": f"roots {number % 9}",
            "label": number % 2,
            "domain": domain,
            "split": split,
        }
        for domain in DOMAINS
        for split in ("train", "test")
        for number in range(30)
    ]
    return audit((), pa.Table.from_pylist(rows), bootstrap=20)
