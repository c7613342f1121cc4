"""An exported graph, served: the vectors, routes, blends and searches of its model, without torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from starlette.testclient import TestClient

import sentence_experts as se
from helpers.samples import make_tiny_encoder
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.retrieval import index

pytest.importorskip("onnxruntime")
pytestmark = (
    pytest.mark.slow
)  # an export; tests/models/export has others, and here are models of torch served
TEXTS = ["rice in drought", "memory replay " * 200, "", "a gene"]


@pytest.fixture(scope="module")
def model(minilm: str, tmp_path_factory: pytest.TempPathFactory) -> ExpertEncoder:
    """A tiny model of one block with two heads, read from its folder."""
    dice = np.random.default_rng(0)
    heads = {name: (dice.normal(size=(32, 32)), dice.normal(size=32)) for name in ("use", "field")}
    folder = tmp_path_factory.mktemp("heads") / "model"
    base = make_tiny_encoder(folder.with_name("base"), minilm, blocks=1)
    se.with_heads(base, heads).save(str(folder))
    return se.load(folder, device="cpu")


@pytest.fixture(scope="module")
def graph(model: ExpertEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return se.export(model, tmp_path_factory.mktemp("graph") / "graph", format="onnx").out


@pytest.fixture(scope="module")
def graph_client(graph: Path, corpus: CorpusFolder) -> Iterator[TestClient]:
    app = se.create_app(graph, corpus=corpus.path, watch=False)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client


def test_vectors_of_all_routes_in_one_request(graph_client: TestClient, model: ExpertEncoder) -> None:
    routes = ["use", "field", "use", "field"]
    sent = {"input": TEXTS, "route": routes}
    found = graph_client.post("/v1/embeddings", json=sent).json()
    each_alone = [model.encode(text, prompt_name=name) for text, name in zip(TEXTS, routes, strict=True)]
    expected = np.stack(each_alone)
    vectors = np.array([each["embedding"] for each in found["data"]])
    assert vectors == pytest.approx(expected, abs=1e-5 * float(np.abs(expected).max()))
    assert found["usage"]["prompt_tokens"] > 256  # the second text is cut there


def test_blends_tokens_and_wrong_routes(graph_client: TestClient) -> None:
    sent = {"input": "a", "model": "graph:use=0.5,field=0.5"}
    blend = graph_client.post("/v1/embeddings", json=sent).json()
    assert np.linalg.norm(blend["data"][0]["embedding"]) == pytest.approx(1, abs=1e-5)
    tokens = graph_client.post("/tokenize", json={"inputs": "rice a", "route": "use"}).json()[0]
    assert [each["text"] for each in tokens if not each["special"]] == ["rice", "a"]
    wrong = graph_client.post("/v1/embeddings", json={"input": "a", "route": "skin"})
    assert wrong.status_code == 422
    assert "field, use" in wrong.text
    long = graph_client.post("/embed", json={"inputs": TEXTS[1] * 9, "route": "use", "truncate": False})
    assert long.status_code == 413


def test_a_search_reads_the_vectors_that_the_model_stored(
    graph: Path, model: ExpertEncoder, corpus: CorpusFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("use", "field", "use=1,field=2")
    wanted = [se.search(model, corpus, "sleep", route=name, top_k=5).papers[0] for name in names]
    monkeypatch.setattr(index, "_build", Mock(side_effect=AssertionError("the corpus is encoded again")))
    for name, expected in zip(names, wanted, strict=True):
        found = se.search(graph, corpus, "sleep", route=name, top_k=5).papers[0]
        assert [each["paper_id"] for each in found] == [each["paper_id"] for each in expected]
        assert [each["score"] for each in found] == pytest.approx(
            [each["score"] for each in expected], abs=1e-5
        )
