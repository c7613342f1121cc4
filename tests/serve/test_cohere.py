"""Requests in Cohere's form against a running server."""

from __future__ import annotations

import base64

import httpx
import numpy as np
from sentence_transformers import SentenceTransformer

from helpers.running_server import EXPERTS, TEXTS
from sentence_experts.models.encoder import ExpertEncoder


def test_every_form_of_vectors(client: httpx.Client, experts: ExpertEncoder) -> None:
    forms = ["float", "base64", "binary", "ubinary"]
    request = {"model": "experts", "texts": TEXTS, "input_type": "neuro", "embedding_types": forms}
    answer = client.post("/v2/embed", json=request).json()
    found, expected = answer["embeddings"], experts.encode(TEXTS, prompt_name="neuro")
    np.testing.assert_allclose(found["float"], expected, atol=1e-6, rtol=0)
    decoded = [np.frombuffer(base64.b64decode(text), "<f4") for text in found["base64"]]
    np.testing.assert_array_equal(np.float32(found["float"]), decoded)
    bits = np.unpackbits(np.uint8(found["ubinary"]), axis=1)
    np.testing.assert_array_equal(bits, np.float32(found["float"]) > 0)
    np.testing.assert_array_equal(np.array(found["binary"]) + 128, found["ubinary"])
    assert answer["texts"] == TEXTS
    assert answer["meta"]["billed_units"]["input_tokens"] > 0


def test_a_route_per_text(client: httpx.Client, experts: ExpertEncoder) -> None:
    request = {"model": "experts", "texts": ["a text"] * 2, "input_type": list(EXPERTS)}
    found = client.post("/v2/embed", json=request).json()["embeddings"]["float"]
    for vector, route in zip(found, EXPERTS, strict=True):
        np.testing.assert_allclose(vector, experts.encode("a text", prompt_name=route), atol=1e-6)


def test_a_model_without_routes_ignores_cohere_s_purposes(
    client: httpx.Client, plain: SentenceTransformer
) -> None:
    request = {"model": "dense", "texts": ["a text"], "input_type": "search_query"}
    found = client.post("/v2/embed", json=request).json()["embeddings"]["float"]
    np.testing.assert_allclose(found, [plain.encode("a text")], atol=1e-6)
    refused = client.post("/v2/embed", json=request | {"input_type": "crops"})
    assert (refused.status_code, "has no route 'crops'" in refused.json()["message"]) == (422, True)


def test_errors_are_in_the_protocols_form(client: httpx.Client) -> None:
    refused = client.post(
        "/v2/embed",
        json={"model": "experts", "texts": ["a", "b " * 600], "input_type": "crops", "truncate": "NONE"},
    )
    assert refused.status_code == 413
    assert refused.json() == {"message": "texts.1: 602 tokens, but experts reads 512"}
