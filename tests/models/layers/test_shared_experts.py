"""Several routes to one expert: a route has its own instruction, the expert its own weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import sentence_experts
from sentence_experts.errors import RouteError, UsageError
from sentence_experts.models.dense import average_experts, export_route
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.files.saving import save
from sentence_experts.models.loading import load
from sentence_experts.models.surgery.add_drop_routes import add_route, drop_route

TASKS = """
tasks:
  retrieval:
    kind: retrieval
    instructions: {query: "search query: ", document: "search document: "}
    datasets: {a: {file: a.jsonl}}
  groups:
    kind: clustering
    instructions: {clustering: "cluster: "}
    experts: {clustering: document}
    datasets: {b: {file: b.jsonl}}
  classes:
    kind: classification
    instructions: {classification: "light: "}
    experts: {classification: query}
    datasets: {c: {file: c.jsonl}}
"""
PREFIXES = {
    "query": "search query: ",
    "document": "search document: ",
    "clustering": "cluster: ",
    "classification": "light: ",
}
EXPERTS = ["query", "document"]
SHARE = {"clustering": "document", "classification": "query"}


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    file = tmp_path / "tasks.yaml"
    file.write_text(TASKS)
    return file


@pytest.fixture
def shared(base: SentenceTransformer, scatter: Callable[..., Any], task_file: Path) -> ExpertEncoder:
    encoder: ExpertEncoder = scatter(sentence_experts.extend(base, tasks=task_file))
    return encoder


def _vectors(encoder: SentenceTransformer, texts: list[str]) -> dict[str, np.ndarray]:
    routes = encoder[0].auto_model.routes
    return {route.name: encoder.encode(texts, prompt_name=route.name) for route in routes}


def test_a_sharing_route_runs_the_others_expert(shared: ExpertEncoder, texts: list[str]) -> None:
    assert {route.name: shared.experts[route.expert] for route in shared.routes} == {
        "query": "query", "document": "document", **SHARE
    }  # fmt: skip
    before = _vectors(shared, texts)
    with torch.no_grad():
        for name, weight in shared.named_parameters():
            if ".experts.1." in name:
                weight.mul_(1.5)
    after = _vectors(shared, texts)
    moved = {name: not np.allclose(before[name], after[name], atol=1e-4) for name in PREFIXES}
    assert moved == {"query": False, "document": True, "clustering": True, "classification": False}


def test_mixed_batches_and_expert_ids(shared: ExpertEncoder, texts: list[str]) -> None:
    alone = _vectors(shared, texts)
    mixed = shared.encode([prefix + text for prefix in PREFIXES.values() for text in texts])
    np.testing.assert_allclose(mixed, np.concatenate([alone[name] for name in PREFIXES]), atol=1e-5)
    # An expert named by its index or name reads the instruction of its own route.
    np.testing.assert_allclose(shared.encode(texts, expert_ids=1), alone["document"], atol=1e-5)


def test_saved_and_loaded(shared: ExpertEncoder, texts: list[str], tmp_path: Path) -> None:
    save(shared, tmp_path / "model")
    for loaded in (
        load(tmp_path / "model", device="cpu"),
        SentenceTransformer(str(tmp_path / "model"), device="cpu"),
    ):
        for name, vectors in _vectors(shared, texts).items():
            np.testing.assert_allclose(loaded.encode(texts, prompt_name=name), vectors, atol=1e-6)
    np.testing.assert_allclose(
        loaded.encode_query(texts), shared.encode(texts, prompt_name="query"), atol=1e-6
    )


def test_a_sharing_route_is_exported_with_its_own_instruction(
    shared: ExpertEncoder, texts: list[str]
) -> None:
    wanted = _vectors(shared, texts)
    for name in ("clustering", "document"):
        np.testing.assert_allclose(export_route(shared, name).encode(texts), wanted[name], atol=1e-5)
    averaged = average_experts(shared)
    assert set(averaged.prompts) >= set(PREFIXES)


def test_adding_an_expert_leaves_sharing_routes(shared: ExpertEncoder, texts: list[str]) -> None:
    before = _vectors(shared, texts)
    grown = add_route(shared, "new", prefix="naive: ")
    assert grown.experts == ("query", "document", "new")
    after = _vectors(grown, texts)
    assert set(after) == {*PREFIXES, "new"}
    for name in PREFIXES:
        assert np.array_equal(before[name], after[name])
    with pytest.raises(UsageError, match="there is a route 'clustering' already"):
        add_route(shared, "clustering")


def test_dropping_an_expert_drops_the_routes_that_share_it(
    shared: ExpertEncoder, texts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = _vectors(shared, texts)
    smaller = drop_route(shared, "query")
    assert "dropped with 'query', whose expert they share: classification" in capsys.readouterr().err
    after = _vectors(smaller, texts)
    assert set(after) == {"document", "clustering"}
    with pytest.raises(RouteError, match="no route is named 'classification'"):
        smaller.encode("lungs", prompt_name="classification")
    for name, vectors in after.items():
        assert np.array_equal(before[name], vectors)


def test_the_default_route_may_share_an_expert(
    bases: dict[str, SentenceTransformer], task_file: Path
) -> None:
    encoder = sentence_experts.extend(bases["bert"], tasks=task_file, default_route="clustering")
    np.testing.assert_array_equal(
        encoder.encode(["lungs"]), encoder.encode(["lungs"], prompt_name="clustering")
    )
