"""Requests are tried again when that can help, and fail in one of four ways when it cannot."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from helpers.replay_server import FAULTS, Replay
from sentence_experts.corpus.sources.answers import json_value, looks_like_xml, xml_root
from sentence_experts.corpus.sources.http import (
    AbsentError,
    Client,
    FailedError,
    RefusedError,
    UnreachableError,
)


def whole_xml(body: bytes) -> None:
    looks_like_xml(body)
    xml_root(body)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_survived(world: Replay, connect, fault: str) -> None:
    world.queries["q"] = [("1", "2015/01/01")]
    world.fault = lambda number, path: fault if number < 2 else None
    requests = connect()
    params = {"term": "q", "retmax": 5, "tool": "sentence-experts", "email": "a@b.org"}
    body = requests.client.get(f"{requests.services.entrez.url}/esearch.fcgi", params, whole_xml)
    assert b"<Id>1</Id>" in body
    assert len(world.asked) == 3


@pytest.mark.parametrize("fault", FAULTS)
def test_permanent_fault_fails_only_its_request(world: Replay, connect, fault: str) -> None:
    world.fault = lambda number, path: fault
    requests = connect(attempts=2, timeout=0.2)
    with pytest.raises(FailedError, match=r"127\.0\.0\.1.*2 times"):
        requests.client.get(f"{requests.services.entrez.url}/esearch.fcgi", {}, whole_xml)
    assert len(world.asked) == 2


def test_what_is_not_there_is_not_requested_again(world: Replay, connect) -> None:
    requests = connect()
    with pytest.raises(AbsentError, match="metadata/PMC1"):
        requests.client.get(f"{requests.services.pmc_bucket.url}/metadata/PMC1.1.json")
    assert len(world.asked) == 1


class _Says(BaseHTTPRequestHandler):
    """Refuses with 400, or asks to wait a second and then answers."""

    seen: ClassVar[list[tuple[float, str, str]]] = []

    def do_GET(self) -> None:
        self.seen.append((time.monotonic(), self.path, self.headers["User-Agent"]))
        wait = self.path == "/wait" and len(self.seen) == 1
        status = 400 if self.path == "/bad" else 429 if wait else 200
        self.send_response(status)
        if wait:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def small_server() -> Iterator[str]:
    _Says.seen = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Says)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_retry_after_is_honoured_and_the_email_is_sent(small_server: str) -> None:
    with Client("me@lab.org", first_wait=0.01) as client:
        assert client.get(f"{small_server}/wait", None, json_value) == b"{}"
    (first, _, agent), (second, _, _) = _Says.seen
    assert second - first >= 1.0
    assert "me@lab.org" in agent


def test_a_refused_request_is_not_sent_again(small_server: str) -> None:
    with Client("me@lab.org") as client, pytest.raises(RefusedError, match="HTTP 400"):
        client.get(f"{small_server}/bad")
    assert len(_Says.seen) == 1


def test_requests_to_a_host_are_paced_over_all_threads(small_server: str) -> None:
    host, started = small_server.removeprefix("http://"), time.monotonic()
    with Client("me@lab.org", per_second={host: 20}) as client:
        threads = [threading.Thread(target=client.get, args=(f"{small_server}/x",)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    last = max(when for when, _, _ in _Says.seen)
    assert last - started >= 5 / 20  # the last of six begins five steps after the first


def test_no_connection_is_reported() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with (
        Client("me@lab.org", attempts=2, first_wait=0.01) as client,
        pytest.raises(UnreachableError, match="online"),
    ):
        client.get(f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize(
    ("check", "body"),
    [
        (xml_root, b"<a><b></a>"),
        (looks_like_xml, b"<!DOCTYPE html><html/>"),
        (xml_root, b""),
        (looks_like_xml, b"\xef\xbb\xbf <html><body/></html>"),
        (looks_like_xml, b"<?xml version='1.0'?><article><front>"[:-3]),
        (looks_like_xml, b'{"a": 1}'),
        (json_value, b"<a/>"),
        (json_value, b'{"a":'),
    ],
)
def test_bad_bodies_are_recognised(check, body: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        check(body)


def test_good_bodies_pass() -> None:
    xml_root(b"<?xml version='1.0'?><!DOCTYPE a PUBLIC 'x' 'http://none.invalid/a.dtd'><a>&#233;</a>\n")
    looks_like_xml(b"\xef\xbb\xbf<?xml version='1.0'?><article>not well-formed, but whole</b></article>\n")
    json_value(b"[]")


def test_closing_ends_the_wait_for_another_attempt(world: Replay, connect) -> None:
    world.fault = lambda number, path: "503"
    with Client("me@lab.org", first_wait=60, attempts=3) as client:
        url = f"{connect().services.entrez.url}/esearch.fcgi"
        failures: list[Exception] = []

        def ask() -> None:
            try:
                client.get(url)
            except FailedError as error:
                failures.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        while not world.asked:
            time.sleep(0.01)
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert failures
