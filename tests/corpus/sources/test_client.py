"""Requests are repeated when that can help; answers that are none stay out of the journal."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from pydantic import BaseModel

from helpers.replay_server import FAULTS, Replay, stored
from sentence_experts.corpus.config import Service, Services
from sentence_experts.corpus.sources import client as client_module
from sentence_experts.corpus.sources.client import (
    AbsentError,
    Client,
    FailedError,
    UnreachableError,
    make_parser,
)
from sentence_experts.corpus.sources.journal import MEMORY, open_journal
from sentence_experts.corpus.sources.openalex import OpenAlexSource
from sentence_experts.corpus.sources.pmc import PmcSource, make_root_parser

search = make_root_parser("eSearchResult")


@contextmanager
def client_of(base: str, per_second: float = 1000) -> Iterator[tuple[Client, Service]]:
    with open_journal(MEMORY) as journal, Client(Services(), journal, "me@lab.org") as client:
        yield client, Service(url=base, per_second=per_second)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_survived(world: Replay, connect, fault: str) -> None:
    world.queries["q"] = [("1", "2015/01/01")]
    world.fault = lambda number, path: fault if number < 2 else None
    client = connect()
    params = {"term": "q", "retmax": 5, "tool": "sentence-experts", "email": "a@b.org"}
    root = client.get(client.services.entrez, "/esearch.fcgi", params, search)
    assert root.findtext("IdList/Id") == "1"
    assert len(world.asked) == 3


@pytest.mark.parametrize("fault", FAULTS)
def test_permanent_fault_fails_only_its_request(world: Replay, connect, fault: str) -> None:
    world.fault = lambda number, path: fault
    client = connect(tries=2)
    with pytest.raises(FailedError, match=r"127\.0\.0\.1.*every time"):
        client.get(client.services.entrez, "/esearch.fcgi", {}, search)
    assert len(world.asked) == 2


def test_what_is_not_there_is_not_requested_again(world: Replay, connect) -> None:
    client = connect()
    with pytest.raises(AbsentError, match="metadata/PMC1"):
        client.get(client.services.pmc_bucket, "/metadata/PMC1.1.json", {}, bytes)
    assert len(world.asked) == 1


class _Says(BaseHTTPRequestHandler):
    """Refuses with 400, or asks to wait a second and then answers."""

    seen: ClassVar[list[tuple[float, str]]] = []

    def do_GET(self) -> None:
        self.seen.append((time.monotonic(), self.headers["User-Agent"]))
        wait = self.path == "/wait" and len(self.seen) == 1
        self.send_response(400 if self.path == "/bad" else 429 if wait else 200)
        if wait:
            self.send_header("Retry-After", "1")
        body = b"{}"
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def small_server() -> Iterator[str]:
    _Says.seen = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Says)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_retry_after_is_honoured_and_the_email_is_sent(small_server: str) -> None:
    with client_of(small_server) as (client, service):
        assert client.get(service, "/wait", {}, bytes) == b"{}"
    (first, agent), (second, _) = _Says.seen
    assert second - first >= 1.0
    assert "me@lab.org" in agent


def test_a_refused_request_is_not_sent_again(small_server: str) -> None:
    with client_of(small_server) as (client, service), pytest.raises(FailedError, match="HTTP 400"):
        client.get(service, "/bad", {}, bytes)
    assert len(_Says.seen) == 1


def test_requests_to_a_host_are_paced_over_all_threads(small_server: str) -> None:
    started = time.monotonic()
    with client_of(small_server, per_second=20) as (client, service):
        threads = [threading.Thread(target=client.get, args=(service, "/x", {}, bytes)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    # The last of six begins five steps after the first.
    assert max(when for when, _ in _Says.seen) - started >= 5 / 20


def test_no_connection_is_reported(attempts: Callable[[int], None]) -> None:
    attempts(2)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with (
        client_of(f"http://127.0.0.1:{port}") as (client, service),
        pytest.raises(UnreachableError, match="online"),
    ):
        client.get(service, "/", {}, bytes)


def test_closing_ends_the_wait_for_another_attempt(
    world: Replay, connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(client_module, "FIRST_WAIT", 60.0)
    world.fault = lambda number, path: "503"
    client, failures = connect(), []

    def ask() -> None:
        try:
            client.get(client.services.entrez, "/esearch.fcgi", {}, search)
        except FailedError as error:
            failures.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    while not world.asked:
        time.sleep(0.01)
    while "HTTP 503; asked again in 60 s" not in caplog.text:
        time.sleep(0.01)
    client.__exit__()
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert failures


# ---- answers of another shape --------------------------------------------------------------------

NO_ANSWERS = [
    b"[]", b"null", b"1", b'""', b"{}", b'{"error": "internal"}', b"[" * 100_000, b"", b"<html/>",
    b'{"meta": {"count": -1}, "results": []}', b'{"meta": {"count": "many"}, "results": []}',
    b'{"meta": null, "results": null}', b'{"a": "\\ud800"}', b'{"meta": ' + b"9" * 5000 + b"}",
]  # fmt: skip


def ask_bucket(client: Client) -> None:
    PmcSource(client).fetch(["PMC7"], lambda steps=1: None)


def ask_openalex(client: Client) -> None:
    with pytest.raises(FailedError):
        OpenAlexSource(client, True).find("q")


def ask_entrez(client: Client) -> None:
    with pytest.raises(FailedError):
        PmcSource(client).find("q")


@pytest.mark.parametrize("ask", [ask_openalex, ask_entrez, ask_bucket])
def test_answers_of_another_shape_stay_out_of_the_journal(world: Replay, connect, ask) -> None:
    searches = [f"<eSearchResult><Count>{count}</Count><IdList/></eSearchResult>".encode()
                for count in ("-5", "x", "", "9" * 5000)]  # fmt: skip
    odd_id = b"<eSearchResult><Count>1</Count><IdList><Id>x</Id></IdList></eSearchResult>"
    others = [b"<Error><Code>SlowDown</Code></Error>", b"<eSearchResult/>", odd_id, *searches]
    client = connect(tries=1)
    for body in [*NO_ANSWERS, *others]:
        setattr(world, ask.__name__.removeprefix("ask"), lambda rest, params, body=body: body)
        ask(client)
        assert not stored(client.journal), body[:80]


class _Shape(BaseModel):
    a: int


@pytest.mark.parametrize(
    ("parse", "body"),
    [(search, b"<a><b></a>"), (search, b""), (search, b"<eFetchResult/>"), (make_parser(_Shape), b"<a/>"),
     (make_parser(_Shape), b'{"a":'), (make_parser(_Shape), b'{"a": "x"}'),
     (make_parser(_Shape), b'{"a": 1, "b": "\\ud800"}')],
)  # fmt: skip
def test_bad_bodies_are_one_line(parse, body: bytes) -> None:
    with pytest.raises(ValueError, match=r"^[\w<][^\n]+$"):
        parse(body)
