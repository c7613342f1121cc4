"""How well routes are chosen, counted by hand on choices that are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch

import sentence_experts
from helpers.samples import TOPICS
from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.auto_route import cost_of_mistakes, labelled_texts, measure_choices
from sentence_experts.evaluation.results import PAIR_WEIGHTED_MEAN, POOLED, view_of_domain
from sentence_experts.models.automatic import AutoRoutedEncoder, fit_auto_routes
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.pairs.dataset import Pairs


@pytest.fixture(scope="module")
def pairs(pairs_folder: Path) -> Pairs:
    return Pairs.open(pairs_folder)


@pytest.fixture(scope="module")
def encoder(experts_model: Path) -> ExpertEncoder:
    loaded = sentence_experts.load(experts_model, device="cpu")
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in loaded.named_parameters():
            if "expert" in name:  # so far apart that a wrong route changes the figures
                weight += 0.1 * torch.randn_like(weight)
    return loaded


class ChoosingModel:
    """Chooses routes that are given, at a confidence of 0.8."""

    classifier = SimpleNamespace(confidence=0.8)

    def choose_route(self, texts: list[str]) -> tuple[list[str], np.ndarray]:
        """Each text holds its route and its probability."""
        names, shares = zip(*(text.split() for text in texts), strict=True)
        return list(names), np.array([[float(share), 0.0] for share in shares])


def test_choices_are_counted() -> None:
    labelled = [
        *[("a 0.9", "a")] * 5,
        ("a 0.7", "a"),
        ("b 0.9", "a"),
        ("b 0.7", "a"),
        ("b 0.1", "b"),
        ("a 0", "b"),
    ]
    of_a, of_b, of_all = measure_choices(ChoosingModel(), labelled)
    assert (of_a["domain"], of_b["domain"], of_all["domain"]) == ("a", "b", None)
    assert [row["texts"] for row in (of_a, of_b, of_all)] == [8, 2, 10]
    assert [row["accuracy"] for row in (of_a, of_b, of_all)] == [0.75, 0.5, 0.7]
    assert of_a["below_confidence"] == 0.25
    assert of_a["accuracy_above_confidence"] == pytest.approx(5 / 6)
    assert (of_b["below_confidence"], of_b["accuracy_above_confidence"]) == (1, None)
    assert of_a["chosen"] == {"a": 6, "b": 2}


def test_labelled_texts() -> None:
    rows = {"anchor": ["x", "y", "x", "z"], "positive": ["y", "z", "w", "x"], "domain": ["a", "a", "b", "a"]}
    table = pa.table(rows)
    assert sorted(labelled_texts(table)) == [("w", "b"), ("x", "a"), ("x", "b"), ("y", "a"), ("z", "a")]
    assert sorted(labelled_texts(table, without={"x"})) == [("w", "b"), ("y", "a"), ("z", "a")]
    two = labelled_texts(table, of_each=2)
    assert len(two) == 4
    assert two == labelled_texts(table.take([3, 1, 2, 0]), of_each=2)
    assert len({tuple(labelled_texts(table, of_each=1, seed=seed)) for seed in range(20)}) > 1


def test_automatic_routes_find_planted_topics(encoder: ExpertEncoder, pairs: Pairs) -> None:
    known = labelled_texts(pairs.split("train"))
    texts, domains = [text for text, _ in known], [domain for _, domain in known]
    model = fit_auto_routes(encoder, texts, domains, confidence=0)
    unseen = labelled_texts(pairs.split("test"), without={text for text, _ in known})
    assert measure_choices(model, unseen)[-1]["accuracy"] > 0.7
    probabilities = model.choose_route([text for text, _ in unseen])[1]
    classifier = replace(model.classifier, confidence=float(np.median(probabilities.max(axis=1))))
    model = AutoRoutedEncoder(encoder, classifier)
    assert measure_choices(model, unseen)[-1]["below_confidence"] == pytest.approx(0.5, abs=0.05)


def test_cost_of_wrong_routes(encoder: ExpertEncoder, pairs: Pairs) -> None:
    table = pairs.split("test")
    swapped = labelled_texts(table)
    other = dict(zip(TOPICS, reversed(TOPICS), strict=True))
    texts = [text for text, _ in swapped]
    for routes, confidence in (
        ([domain for _, domain in swapped], 0.0),
        ([other[d] for _, d in swapped], 0.0),
    ):
        model = fit_auto_routes(encoder, texts, routes, confidence=confidence, fallback="error")
        cost = cost_of_mistakes(model, table)
        assert {POOLED, PAIR_WEIGHTED_MEAN, *map(view_of_domain, TOPICS)} == set(cost)
        right = measure_choices(model, swapped)[-1]["accuracy"] == 1
        same = all(true == automatic for true, automatic in cost.values())
        assert same or not right
    assert not same  # with the routes swapped
    domains = [domain for _, domain in swapped]
    model = fit_auto_routes(encoder, texts, domains, confidence=1, fallback="error")
    cost_of_mistakes(model, table)  # texts below the confidence are averaged here, not an error
    assert model.classifier.fallback == "error"


def test_auto_route_teaches_and_measures(encoder: ExpertEncoder, pairs: Pairs) -> None:
    of_pairs = sentence_experts.auto_route(encoder, pairs, confidence=0)
    assert of_pairs.to_pandas()["domain"].tolist() == pairs.domains
    assert set(of_pairs.cost or {}) >= set(map(view_of_domain, pairs.domains))
    rows = [{"text": text, "domain": domain} for text, domain in labelled_texts(pairs.split("train"))]
    of_texts = sentence_experts.auto_route(encoder, texts=rows)
    assert of_texts.cost is None
    assert of_texts.learned + of_texts.choices[-1]["texts"] == len(rows)
    with pytest.raises(UsageError, match="give `pairs`, or `texts`"):
        sentence_experts.auto_route(encoder)


def test_auto_routes_are_kept_in_the_folder_and_not_learned_twice(
    encoder: ExpertEncoder, pairs: Pairs, tmp_path: Path
) -> None:
    encoder.save(str(tmp_path / "model"), create_model_card=False)
    first = sentence_experts.auto_route(tmp_path / "model", pairs, save=True)
    again = sentence_experts.auto_route(tmp_path / "model", pairs, save=True)
    assert (again.learned, again.choices) == (first.learned, [])
    assert first.choices
    with pytest.raises(UsageError, match="overwrite"):
        sentence_experts.auto_route(tmp_path / "model", pairs, save=True, confidence=0.9)
    with pytest.raises(InputError, match="no such model folder"):
        sentence_experts.auto_route(tmp_path / "none", pairs, save=True)
    assert not (tmp_path / "none").exists()
