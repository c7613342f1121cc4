"""Limits that uvicorn lacks: the time for a request's headers, and the number of connections."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

logger = logging.getLogger(__name__)

ACCEPT_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
ERROR_SECONDS = 60  # time between two lines of the log about connections that could not be accepted


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 in which no client holds a connection without sending requests.

    Undocumented: uvicorn makes one for each connection, calls these methods, keeps all in `connections`, and
    a request and its answer in `cycle`.
    """

    def __init__(self, *args: Any, header_seconds: float, **kwargs: Any) -> None:
        """Begin a connection.

        Args:
            args, kwargs: arguments as uvicorn gives them.
            header_seconds: seconds within which the headers of a request must be complete.
        """
        super().__init__(*args, **kwargs)
        self.header_seconds = header_seconds
        self.waits_since = self.loop.time()
        self._header_timer: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether no request is being read or answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close the connection that waits for longest, rather than let this one reach `limit_concurrency`.

        If all others are in use, uvicorn answers with 503.
        """
        super().connection_made(transport)
        self._expect_headers()
        if self.limit_concurrency is None or len(self.connections) < self.limit_concurrency:
            return
        waiting = [each for each in self.connections if each is not self and each.waits]  # type: ignore
        if not waiting:
            return
        # Clients that have sent a request before are the last to go.
        last = min(waiting, key=lambda each: (each.cycle is not None, each.waits_since))  # type: ignore
        self.connections.discard(last)
        last.transport.abort()  # type: ignore[union-attr]

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        if not self.waits:
            self._stop_timer()
        elif self._header_timer is None:
            self._expect_headers()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.waits_since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def _expect_headers(self) -> None:
        self._header_timer = self.loop.call_later(self.header_seconds, self._close_slow)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _close_slow(self) -> None:
        if self.cycle is None and self.conn.trailing_data[0]:  # no answer is on its way
            text = f"the headers were not complete after {self.header_seconds:g} seconds"
            headers = f"Content-Type: text/plain\r\nContent-Length: {len(text)}\r\nConnection: close"
            self.transport.write(f"HTTP/1.1 408 Request Timeout\r\n{headers}\r\n\r\n{text}".encode())
        self.transport.close()


def log_accept_errors_rarely(loop: asyncio.AbstractEventLoop) -> None:
    """Log one line per minute while connections cannot be accepted, in place of a traceback for each try."""
    logged_at = -float(ERROR_SECONDS)

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal logged_at
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in ACCEPT_ERRORS:
            loop.default_exception_handler(context)
        elif loop.time() - logged_at >= ERROR_SECONDS:
            logged_at = loop.time()
            logger.error(f"connections cannot be accepted: {error.strerror}")

    loop.set_exception_handler(handle)
