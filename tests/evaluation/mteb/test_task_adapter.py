from __future__ import annotations

import numpy as np
import pytest
from mteb.types import PromptType
from sentence_transformers import SentenceTransformer

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.evaluation.mteb.adapter import TaskEncoder
from sentence_experts.evaluation.mteb.groups import HubTask
from sentence_experts.evaluation.mteb.routes import ROUTES, TaskRoutes
from sentence_experts.models.loading import load

TEXTS = ["rice yield", "a sample of maize root in dry soil, measured twice", "rice yield", "", "neuron"]


@pytest.fixture(scope="module")
def encoder(task_model) -> BatchEncoder:
    return BatchEncoder(load(task_model, device="cpu"))


def encode(model: TaskEncoder, task: str, texts=TEXTS, cut: int = 2, role: str | None = None) -> np.ndarray:
    batches = [{"text": list(texts[start : start + cut])} for start in range(0, len(texts), cut)]
    return model.encode(
        batches,
        task_metadata=HubTask(task).make().metadata,
        hf_split="test",
        hf_subset="default",
        prompt_type=PromptType(role) if role else None,
    )


@pytest.mark.parametrize(
    ("task", "role", "route"),
    [
        ("SciFact", "query", "query"),
        ("SciDocsRR", "document", "document"),
        ("Banking77Classification", None, "classification"),
        ("TwentyNewsgroupsClustering", None, "clustering"),
        ("STS12", None, "classification"),
    ],
)
def test_text_takes_the_route_of_its_task(encoder, task, role, route):
    found = encode(TaskEncoder(encoder), task, role=role)
    assert found.shape == (len(TEXTS), encoder.dimension)
    np.testing.assert_allclose(found, encoder.encode(TEXTS, route), atol=1e-6)
    others = [name for name in encoder.routes if name != route]
    assert all(np.abs(found - encoder.encode(TEXTS, name)).max() > 1e-3 for name in others)


def test_user_routes_precede_the_table(encoder):
    model = TaskEncoder(encoder, TaskRoutes.of(encoder, {"STS": "query"}))
    np.testing.assert_allclose(encode(model, "STS12"), encoder.encode(TEXTS, "query"), atol=1e-6)


def test_a_vector_does_not_depend_on_its_batch(encoder):
    model = TaskEncoder(encoder)
    together = encode(model, "STS12")
    np.testing.assert_array_equal(together, encode(model, "STS12", cut=5))
    np.testing.assert_array_equal(together[0], together[2])
    alone = np.concatenate([encode(model, "STS12", [text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-6)


def revision(model: TaskEncoder) -> str:
    return str(model.mteb_model_meta.revision)


def test_model_revision_changes_with_everything_that_affects_scores(encoder, task_model, plain_model):
    base = revision(TaskEncoder(encoder))
    assert revision(TaskEncoder(BatchEncoder(load(task_model, device="cpu"), batch_size=3))) == base
    assert revision(TaskEncoder(encoder, TaskRoutes.of(encoder, {"STS": "query"}))) != base
    # What the tables of usual routes say too, but before the model's own routes.
    usual = dict([next(iter(ROUTES.items()))])
    assert revision(TaskEncoder(encoder, TaskRoutes.of(encoder, usual))) != base
    assert revision(TaskEncoder(BatchEncoder(load(plain_model, device="cpu")))) != base
    shorter = BatchEncoder(load(task_model, device="cpu"))
    shorter.model.max_seq_length = 8
    assert revision(TaskEncoder(shorter)) != base
    by_dot = BatchEncoder(load(task_model, device="cpu"))
    by_dot.model.similarity_fn_name = "dot"
    assert revision(TaskEncoder(by_dot)) != base
    loaded = SentenceTransformer(str(plain_model), device="cpu")
    before = revision(TaskEncoder(BatchEncoder(loaded)))
    next(loaded.parameters()).data[0, 0] += 1
    assert revision(TaskEncoder(BatchEncoder(loaded))) != before
