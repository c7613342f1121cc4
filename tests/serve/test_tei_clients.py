"""huggingface_hub's client and plain requests in TEI's form against a running server."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest
from huggingface_hub import InferenceClient, constants
from sentence_transformers import SentenceTransformer

from helpers.running_server import TEXTS, RunningServer
from sentence_experts.models.encoder import ExpertEncoder

CLOSE: dict[str, Any] = {"atol": 1e-6, "rtol": 0}


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline, the client refuses this machine's own addresses too."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


def test_feature_extraction(server: RunningServer, experts: ExpertEncoder) -> None:
    found = InferenceClient(server.url).feature_extraction(TEXTS, prompt_name="crops")
    expected = experts.encode(TEXTS, prompt_name="crops", normalize_embeddings=True)
    np.testing.assert_allclose(found, expected, **CLOSE)


def test_a_model_and_route_by_path(
    server: RunningServer, experts: ExpertEncoder, plain: SentenceTransformer
) -> None:
    found = InferenceClient(f"{server.url}/models/dense").feature_extraction("a text", normalize=False)
    np.testing.assert_allclose(found, [plain.encode("a text")], **CLOSE)
    found = InferenceClient(f"{server.url}/models/experts:neuro/embed").feature_extraction("a text")
    expected = experts.encode(["a text"], prompt_name="neuro", normalize_embeddings=True)
    np.testing.assert_allclose(found, expected, **CLOSE)


@pytest.mark.parametrize("path", ["/similarity", ""])
def test_sentence_similarity(server: RunningServer, plain: SentenceTransformer, path: str) -> None:
    client = InferenceClient(f"{server.url}/models/dense{path}")
    found = client.sentence_similarity("rice", other_sentences=["wheat", "rice"])
    np.testing.assert_allclose(
        found, plain.similarity(plain.encode("rice"), plain.encode(["wheat", "rice"]))[0], **CLOSE
    )


def test_tokens_are_those_that_the_model_reads(client: httpx.Client, experts: ExpertEncoder) -> None:
    answer = client.post("/tokenize", json={"inputs": "Rice in drought", "prompt_name": "crops"}).json()
    ids = [token["id"] for token in answer[0]]
    assert (
        ids
        == experts.preprocess(["Rice in drought"], prompt=experts.prompts["crops"])["input_ids"][0].tolist()
    )
    assert [token["text"] for token in answer[0] if not token["special"]] == ["Rice", "in", "drought"]
    blend = client.post("/tokenize", json={"inputs": "rice", "prompt_name": "crops=1"})
    assert (blend.status_code, "has no tokens" in blend.text) == (422, True)
    bare = client.post("/tokenize", json={"inputs": ["rice"], "add_special_tokens": False, "model": "dense"})
    assert [token["text"] for token in bare.json()[0]] == ["rice"]


def test_info(client: httpx.Client) -> None:
    info = client.get("/info").json()
    assert (info["model_id"], info["routes"]) == ("experts", ["crops", "neuro"])
    assert info["model_type"] == {"embedding": {"pooling": "mean"}}
    assert client.get("/models/experts:crops/info").json() == info
    assert client.get("/models/experts:unknown/info").status_code == 422
    other = client.get("/models/dense/info").json()
    assert (other["model_id"], other["routes"]) == ("dense", [])
    assert other["model_sha"] != info["model_sha"]


def test_texts_that_would_be_cut_can_be_refused(client: httpx.Client) -> None:
    request = {"inputs": ["rice", "wheat " * 600], "prompt_name": "crops"}
    assert client.post("/embed", json=request).status_code == 200
    refused = client.post("/embed", json=request | {"truncate": False})
    assert refused.status_code == 413
    assert refused.json()["error"].startswith("inputs.1: 602 tokens, but experts reads 512")


@pytest.mark.parametrize("inputs", ["wheat " * 600, {"source_sentence": "wheat " * 600, "sentences": ["a"]}])
def test_parameters_count_for_texts_as_for_sentences(client: httpx.Client, inputs: Any) -> None:
    parameters = {"prompt_name": "crops", "truncate": False}
    assert client.post("/", json={"inputs": inputs, "parameters": parameters}).status_code == 413
    wrong = client.post("/", json={"inputs": inputs, "parameters": {"route": "nonsense"}})
    assert (wrong.status_code, "no route 'nonsense'" in wrong.text) == (422, True)
    for name, first, second in (("prompt_name", "crops", "brain"), ("truncate", False, True)):
        both = client.post("/", json={"inputs": inputs, name: first, "parameters": {name: second}})
        assert both.status_code == 422
        assert both.json()["error"] == f"parameters.{name}: is {second!r}, but `{name}` is {first!r}"


def test_a_sentence_is_named_by_its_place(client: httpx.Client) -> None:
    long, short = "wheat " * 600, "rice"
    for source, sentences, place in (
        (short, [short, long], "inputs.sentences.1: 602"),
        (long, [short], "inputs.source_sentence: 602"),
    ):
        compared = {"source_sentence": source, "sentences": sentences}
        request = {"inputs": compared, "prompt_name": "crops", "truncate": False}
        refused = client.post("/similarity", json=request)
        assert (refused.status_code, refused.json()["error"][: len(place)]) == (413, place)
    request = {"inputs": {"source_sentence": "a", "sentences": ["b"]}, "parameters": {"colour": 1}}
    answer = client.post("/similarity", json=request).json()
    assert answer["error"] == "parameters.colour: no such field"
