"""The corpus of a server: its vectors, and models that are replaced while papers are searched."""

from __future__ import annotations

import asyncio
import copy
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from starlette.testclient import TestClient

import sentence_experts
from helpers.running_server import EXPERTS
from helpers.samples import make_tiny_encoder
from helpers.searched_corpus import QUERY, ask, ids, searched_papers, write_searched_corpus
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.loading import LoadConfig
from sentence_experts.models.surgery.add_drop_routes import with_heads
from sentence_experts.models.torch_runtime import TorchRuntime
from sentence_experts.retrieval import index
from sentence_experts.retrieval.texts import PASSAGES
from sentence_experts.serve.library import Library
from sentence_experts.serve.models import Models, ServedModel


@pytest.fixture(scope="module")
def client(search_client: TestClient) -> TestClient:
    return search_client


def test_routes_are_those_whose_experts_were_loaded(
    corpus: CorpusFolder, experts_model: Path, experts: ExpertEncoder
) -> None:
    options = {"corpus": corpus.path, "watch": False, "load_config": LoadConfig(routes=["crops"])}
    app = sentence_experts.create_app({"m": experts_model}, **options)
    with TestClient(app, base_url="http://localhost") as client:
        assert [route["name"] for route in client.get("/search/corpus").json()["routes"]] == ["m:crops"]
        assert client.get("/info").json()["routes"] == ["crops"]
        assert ids(ask(client, query=QUERY))
        answer = client.post("/v1/embeddings", json={"model": "m:neuro", "input": "a"})
        assert answer.status_code == 422
        assert "without the expert of 'neuro'; its routes: crops" in answer.json()["error"]["message"]
        answer = client.post("/v1/embeddings", json={"model": "m:crops", "input": "rice"}).json()
        vector = experts.encode("rice", prompt_name="crops")
        np.testing.assert_allclose(answer["data"][0]["embedding"], vector, atol=1e-6)


def test_searches_follow_a_model_that_is_replaced(
    corpus: CorpusFolder, experts_model: Path, tmp_path: Path, minilm: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(experts_model, folder)
    app = sentence_experts.create_app({"m": folder}, corpus=corpus.path, watch=False)
    other = make_tiny_encoder(tmp_path / "other", minilm, EXPERTS, seed=1)
    (papers,) = sentence_experts.search(other, corpus, QUERY, route="crops", top_k=10).papers
    wanted = [paper["paper_id"] for paper in papers]
    with TestClient(app, base_url="http://localhost") as client:
        assert ids(ask(client, query=QUERY)) != wanted
        shutil.rmtree(folder)
        shutil.copytree(other, folder)
        assert client.portal is not None
        client.portal.call(app.state.engine.models.reload)
        deadline = time.monotonic() + 120
        while ids(ask(client, query=QUERY)) != wanted and time.monotonic() < deadline:
            time.sleep(0.1)
        assert ids(ask(client, query=QUERY)) == wanted


def test_vectors_of_a_taught_route_are_of_the_model_that_it_was_fitted_to(
    plain_model: Path, tmp_path: Path, minilm: str
) -> None:
    corpus, folder = write_searched_corpus(tmp_path / "papers", hostile=False), tmp_path / "model"
    shutil.copytree(plain_model, folder)
    app = sentence_experts.create_app({"m": folder}, corpus=corpus.path, watch=False)
    marks = [
        {"paper": each["doi"], "similar": each["subjects"] == ["crops"]} for each in searched_papers()[:12]
    ]
    with TestClient(app, base_url="http://localhost") as client:

        def vector(model: str) -> Any:
            answer = client.post("/v1/embeddings", json={"model": model, "input": QUERY, "normalize": True})
            return np.array(answer.json()["data"][0]["embedding"])

        client.post("/search/taught/marks", json={"marks": marks})
        client.post("/search/taught", json={"name": "mine"})
        library, before = app.state.library, vector("m")
        old = library._searchers["m"][0]
        shutil.rmtree(folder)
        make_tiny_encoder(folder, minilm, seed=1)
        assert client.portal is not None
        client.portal.call(app.state.engine.models.reload)
        after, deadline = vector("m"), time.monotonic() + 60
        assert not np.allclose(after, before, atol=1e-3)
        served = old
        while served is old:  # no search is needed for the library to follow the model
            assert time.monotonic() < deadline
            change, found = library.taught("m", "default")["mine"], vector("m:mine")
            if change is library.taught("m", "default")["mine"]:
                served = library._searchers["m"][0]
                base = (before if served is old else after)[None]
                assert found == pytest.approx(change.apply(base)[0], abs=1e-5)
            time.sleep(0.05)


def test_papers_are_compared_with_vectors_of_their_own_model_only(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = client.app.state.engine  # type: ignore[attr-defined]
    embed = engine.embed

    async def by_newer(served: Any, *asked: Any) -> Any:
        return replace(await embed(served, *asked), served=object())

    monkeypatch.setattr(engine, "embed", by_newer)
    answer = client.post("/search", json={"query": QUERY})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")
    assert "was replaced" in answer.json()["error"]["message"]


def test_searches_follow_a_model_after_one_that_could_not_be_used(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = client.app.state.library  # type: ignore[attr-defined]
    state = library._searchers["m"]
    opened, tried = library._open, []

    def open_second(served: Any) -> Any:
        tried.append(served)
        if len(tried) == 1:
            raise OSError("the disk is full")
        return opened(served)

    def follow(newer: ServedModel) -> None:
        monkeypatch.setitem(library._models._by_name, "m", newer)
        for _ in range(3):
            ask(client, query=QUERY, top_k=1)
        client.portal.call(lambda: asyncio.wait([library._renewing["m"][1]]))  # type: ignore[union-attr]

    monkeypatch.setattr(library, "_open", open_second)
    bad, good = (ServedModel("m", state[0].model) for _ in range(2))
    follow(bad)
    assert (library._searchers["m"], tried) == (state, [bad])
    follow(good)
    assert (library._searchers["m"][0], tried) == (good, [bad, good])


@pytest.mark.slow
def test_the_base_stands_beside_the_routes(tmp_path: Path, minilm: str) -> None:
    corpus = write_searched_corpus(tmp_path / "papers", hostile=False)
    sentence_experts.extend("minilm", ["crops"], out=tmp_path / "m")
    with TestClient(
        sentence_experts.create_app(tmp_path / "m", corpus=corpus.path), base_url="http://localhost"
    ) as client:
        about = client.get("/search/corpus").json()
        assert [(each["name"], each["default"]) for each in about["routes"]] == [
            ("m:crops", True),
            ("minilm", True),
        ]
        assert len(ask(client, query=QUERY)["routes"]) == 2
    app = sentence_experts.create_app(tmp_path / "m", corpus=corpus.path, base=False)
    with TestClient(app, base_url="http://localhost") as client:
        assert len(client.get("/search/corpus").json()["routes"]) == 1


def test_either_route_of_a_pair_names_it(tmp_path: Path, plain: SentenceTransformer) -> None:
    corpus = write_searched_corpus(tmp_path / "papers", hostile=False)
    model = copy.deepcopy(plain)
    model.prompts = {"query": "query: ", "document": "passage: "}
    app = sentence_experts.create_app({"m": model}, corpus=corpus.path, watch=False)
    with TestClient(app, base_url="http://localhost") as client:
        scores = [
            [hit["score"] for hit in ask(client, query=QUERY, routes=[route])["routes"][0]["hits"]]
            for route in ("m", "m:query", "m:document")
        ]
    assert scores[0] == scores[1] == scores[2]
    found = sentence_experts.search(model, corpus, QUERY)
    assert [hit["score"] for hit in found.papers[0]] == pytest.approx(scores[0], abs=1e-5)


def test_a_head_that_is_added_is_searched_without_encoding(
    tmp_path: Path, plain_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = write_searched_corpus(tmp_path / "papers", hostile=False)
    width = np.eye(32, dtype=np.float32)
    heads = {name: (width * sign, np.ones(32, np.float32)) for name, sign in (("use", 1), ("form", -1))}
    with_heads(plain_model, {"use": heads["use"]}).save(str(tmp_path / "m"))
    app = sentence_experts.create_app(tmp_path / "m", corpus=corpus.path, watch=False)
    monkeypatch.setattr(index, "_build", lambda *given: pytest.fail("encoded again"))
    with TestClient(app, base_url="http://localhost") as client:
        before = ids(ask(client, query=QUERY, routes=["m:use"]))
        with_heads(plain_model, heads).save(str(tmp_path / "m"))
        assert client.portal is not None
        client.portal.call(app.state.engine.models.reload)
        deadline = time.monotonic() + 60
        while len(ask(client, query=QUERY)["routes"]) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert {each["name"] for each in ask(client, query=QUERY)["routes"]} == {"m:use", "m:form"}
        assert ids(ask(client, query=QUERY, routes=["m:use"])) == before
        assert ids(ask(client, query=QUERY, routes=["m:use=0.5,form=0.5"]))


def test_no_two_threads_have_one_tokenizer(
    tmp_path: Path, plain_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cutting passages changes a tokenizer's limits, while requests and another searcher read texts."""
    corpus = write_searched_corpus(tmp_path / "papers", hostile=False)
    monkeypatch.setattr(TorchRuntime, "takes", lambda *given: False)  # a model that only its own encode runs
    models = Models({"m": str(plain_model)}, LoadConfig())
    library = Library(corpus, models, PASSAGES)
    views = [next(iter(each.views.values())) for each in (library, library.renewed(corpus))]
    encoder: Any = models.first.text_encoder
    tokenizers = [models.first.tokenizer, encoder._encoder.model.tokenizer]
    tokenizers += [view.searcher.encoder.model.tokenizer for view in views]
    assert len({id(each.backend_tokenizer) for each in tokenizers}) == 4
