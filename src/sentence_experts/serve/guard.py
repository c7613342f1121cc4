"""Keys, headers, the access log, and one sentence in place of a stack trace, around every request."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from pathlib import Path

from pydantic_core import to_json
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sentence_experts.errors import InputError
from sentence_experts.serve.config import is_local
from sentence_experts.serve.errors import RequestError
from sentence_experts.serve.metrics import Metrics

logger = logging.getLogger(__name__)
access = logging.getLogger("sentence_experts.access")

WITHOUT_KEY = ("/health", "/ready", "/")
STATIC = "/static/"  # beside "/", the empty search page, which asks for the key itself
LEFT = 499  # status, in the log only, of a client that has left
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


class Keys:
    """The keys that clients may send, of a file; only their hashes stay in memory."""

    def __init__(self, path: Path) -> None:
        """Read a file with a key per line; empty lines and lines that begin with # are left out.

        Raises:
            InputError: it cannot be read, or has no key, or one that clients cannot send.
        """
        self.path = path
        self._hashes = self._read()

    def read_again(self) -> None:
        """Read the file again; if it cannot be read, the keys before stay."""
        try:
            self._hashes = self._read()
        except InputError as error:
            logger.error(f"the keys before stay: {error}")
        else:
            logger.info(f"{self.path}: keys read again")

    def _read(self) -> list[bytes]:
        path = self.path
        try:
            if path.exists() and not path.is_file():  # a pipe that nobody writes to would be waited for
                raise InputError(f"{path}: not a file; write the keys to one, one per line")
            lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: the keys cannot be read: {error}") from error
        keys = {number: line for number, line in enumerate(lines, 1) if line and not line.startswith("#")}
        for number, key in keys.items():
            if not (key.isascii() and key.isprintable()):
                raise InputError(f"{path}: line {number}: clients can send keys of printable ASCII only")
        if not keys:
            raise InputError(f"{path}: no key in it; write one per line")
        return [_hash(key) for key in keys.values()]

    def allow(self, sent: str) -> bool:
        """Return whether `sent` is one of the keys, in a time that does not depend on how near it is."""
        matches = [hmac.compare_digest(known, _hash(sent)) for known in self._hashes]
        return any(matches)


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


class Guard:
    """The outermost layer of the app."""

    def __init__(self, app: ASGIApp, metrics: Metrics, keys: Keys | None, local_only: bool) -> None:
        """Guard `app`; with `local_only`, requests must name this machine as their host.

        A page of another site that resolves its own name to this machine is thus kept out.
        """
        self.app, self.metrics, self.keys, self.local_only = app, metrics, keys, local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                answer = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    answer.setdefault(name, value)
            await send(message)

        if scope["method"] == "HEAD":  # as GET; the server leaves the body out
            scope = {**scope, "method": "GET"}
        try:
            headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
            self._check(scope["method"], scope["path"], headers)
            await self.app(scope, receive, sending)
        except ClientDisconnect:
            status = LEFT
        except RequestError as error:
            await refusal(error, scope["path"])(scope, receive, sending)
        except Exception as error:
            logger.error(f"{scope['path']!r}: {type(error).__name__}", exc_info=error)
            if not status:
                error = RequestError(500, "something went wrong in the server")
                await refusal(error, scope["path"])(scope, receive, sending)
        finally:
            seconds = time.perf_counter() - started
            route = getattr(scope.get("route"), "path", None) or "other"
            self.metrics.requests.labels(route, status).inc()
            self.metrics.seconds.labels(route).observe(seconds)
            access.info(f"{scope['method']} {route} {status} {1000 * seconds:.1f} ms")

    def _check(self, method: str, path: str, headers: dict[bytes, str]) -> None:
        if self.local_only:
            host = headers.get(b"host", "localhost").lower()
            name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
            if not is_local(name.removeprefix("[").removesuffix("]")):
                raise RequestError(403, "this server answers requests to localhost only")
            site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
            is_other = origin is not None and origin.lower().partition("://")[2] != host
            if method == "POST" and (is_other or site in ("cross-site", "same-site")):
                raise RequestError(403, "pages of other sites and ports may not use this server")
        is_open = method == "GET" and (path in WITHOUT_KEY or path.startswith(STATIC))
        if self.keys is None or is_open:
            return
        kind, _, sent = headers.get(b"authorization", "").partition(" ")
        if kind.lower() != "bearer" or not self.keys.allow(sent.strip()):
            raise RequestError(401, "send a key of this server in the header 'Authorization: Bearer KEY'")


def refusal(error: RequestError, path: str) -> Response:
    """Return the answer to a refused request."""
    return Response(to_json(error.body(path)), error.status, error.headers, media_type="application/json")
