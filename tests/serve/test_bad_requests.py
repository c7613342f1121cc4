"""Every kind of bad request gets its status and one sentence that names the place; the server goes on."""

from __future__ import annotations

import socket
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.running_server import EXPERTS, RunningServer
from sentence_experts.models.encoder import ExpertEncoder

PATH = "/v1/embeddings"
GOOD: dict[str, Any] = {"model": "experts:crops", "input": "a text"}

CASES = [
    ({"input": "a text"}, 422, "model", "name a model"),
    ({"model": "experts:crops"}, 422, "input", "this field is needed"),
    (GOOD | {"input": []}, 422, "input", "a list of texts"),
    (GOOD | {"input": 5}, 422, "input", "a list of texts"),
    (GOOD | {"input": {"a": 1}}, 422, "input", "a list of texts"),
    (GOOD | {"input": ["a", 5]}, 422, "input.1", "is not a text"),
    (GOOD | {"input": ["a", None]}, 422, "input.1", "is not a text"),
    (GOOD | {"input": [True]}, 422, "input.0", "is not a text"),
    (GOOD | {"input": [[1], [2]]}, 400, "input.0", "another model's vocabulary"),
    (GOOD | {"input": ["a"] * 3000}, 413, "input", "at most 2,048 are taken"),
    (GOOD | {"encoding_format": "hex"}, 422, "encoding_format", ": must be 'float' or 'base64'"),
    (GOOD | {"dimensions": 16}, 400, "dimensions", "not trained for shorter vectors"),
    (GOOD | {"dimensions": 64}, 400, "dimensions", "vectors of 32 numbers"),
    (GOOD | {"dimensions": -1}, 400, "dimensions", "vectors of 32 numbers"),
    (GOOD | {"dimensions": "32"}, 422, "dimensions", "must be a valid integer"),
    (GOOD | {"rout": "crops"}, 422, "rout", "no such field; did you mean route"),
    (GOOD | {"route": "soil"}, 422, "route", "its routes: crops, neuro"),
    (GOOD | {"route": {"a": 1}}, 422, "route", "valid"),
    (GOOD | {"model": "experts:crops=1,soil=1"}, 422, "model", "no route 'soil'"),
    (GOOD | {"model": "experts:crops=0,neuro=0"}, 422, "model", "the weights sum to 0"),
    (GOOD | {"model": "experts", "route": "crops=-1,neuro=2"}, 422, "route", "weight of 0 or more"),
    ([GOOD], 422, None, "must be a JSON object"),
]


@pytest.mark.parametrize(("request_", "status", "field", "message"), CASES)
def test_a_bad_field_is_named(
    client: httpx.Client, request_: Any, status: int, field: str | None, message: str
) -> None:
    answer = client.post(PATH, json=request_)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, status)
    assert error["param"] == field
    assert message in error["message"]


BODIES = [
    (b"", 400, "this is not valid JSON"),
    (b"{", 400, "this is not valid JSON"),
    (b"\xff\xfe", 400, "this is not valid JSON"),
    (b'{"input": "\\ud800"}', 400, "this is not valid JSON"),
    (b"[" * 10_000, 400, "this is not valid JSON"),
    (b"x" * 10_000_001, 413, "larger than 10,000,000 bytes"),
]


@pytest.mark.parametrize(("body", "status", "message"), BODIES, ids=[str(body[:9]) for body, *_ in BODIES])
def test_a_bad_body_is_refused(client: httpx.Client, body: bytes, status: int, message: str) -> None:
    answer = client.post(PATH, content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, message in answer.json()["error"]["message"]) == (status, True)


@pytest.mark.parametrize("headers", [{"Content-Type": "text/plain"}, {"Content-Encoding": "gzip"}])
def test_other_kinds_of_content_are_refused(client: httpx.Client, headers: dict[str, str]) -> None:
    answer = client.post(PATH, content=b"{}", headers={"Content-Type": "application/json"} | headers)
    assert (answer.status_code, "send JSON" in answer.json()["error"]["message"]) == (415, True)


def test_paths_and_methods_that_are_not_there(client: httpx.Client) -> None:
    assert client.get("/v1/embedding").status_code == 404
    refused = client.get(PATH)
    assert (refused.status_code, refused.headers["Allow"]) == (405, "POST")
    assert client.get("/v1/models/other").status_code == 404
    assert client.get("/v1/models/experts:nonsense").status_code == 422
    assert client.get("/v1/models/experts:crops").status_code == 200


@pytest.mark.parametrize(
    "sent", [b"\0" * 100, b"GET / HTTP/9\r\n\r\n", b"POST " + b"x" * 100_000, b"\x16\x03\x01"]
)
def test_what_is_no_http_ends_the_connection_only(
    server: RunningServer, client: httpx.Client, sent: bytes
) -> None:
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
    assert client.get("/health").status_code == 200


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
one_text = st.tuples(texts, st.sampled_from(EXPERTS))


@settings(max_examples=40)
@given(st.lists(one_text, min_size=1, max_size=6))
def test_any_text_has_the_vector_that_encode_gives(
    client: httpx.Client, experts: ExpertEncoder, inputs: list[tuple[str, str]]
) -> None:
    request = {
        "model": "experts",
        "input": [text for text, _ in inputs],
        "route": [route for _, route in inputs],
    }
    data = client.post(PATH, json=request).json()["data"]
    for (text, route), item in zip(inputs, data, strict=True):
        np.testing.assert_allclose(item["embedding"], experts.encode(text, prompt_name=route), atol=1e-6)


def test_a_body_without_a_length_is_limited_too(client: httpx.Client) -> None:
    parts = (b"x" * 1_000_000 for _ in range(11))
    answer = client.post(PATH, content=parts, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


def test_a_blend_is_near_the_weighted_cosines(client: httpx.Client, experts: ExpertEncoder) -> None:
    texts = ["rice in drought", "sleep and memory", "wheat"]
    shares = {"crops": 0.7, "neuro": 0.3}
    data = client.post(PATH, json={"model": "experts:crops=0.7,neuro=0.3", "input": texts}).json()["data"]
    found = np.array([item["embedding"] for item in data])
    mixed = sum(
        weight * experts.encode(texts, prompt_name=route, normalize_embeddings=True)
        for route, weight in shares.items()
    )
    np.testing.assert_allclose(found, mixed / np.linalg.norm(mixed, axis=1, keepdims=True), atol=1e-6)
    huge = client.post(PATH, json={"model": "experts:crops=1e308,neuro=1e308", "input": texts}).json()["data"]
    np.testing.assert_allclose([np.linalg.norm(item["embedding"]) for item in huge], 1, atol=1e-6)
    one = client.post(PATH, json={"model": "experts:crops=1", "input": texts}).json()["data"]
    expected = experts.encode(texts, prompt_name="crops", normalize_embeddings=True)
    np.testing.assert_allclose([item["embedding"] for item in one], expected, atol=1e-6)
