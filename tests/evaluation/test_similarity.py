"""Similarity between routes: planted differences are found, others are not, p-values follow the formula."""

from __future__ import annotations

import shutil
from itertools import combinations
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from scipy.stats import t

from helpers.hub import running_hub
from sentence_experts.errors import InputError, RouteError
from sentence_experts.evaluation.models import ModelRun
from sentence_experts.evaluation.similarity import (
    Similarity,
    chosen_texts,
    comparable_routes,
    inter_route_cosines,
    similarity,
    welch_by_pair,
    welch_less,
)
from sentence_experts.models.files.saving import save
from sentence_experts.models.loading import load
from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.report.figures import similarity_figure

ROUTES = ("classification", "clustering", "document", "query")
PAIRS = list(combinations(ROUTES, 2))


class KnownVectors:
    """An encoder whose vectors are given: route -> (texts, 2)."""

    name = "known"

    def __init__(self, angles: dict[str, list[float]], prompts: dict[str, str] | None = None) -> None:
        self.angles = angles
        self.routes = prompts or {route: f"{route}: " for route in angles}

    def encode(self, texts: list[str], route: str) -> np.ndarray:
        radians = np.array(self.angles[route])
        return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32) * 3


def cosines_of(seed: int, means: dict[tuple[str, str], float] | None = None) -> dict:
    generator = np.random.default_rng(seed)
    return {pair: generator.normal((means or {}).get(pair, 0.8), 0.05, 60) for pair in PAIRS}


def welch_by_hand(first: np.ndarray, second: np.ndarray) -> float:
    a, b = first.var(ddof=1) / len(first), second.var(ddof=1) / len(second)
    statistic = (first.mean() - second.mean()) / sqrt(a + b)
    freedom = (a + b) ** 2 / (a**2 / (len(first) - 1) + b**2 / (len(second) - 1))
    return float(t.cdf(statistic, freedom))


def test_cosine_of_a_text_under_two_routes():
    encoder = KnownVectors({"a": [0, 1, 2], "b": [0.5, 1, 1], "c": [0, 0, 0]})
    found = inter_route_cosines(encoder, ["x", "y", "z"], ["a", "b", "c"])
    assert list(found) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert found["a", "b"] == pytest.approx(np.cos([0.5, 0, 1]))
    assert found["b", "c"] == pytest.approx(np.cos([0.5, 1, 1]))


def test_welch_p_value_equals_the_formula():
    generator = np.random.default_rng(3)
    first, second = generator.normal(0.70, 0.05, 40), generator.normal(0.72, 0.10, 25)
    assert welch_less(first, second)["p_value"] == pytest.approx(welch_by_hand(first, second), rel=1e-9)
    assert welch_less(second, first)["p_value"] == pytest.approx(1 - welch_by_hand(first, second), rel=1e-9)
    assert welch_less(first, second)["difference"] == pytest.approx(first.mean() - second.mean())


def test_only_planted_differences_are_significant():
    lower = {PAIRS[0]: 0.75, PAIRS[3]: 0.7}
    found = welch_by_pair(cosines_of(0, lower), cosines_of(1))
    assert {pair for pair, test in found.items() if test["p_holm"] < 0.01} == set(lower)
    assert all(test["p_value"] > 0.01 for pair, test in found.items() if pair not in lower)
    higher = welch_by_pair(cosines_of(0, {PAIRS[0]: 0.9}), cosines_of(1))
    assert higher[PAIRS[0]]["p_value"] > 0.99  # one-sided: more alike is no evidence
    # Holm: the smallest counts as often as there are pairs, and order is kept.
    ordered = sorted(found.values(), key=lambda test: test["p_value"])
    assert ordered[0]["p_holm"] == pytest.approx(len(PAIRS) * ordered[0]["p_value"], rel=1e-9, abs=0)
    assert [test["p_holm"] for test in ordered] == sorted(test["p_holm"] for test in ordered)


def test_no_spread_means_no_test():
    same = {pair: np.ones(10) - 1e-8 * np.arange(10) for pair in PAIRS}
    found = welch_by_pair(same, {pair: np.ones(10) for pair in PAIRS})
    assert all(test["p_value"] is None and test["p_holm"] is None for test in found.values())
    mixed = {**same, PAIRS[0]: cosines_of(0)[PAIRS[0]]}
    alone = welch_by_pair(mixed, {pair: np.ones(10) for pair in PAIRS})[PAIRS[0]]
    assert alone["p_holm"] == alone["p_value"] < 1e-6  # corrected for the one test that there is


def test_statistics_of_a_distribution():
    values = np.arange(101) / 100
    found = Similarity.of({"m": {("a", "b"): values}}, {"used": 101}, {"m": {}})
    (row,) = found.to_json()["pairs"]
    assert found.to_pandas()["mean"].to_list() == [pytest.approx(0.5)]
    assert "0.500" in repr(found)
    figures = row["models"]["m"]
    assert (figures["mean"], figures["quantiles"]["0.05"]) == pytest.approx((0.5, 0.05))
    assert figures["sd"] == pytest.approx(sqrt(((values - 0.5) ** 2).sum() / 100))
    assert "welch_less" not in row


def test_texts_are_sampled_and_the_others_counted():
    texts = [f"text {number}" for number in range(50)] + ["", "  ", "text 3"]
    used, aside = chosen_texts(texts, 20, seed=1)
    assert aside == {"empty": 2, "repeated": 1}
    assert len(set(used)) == 20
    assert used == sorted(used, key=texts.index)
    assert chosen_texts(texts, 20, seed=1)[0] == used != chosen_texts(texts, 20, seed=2)[0]
    assert chosen_texts(texts)[0] == texts[:50]
    with pytest.raises(InputError, match="at least two are needed"):
        chosen_texts(["one", "", "one"])


def test_routes_with_one_prompt_count_once():
    prompts = {"query": "[A]", "document": "[A]", "a": "[A]", "b": "[B]"}
    known = KnownRoutes("known", prompts, None, ())
    behind = KnownRoutes("known", dict(reversed(prompts.items())), None, ())
    assert comparable_routes(known) == comparable_routes(behind)[::-1] == ["a", "b"]
    assert comparable_routes(known, ["b", "query"]) == ["b", "query"]
    with pytest.raises(RouteError, match=r"no route 'c'; its routes: a, b, document, query$"):
        comparable_routes(known, ["a", "c"])
    with pytest.raises(RouteError, match="two routes or more"):
        comparable_routes(known, ["a"])
    with pytest.raises(RouteError, match="two routes or more"):
        comparable_routes(KnownRoutes("known", {}, None, ()))


def test_similarity_figure_is_reproducible():
    models = {"mote": cosines_of(0), "ic": cosines_of(1)}
    picture = similarity_figure(Similarity.of(models, {}, {}))
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert similarity_figure(Similarity.of(models, {}, {})) == picture
    assert similarity_figure(Similarity.of({"mote": cosines_of(0)}, {}, {})) != picture


def test_a_model_that_is_replaced_before_it_is_loaded_leaves_no_result(
    experts_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record would name the old model, and the figures would be the new one's."""
    model, opened = shutil.copytree(experts_model, tmp_path / "model"), ModelRun.open
    changed: Any = load(experts_model, device="cpu")
    with torch.no_grad():
        next(changed.parameters()).add_(1.0)
    save(changed, tmp_path / "new")

    def replace_first(run: ModelRun, *args: Any, **settings: Any) -> Any:
        model.rename(tmp_path / "old")
        (tmp_path / "new").rename(model)
        return opened(run, *args, **settings)

    monkeypatch.setattr(ModelRun, "open", replace_first)
    with pytest.raises(InputError, match="not written, since a model changed while it was read"):
        similarity(model, ["rice", "sleep", "oak"], out=tmp_path / "out")
    assert not (tmp_path / "out" / "similarity.json").exists()


def test_a_hub_model_is_measured_where_it_was_not_downloaded_before(
    experts_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with running_hub(experts_model, monkeypatch):
        found = similarity("me/model", ["rice", "sleep", "oak"], out=tmp_path / "out")
    assert not found.to_pandas().empty
