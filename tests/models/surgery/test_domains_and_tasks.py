"""Domain tokens and instructions together in one model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import sentence_experts
from helpers.odd_texts import TEXTS
from sentence_experts.errors import RouteError, UsageError
from sentence_experts.models.dense import average_experts, export_route
from sentence_experts.models.surgery.add_drop_routes import add_route, drop_route
from sentence_experts.tasks.task_file import TaskFile

TASKS = """
tasks:
  retrieval:
    kind: retrieval
    instructions: {query: "search query: ", document: "document: "}
    datasets: {made: {file: made.jsonl}}
  classes:
    kind: classification
    instructions: {classification: "classification: "}
    experts: {classification: document}
    datasets: {made: {file: made.jsonl}}
"""
DOMAINS = ("copd", "skin cancer")


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    """A task file with three instructions, two of which share an expert."""
    file = tmp_path / "tasks.yaml"
    file.write_text(TASKS)
    return file


def test_every_route_gives_the_bases_vectors(base: SentenceTransformer, task_file: Path) -> None:
    encoder = sentence_experts.extend(base, DOMAINS, tasks=task_file)
    assert encoder.experts == ("copd", "skin cancer", "query", "document")
    assert [route.name for route in encoder.routes] == [*DOMAINS, "query", "document", "classification"]
    assert encoder.routed_model.config.has_domain_tokens
    assert encoder.routed_model.config.expert_norms  # as for tasks alone
    expected = base.encode(TEXTS)
    for domain in DOMAINS:
        assert np.abs(encoder.encode(TEXTS, prompt_name=domain) - expected).max() <= 1e-5
    for route, text in (("query", "search query: "), ("classification", "classification: ")):
        expected = base.encode(TEXTS, prompt=text)
        assert np.abs(encoder.encode(TEXTS, prompt_name=route) - expected).max() <= 1e-5
        assert np.abs(encoder.encode([text + each for each in TEXTS]) - expected).max() <= 1e-5


def test_texts_find_their_experts_in_a_mixed_batch(
    base: SentenceTransformer, task_file: Path, scatter: Callable[..., SentenceTransformer]
) -> None:
    encoder = scatter(sentence_experts.extend(base, DOMAINS, tasks=task_file))
    texts = ["[COPD] lungs", "search query: lungs", "[SKIN_CANCER]lungs", "classification: the heart"]
    together = encoder.encode(texts)
    for row, text in enumerate(texts):
        assert np.abs(encoder.encode(text) - together[row]).max() <= 1e-5
    by_expert = encoder.encode(
        ["lungs"] * 4, expert_ids=[encoder.experts.index(n) for n in ("copd", "query")] * 2
    )
    assert np.abs(by_expert[1] - together[1]).max() <= 1e-5
    with pytest.raises(RouteError, match=r"\[COPD\].*search query"):
        encoder.encode(["lungs"])


def test_a_dense_model_of_each_route(
    base: SentenceTransformer, task_file: Path, scatter: Callable[..., SentenceTransformer]
) -> None:
    encoder = scatter(sentence_experts.extend(base, DOMAINS, tasks=task_file))
    for route in ("copd", "query", "classification"):
        dense = export_route(encoder, route)
        expected = encoder.encode(["the heart", "lungs"], prompt_name=route)
        assert np.abs(dense.encode(["the heart", "lungs"]) - expected).max() <= 1e-5
        assert len(dense.tokenizer) == len(base.tokenizer)
    average_experts(encoder).encode(["lungs"])


@pytest.mark.slow
def test_experts_come_and_go(
    base: SentenceTransformer, task_file: Path, scatter: Callable[..., SentenceTransformer]
) -> None:
    encoder = scatter(sentence_experts.extend(base, DOMAINS, tasks=task_file))
    texts = ["the heart pumps blood", "lungs"]
    grown = add_route(add_route(encoder, "crops"), "clustering", prefix="clustering: ")
    assert [route.text for route in grown.routes if route.name in ("crops", "clustering")] == [
        "[CROPS]",
        "clustering: ",
    ]
    fewer = drop_route(drop_route(grown, "copd"), "query")
    for route in ("skin cancer", "document", "classification"):
        expected = encoder.encode(texts, prompt_name=route)
        for other in (grown, fewer):
            np.testing.assert_array_equal(other.encode(texts, prompt_name=route), expected)
    for domain in ("skin cancer", "crops"):
        fewer = drop_route(fewer, domain)
    assert not fewer.routed_model.config.has_domain_tokens
    expected = encoder.encode(texts, prompt_name="document")
    np.testing.assert_array_equal(fewer.encode(texts, prompt_name="document"), expected)


def test_an_instruction_on_a_model_of_domains(base: SentenceTransformer) -> None:
    encoder = sentence_experts.extend(base, DOMAINS)
    grown = add_route(encoder, "query", prefix="search query: ")
    assert grown.routed_model.config.has_domain_tokens
    expected = base.encode(["lungs"], prompt="search query: ")
    assert np.abs(grown.encode(["lungs"], prompt_name="query") - expected).max() <= 1e-5


def test_names_and_arguments_that_clash(base: SentenceTransformer, task_file: Path) -> None:
    with pytest.raises(UsageError, match="named twice: 'query'"):
        sentence_experts.extend(base, ["query"], tasks=task_file)
    with pytest.raises(UsageError, match="route='none'"):
        sentence_experts.extend(base, tasks=task_file, route="none", router="learned")
    with pytest.raises(UsageError, match="prefixes"):
        sentence_experts.extend(base, tasks=task_file, prefixes={"query": "q: "})


def test_tasks_in_memory_of_other_searches_are_other_tasks(
    base: SentenceTransformer, task_file: Path, tmp_path: Path
) -> None:
    whole = TaskFile.read(task_file)
    query, rest = TASKS.split('document: "document: "}', 1)
    apart = f"""{query.rstrip(", ")}}}{rest.partition("  classes:")[0]}
  documents:
    kind: retrieval
    instructions: {{document: "document: "}}
    datasets: {{made: {{file: made.jsonl}}}}
  classes:{rest.partition("  classes:")[2]}"""
    task_file.write_text(apart)
    other = TaskFile.read(task_file)
    assert other.instructions() == whole.instructions()
    sentence_experts.extend(base, tasks=whole, out=tmp_path / "model")
    sentence_experts.extend(base, tasks=whole, out=tmp_path / "model")
    with pytest.raises(UsageError, match="other tasks"):
        sentence_experts.extend(base, tasks=other, out=tmp_path / "model")
