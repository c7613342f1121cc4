"""Fails if uvicorn no longer does what `serve.run` relies on: its server leaves signals to two methods."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn


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
