"""Fails if uvicorn no longer does what `serve.run` relies on: methods for signals, a protocol per client."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import uvicorn

from sentence_experts.compat.uvicorn import LimitedProtocol, log_accept_errors_rarely

WHOLE = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
PARTIAL = WHOLE[:-3]


def test_the_server_runs_inside_capture_signals_and_ends_by_handle_exit() -> None:
    steps = []

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            steps.append("signals")
            asyncio.get_running_loop().call_soon(self.handle_exit, signal.SIGTERM, None)
            yield

        async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
            steps.append("startup")
            self.started = True

    async def app(scope: object, receive: object, send: object) -> None:
        pass

    config = uvicorn.Config(app, lifespan="off", interface="asgi3", log_config=None)
    server = Server(config)
    server.servers = []
    before = signal.getsignal(signal.SIGTERM)
    server.run([])
    assert steps == ["signals", "startup"]
    assert server.should_exit
    assert not server.force_exit
    assert signal.getsignal(signal.SIGTERM) == before


started: list[str] = []  # paths of requests
release = threading.Event()  # lets requests to /slow be answered


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """After the whole request, unless its path is /unread; to /slow when it is released."""
    while scope["path"] != "/unread" and (await receive()).get("more_body"):
        pass
    started.append(scope["path"])
    if scope["path"] == "/slow":
        await asyncio.to_thread(release.wait, 60)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def serving(header_seconds: float, max_connections: int) -> Iterator[tuple[str, int]]:
    http: Any = partial(LimitedProtocol, header_seconds=header_seconds)
    limits = {"http": http, "limit_concurrency": max_connections + 1}
    config = uvicorn.Config(answer, port=0, lifespan="off", log_config=None, **limits)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()
    server.should_exit = True
    thread.join()


def connect(address: tuple[str, int], sent: bytes) -> socket.socket:
    connection = socket.create_connection(address, timeout=30)
    connection.sendall(sent)
    return connection


def read_to_end(connection: socket.socket) -> bytes:
    """Read what the server has sent when it closes the connection; b"" where it was reset."""
    with connection:
        try:
            return b"".join(iter(lambda: connection.recv(4096), b""))
        except ConnectionResetError:
            return b""


def is_answered(connection: socket.socket) -> bool:
    received = b""
    while not received.endswith(b"ok") and (part := connection.recv(4096)):
        received += part
    return received.startswith(b"HTTP/1.1 200 ")


def start_slow(address: tuple[str, int]) -> socket.socket:
    """A connection whose request is being answered."""
    before = started.count("/slow")
    connection = connect(address, WHOLE.replace(b" /", b" /slow", 1))
    while started.count("/slow") == before:
        time.sleep(0.01)
    return connection


@pytest.fixture(autouse=True)
def requests() -> None:
    started.clear()
    release.clear()


def test_headers_have_a_time_limit_and_bodies_and_answers_do_not() -> None:
    with serving(2, 100) as address:
        slow = start_slow(address)
        body = connect(address, WHOLE.replace(b"Host", b"Content-Length: 2\r\nHost"))
        assert read_to_end(connect(address, PARTIAL)).startswith(b"HTTP/1.1 408 ")
        assert read_to_end(connect(address, b"")) == b""
        release.set()
        body.sendall(b"ab")
        assert is_answered(slow)
        assert is_answered(body)
        slow.close()
        body.close()


@pytest.mark.parametrize(
    "first", [WHOLE, WHOLE.replace(b" /", b" /unread", 1)[:-2] + b"Content-Length: 99\r\n\r\n"]
)
def test_a_client_that_was_answered_cannot_stay_by_sending_byte_after_byte(first: bytes) -> None:
    with serving(0.5, 100) as address:
        connection = connect(address, first)
        assert is_answered(connection)
        closed = False
        for byte in PARTIAL + b"b" * 100:
            time.sleep(0.05)
            try:
                connection.sendall(bytes([byte]))
            except OSError:
                closed = True
                break
        assert closed


def test_at_the_limit_those_that_wait_longest_make_room_and_requests_go_on() -> None:
    with serving(30, 5) as address:
        known = connect(address, WHOLE)
        assert is_answered(known)
        slow = [connect(address, PARTIAL) for _ in range(20)]
        asking = connect(address, WHOLE)
        assert is_answered(asking)
        known.sendall(WHOLE)  # it had sent a request before, so others went first
        assert is_answered(known)
        busy = [start_slow(address) for _ in range(5)]
        assert read_to_end(connect(address, WHOLE)).startswith(b"HTTP/1.1 503 ")
        release.set()
        assert all(map(is_answered, busy))
        for each in (known, asking, *busy, *slow):
            each.close()


def test_accept_errors_are_one_line_and_others_stay(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        loop = asyncio.get_running_loop()
        log_accept_errors_rarely(loop)
        for number in (errno.EMFILE, errno.ENFILE, errno.EPIPE):
            error = OSError(number, "no luck")
            loop.call_exception_handler({"message": "it failed", "exception": error})

    with caplog.at_level(logging.ERROR):
        asyncio.run(fail())
    assert [record.getMessage() for record in caplog.records] == [
        "connections cannot be accepted: no luck",
        "it failed",
    ]
