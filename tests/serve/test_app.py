"""The app in this process: keys, hosts, headers, limits, and settings that change its answers."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import APIRouter
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from starlette.testclient import TestClient

import sentence_experts
from sentence_experts.cli.console import show_logs
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.serve import http
from sentence_experts.serve.guard import HEADERS

PATH = "/v1/embeddings"


@contextmanager
def client_of(models: Any, at: str = "localhost", **settings: Any) -> Iterator[TestClient]:
    app = sentence_experts.create_app(models, watch=False, **settings)
    with TestClient(app, base_url=f"http://{at}", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.write_text("# ours\nfirst\n\n  second  \n")
    return file


def ask(client: TestClient, **fields: Any) -> Any:
    return client.post(PATH, json={"input": "a text", **fields})


def test_a_key_is_required_everywhere_but_for_health(plain: SentenceTransformer, keys: Path) -> None:
    with client_of({"m": plain}, "example.org", host="0.0.0.0", api_key_file=keys) as client:
        for sent in (
            {},
            {"Authorization": "Bearer third"},
            {"Authorization": "Basic first"},
            {"Authorization": "Bearer # ours"},
        ):
            refused = client.post(PATH, json={"input": "a"}, headers=sent)
            assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
        for key in ("first", "second"):
            assert (
                client.post(PATH, json={"input": "a"}, headers={"Authorization": f"Bearer {key}"}).status_code
                == 200
            )
        assert client.get("/metrics").status_code == client.get("/openapi.json").status_code == 401
        assert client.get("/health").status_code == client.get("/ready").status_code == 200


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("# none\n", "no key in it"),
        ("ok\nschlüssel\n", "line 2: .* printable ASCII"),
        ("a\tkey", "line 1: "),
        (None, "not a file"),
    ],
)
def test_keys_that_no_client_could_send_are_refused(
    plain: SentenceTransformer, tmp_path: Path, content: str | None, message: str
) -> None:
    if content is None:
        os.mkfifo(tmp_path / "keys")
    else:
        (tmp_path / "keys").write_text(content)
    with pytest.raises(InputError, match=f"keys: {message}"):
        sentence_experts.create_app({"m": plain}, api_key_file=tmp_path / "keys")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.2", "example.org"])
def test_other_machines_are_served_with_keys_or_on_purpose(plain: SentenceTransformer, host: str) -> None:
    with pytest.raises(UsageError, match="api_key_file"):
        sentence_experts.create_app({"m": plain}, host=host)
    sentence_experts.create_app({"m": plain}, host=host, auth=False)


def test_other_sites_cannot_use_the_server_of_this_machine(plain: SentenceTransformer) -> None:
    with client_of({"m": plain}) as client:
        sites = (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200))
        for site, status in sites:
            answer = client.post(PATH, json={"input": "a text"}, headers={"Sec-Fetch-Site": site})
            assert answer.status_code == status, site
        for origin, status in (("http://evil.example", 403), ("null", 403), ("http://localhost:8000", 200)):
            headers = {"Origin": origin, "Host": "localhost:8000"}
            assert client.post(PATH, json={"input": "a text"}, headers=headers).status_code == status, origin
        answer = client.post(PATH, json={"input": "a"}, headers={"Origin": "http://localhost:3000"})
        assert answer.status_code == 403, "a page of another port"
        assert client.get("/health", headers={"Host": "evil.example:8000"}).status_code == 403
        names = (
            "localhost",
            "localhost:8000",
            "127.0.0.1:1",
            "127.0.0.2:8000",
            "[::1]:8000",
            "[::1]",
            "LOCALHOST",
        )
        for name in names:
            assert client.get("/health", headers={"Host": name}).status_code == 200, name


def test_every_answer_has_the_headers(plain: SentenceTransformer) -> None:
    with client_of({"m": plain}) as client:
        for answer in (client.get("/health"), client.get("/none"), ask(client), ask(client, input=5)):
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS
            assert "server" not in answer.headers


def test_the_access_log_has_no_texts(plain: SentenceTransformer) -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("sentence_experts.access")
    log.addHandler(handler)
    with client_of({"m": plain}) as client:
        assert ask(client, input="a secret").status_code == 200
        assert client.post(f"{PATH}?q=secret", json={"input": ["secret", 5]}).status_code == 422
        assert client.get("/secret").status_code == 404
    log.removeHandler(handler)
    statuses = [line.rsplit(" ", 2)[0] for line in lines]
    assert statuses == [f"POST {PATH} 200", f"POST {PATH} 422", "GET other 404"]


def test_an_error_of_the_server_is_one_sentence_and_its_traceback_in_the_log(
    plain: SentenceTransformer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show_logs()
    with client_of({"m": plain}) as client:
        monkeypatch.setattr(client.app.state.engine, "embed", None)
        answer = ask(client)
        assert answer.status_code == 500
        assert answer.json()["error"]["message"] == "something went wrong in the server"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    logged = capsys.readouterr().err
    assert f"error: {PATH!r}: TypeError\nTraceback" in logged
    assert "in embed_texts" in logged
    assert "'NoneType' object is not callable" in logged


def test_limits(plain: SentenceTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_BODY_BYTES", 2000)
    with client_of({"m": plain}, max_texts=2, queue_tokens=100) as client:
        assert ask(client, input=["a"] * 2).status_code == 200
        assert ask(client, input=["a"] * 3).status_code == 413
        assert ask(client, input="a" * 2000).json()["error"]["message"].startswith("the request is larger")
        assert "split it" in ask(client, input="a " * 500).json()["error"]["message"]
        client.app.state.engine.batcher.tokens += 99
        refused = ask(client)
        client.app.state.engine.batcher.tokens -= 99
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) >= 1  # as long as the texts before it may take
        assert ask(client).status_code == 200


def test_metrics_count_per_route(experts: ExpertEncoder) -> None:
    with client_of({"m": experts}) as client:
        tokens = ask(client, model="m", input=["a", "b", "c"], route=["crops", "neuro", "crops"]).json()[
            "usage"
        ]
        page = client.get("/metrics").text
        assert 'texts_total{model="m",route="crops"} 2.0' in page
        assert 'texts_total{model="m",route="neuro"} 1.0' in page
        assert 'tokens_total{model="m",route="crops"}' in page
        assert f"batch_tokens_sum {float(tokens['total_tokens'])}" in page
        assert 'requests_total{path="/v1/embeddings",status="200"} 1.0' in page
        assert 'request_seconds_count{path="/v1/embeddings"} 1.0' in page


def test_vectors_of_length_one_on_request_or_by_setting(plain: SentenceTransformer) -> None:
    unit = plain.encode("a text", normalize_embeddings=True)
    with client_of({"m": plain}) as client:
        found = ask(client, normalize=True).json()["data"][0]["embedding"]
        np.testing.assert_allclose(found, unit, atol=1e-6)
    with client_of({"m": plain}, normalize=True) as client:
        np.testing.assert_allclose(ask(client).json()["data"][0]["embedding"], unit, atol=1e-6)
        found = ask(client, normalize=False).json()["data"][0]["embedding"]
        np.testing.assert_allclose(found, plain.encode("a text"), atol=1e-6)


@pytest.mark.parametrize(
    ("declared", "allowed", "refused"),
    [
        ({"matryoshka_dimensions": [8, 16]}, [8, 16, 32], [4, 12]),
        ({"is_matryoshka": True}, [1, 12, 32], [0, 33]),
    ],
)
def test_shorter_vectors_of_models_that_declare_them(
    plain: SentenceTransformer,
    monkeypatch: pytest.MonkeyPatch,
    declared: Any,
    allowed: list[int],
    refused: list[int],
) -> None:
    for name, value in declared.items():
        monkeypatch.setattr(plain[0].auto_model.config, name, value, raising=False)
    whole = plain.encode("a text")
    with client_of({"m": plain}) as client:
        for length in allowed:
            cut, unit = whole[:length], whole[:length] / np.linalg.norm(whole[:length])
            for normalize, expected in ((None, cut), (False, cut), (True, unit)):
                answer = ask(client, dimensions=length, normalize=normalize).json()
                np.testing.assert_allclose(answer["data"][0]["embedding"], expected, atol=1e-6)
        assert [ask(client, dimensions=length).status_code for length in refused] == [400] * len(refused)
    with client_of({"m": SentenceTransformer(modules=[*plain, Normalize()], device="cpu")}) as client:
        length = allowed[1]
        cut = np.linalg.norm(whole[:length]) / np.linalg.norm(whole)
        for normalize, size in ((None, 1), (True, 1), (False, cut)):
            answer = ask(client, dimensions=length, normalize=normalize).json()
            assert np.linalg.norm(answer["data"][0]["embedding"]) == pytest.approx(size, abs=1e-5)


def test_shortened_blends_have_length_1(experts: ExpertEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experts[0].auto_model.config, "matryoshka_dimensions", [8], raising=False)
    routes = ["crops=0.7,neuro=0.3", "crops"]
    with client_of({"m": experts}) as client:
        data = ask(client, input=["a text", "a text"], route=routes, dimensions=8).json()["data"]
        (whole,) = ask(client, route=routes[0]).json()["data"]
    blend, plain = (np.array(each["embedding"]) for each in data)
    cut = np.array(whole["embedding"][:8])
    np.testing.assert_allclose(blend, cut / np.linalg.norm(cut), atol=1e-6)
    np.testing.assert_allclose(plain, experts.encode("a text", prompt_name="crops")[:8], atol=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "wheat rust " * 9000,
        " " * 60_000 + "rice in drought",
        "x" * 60_000 + " rice",
        f"rice {'x' * 60_000} in drought",
        "Ähren\t\n" * 9000,
        f"{'y' * 8100} {'z ' * 30_000}",
    ],
    ids=["words", "spaces first", "one word first", "one word inside", "tabs", "cut inside"],
)
def test_of_a_very_long_text_the_same_tokens_are_read(experts: ExpertEncoder, text: str) -> None:
    with client_of({"m": experts}) as client:
        found = ask(client, input=[text, text[:1000]], route="neuro").json()["data"]
        expected = experts.encode([text, text[:1000]], prompt_name="neuro")
        np.testing.assert_allclose([item["embedding"] for item in found], expected, atol=1e-6)


def test_other_routers_can_join(plain: SentenceTransformer) -> None:
    router = APIRouter()
    router.add_api_route("/page", lambda: "a page")
    app = sentence_experts.create_app({"m": plain}, watch=False, routers=[router])
    with TestClient(app, base_url="http://localhost") as client:
        assert client.get("/page").json() == "a page"


def references(part: Any) -> Iterator[str]:
    """Look up what a part of a JSON document refers to."""
    for value in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from references(value)
    if isinstance(part, dict) and isinstance(part.get("$ref"), str):
        yield part["$ref"]


def test_the_openapi_page_has_all_that_it_refers_to(plain: SentenceTransformer) -> None:
    with client_of(plain) as client:
        page = client.get("/openapi.json").json()
    for reference in references(page):
        place = page
        for name in reference.removeprefix("#/").split("/"):
            place = place[name]


def test_the_openapi_page_describes_every_request(plain: SentenceTransformer) -> None:
    with client_of({"m": plain}) as client:
        described = client.get("/openapi.json").json()["paths"]
        for path in (PATH, "/embed", "/similarity", "/tokenize"):
            schema = described[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
            assert schema["properties"], path
        page = client.get("/docs").text
        assert all(path in page for path in described)
        assert "http://" not in page.replace("http://localhost", "")
        assert "https://" not in page


def test_models_of_any_kind_share_a_server(plain: SentenceTransformer) -> None:
    """One that encodes by its own `encode`, beside one that shares batches."""

    class Own(SentenceTransformer):
        def encode(self, *args: Any, **kwargs: Any) -> Any:
            return 2 * super().encode(*args, **kwargs)

    own = Own(modules=list(plain), device="cpu")
    with client_of({"own": own, "m": plain}) as client:
        for name, model in (("own", own), ("m", plain)):
            found = ask(client, model=name, input=["a", "b c"]).json()["data"]
            np.testing.assert_allclose(
                [item["embedding"] for item in found], model.encode(["a", "b c"]), atol=1e-6
            )
