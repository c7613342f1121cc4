"""A stock `mteb.evaluate` of a stock `SentenceTransformer` takes the routes of the task types."""

from __future__ import annotations

import mteb
import pytest
from sentence_transformers import SentenceTransformer

import sentence_experts
from helpers.samples import make_tiny_encoder
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.evaluation.mteb.adapter import TaskEncoder
from sentence_experts.evaluation.mteb.local import local_tasks
from sentence_experts.evaluation.mteb.routes import TaskRoutes
from sentence_experts.models.files.saving import save
from sentence_experts.models.loading import load
from sentence_experts.models.routes.task_types import with_task_types, without_task_types
from sentence_experts.tasks.dataset import Tasks

PREFIXES = {"query": "search query: ", "classification": "classification: "}


def figure(model, task) -> float:
    options = {"cache": None, "co2_tracker": False, "show_progress_bar": False}
    return mteb.evaluate(model, task.make(), **options).task_results[0].get_score()


def test_stock_mteb_takes_the_route_of_each_task(task_model, tasks_folder):
    encoder = BatchEncoder(load(task_model, device="cpu"))
    save(encoder.model, task_model.with_name("again"))  # as this version saves it
    stock = SentenceTransformer(str(task_model.with_name("again")), device="cpu")
    kinds = set()
    for task in local_tasks(Tasks.open(tasks_folder)):
        if task.kind not in ("STS", "Classification", "Retrieval"):
            continue
        kinds.add(task.kind)
        expected = figure(TaskEncoder(encoder, TaskRoutes.of(encoder)), task)
        assert figure(stock, task) == pytest.approx(expected, abs=1e-3), task.name
    assert len(kinds) >= 2
    assert BatchEncoder(stock).routes == encoder.routes


def test_prompts_of_task_types_are_routes():
    found = with_task_types(PREFIXES, default=None)
    assert found["STS"] == found["Classification"] == "classification: "
    assert found["Retrieval-query"] == "search query: "
    assert "Retrieval-document" not in found
    assert without_task_types(found, None) == PREFIXES
    by_domain = {"copd": "[COPD]", "cvd": "[CVD]"}
    assert with_task_types(by_domain, default=None) == by_domain
    assert with_task_types(by_domain, default="cvd")["Retrieval-document"] == "[CVD]"
    own = {"STS": "judge: "}  # a model of somebody else
    assert without_task_types(own, None) == own
    route = {"STS": "[STS]", "z": "[Z]", "query": "[STS]", "document": "[STS]"}
    assert without_task_types(with_task_types(route, default="STS"), "STS") == route


def test_models_in_memory_have_their_own_prompts_only(tmp_path, minilm):
    base = SentenceTransformer(str(make_tiny_encoder(tmp_path / "base", minilm)), device="cpu")
    model = sentence_experts.extend(base, list(PREFIXES), route="prefix", prefixes=PREFIXES)
    prompts = dict(model.prompts)
    save(model, tmp_path / "model")
    assert load(tmp_path / "model", device="cpu").prompts == prompts
    assert SentenceTransformer(str(tmp_path / "model"), device="cpu").prompts["STS"] == "classification: "
