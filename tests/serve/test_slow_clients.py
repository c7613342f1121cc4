"""Clients that send the beginning of a request only, more of them than the server may open files."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import httpx
import psutil
import pytest

from helpers.running_server import running_server
from sentence_experts.serve.run import HEADER_SECONDS

FILES, CLIENTS = 150, 200
PARTIAL = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1024) != b"" and is_open(connection)
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


@pytest.mark.parametrize("seconds", [0, pytest.param(HEADER_SECONDS + 10, marks=pytest.mark.slow)])
def test_others_are_answered_and_the_server_rests(plain_model: Path, seconds: float) -> None:
    """With `seconds`, the clients go on for that long; those still open must then have been closed."""
    with running_server(plain_model, files=FILES) as server:
        host, _, port = server.url.removeprefix("http://").partition(":")
        slow, cpu = list[socket.socket](), psutil.Process(server.process.pid).cpu_times

        def is_answered() -> bool:
            request = {"input": "a text"}
            return httpx.post(f"{server.url}/v1/embeddings", json=request, timeout=60).status_code == 200

        try:
            assert is_answered()
            for _ in range(CLIENTS):
                slow.append(socket.create_connection((host, int(port)), timeout=60))
                slow[-1].sendall(PARTIAL)
            assert is_answered()
            assert sum(map(is_open, slow)) <= FILES // 2
            before, until = cpu().user + cpu().system, time.monotonic() + seconds
            while time.monotonic() < until:
                for each in filter(is_open, slow):
                    each.send(b"a")
                time.sleep(1)
            if seconds:
                assert not any(map(is_open, slow))
                assert cpu().user + cpu().system - before < 0.1 * seconds
            assert is_answered()
            assert len(server.log) < 10_000
            assert "Traceback" not in server.log
        finally:
            for each in slow:
                each.close()
