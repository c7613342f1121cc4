"""The small form of `benchmarks/conflict_control.py`: texts alike by one route, unlike by the other."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from sentence_transformers import SentenceTransformer

from helpers.samples import make_tiny_encoder
from sentence_experts import Pairs, extend, load, train
from sentence_experts.evaluation.estimates import ScoredPairs
from study import auc_of
from study_models import cosines

# Two kinds of topics; a text is of one topic of each kind.
WORDS = {
    "place": ("river stream water", "forest tree wood", "city street house", "desert sand dry"),
    "mood": ("happy joy smile", "angry rage fight", "afraid fear dark", "tired sleep bed"),
}
OTHER = {"place": "mood", "mood": "place"}


def _text(topics: dict[str, int], random: Random) -> str:
    return " ".join(
        " ".join(random.choices(WORDS[kind][topic].split(), k=3)) for kind, topic in topics.items()
    )


def _pair(route: str, random: Random) -> dict[str, str]:
    """Two texts of one topic of the route's kind, and of two topics of the other kind."""
    same, (one, two) = random.randrange(4), random.sample(range(4), 2)
    texts = [
        _text({kind: same if kind == route else other for kind in WORDS}, random) for other in (one, two)
    ]
    group = f"{route} {same}"
    return dict(zip(("anchor", "positive"), texts, strict=True)) | {
        "domain": route, "anchor_id": group, "positive_id": group,
    }  # fmt: skip


def _mean_auc(model: SentenceTransformer, pairs: list[dict[str, str]]) -> float:
    """The mean ROC-AUC over the routes; what is linked by one is unlinked by the other."""
    ids = [[f"{side} {number}" for number in range(len(pairs))] for side in "ab"]
    test, scores = {}, {}
    for route in WORDS:
        texts = ([pair[side] for pair in pairs] for side in ("anchor", "positive"))
        scores[route] = cosines(model, *texts, prompt=model.prompts.get(route))
        labels = [int(pair["domain"] == route) for pair in pairs]
        test[route] = ScoredPairs(scores[route], labels, *ids)
    return float(auc_of(test, scores).values[0])


@pytest.fixture(scope="module")
def data() -> Pairs:
    random = Random(1)
    rows = [_pair(route, random) for route in WORDS for _ in range(400)]
    return Pairs.from_tables(train=rows, validation=[{**rows[0], "label": 0}])


@pytest.fixture(scope="module")
def labelled() -> list[dict[str, str]]:
    random = Random(2)
    return [_pair(route, random) for route in WORDS for _ in range(60)]


@pytest.fixture
def base(tmp_path: Path, minilm: str) -> SentenceTransformer:
    return load(make_tiny_encoder(tmp_path / "base", minilm))


HOW = {
    "batch_size": 16, "batches": "homogeneous", "learning_rate": 3e-3, "eval_steps": 1000, "keep": "last",
    "temperature": 0.1,
}  # fmt: skip


@pytest.mark.slow
def test_experts_follow_conflicting_routes(
    base: SentenceTransformer, data: Pairs, labelled: list[dict[str, str]]
) -> None:
    experts = extend(base, list(WORDS))
    assert _mean_auc(experts, labelled) < 0.6, "before training, a route changes nothing"
    train(experts, data, max_steps=80, **HOW)
    assert _mean_auc(experts, labelled) > 0.9


def test_a_dense_model_that_is_blind_to_the_route_is_at_one_half(
    base: SentenceTransformer, data: Pairs, labelled: list[dict[str, str]]
) -> None:
    train(base, data, max_steps=5, **HOW)
    assert _mean_auc(base, labelled) == pytest.approx(0.5, abs=1e-12)
