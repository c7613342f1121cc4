"""HTTP requests with a rate limit per host and several attempts.

A failure is one of four: the host cannot be reached (an error for the user), the server refuses the request,
the thing does not exist, or every attempt had a bad answer. The caller records the last two and continues.
"""

from __future__ import annotations

import re
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx
import tenacity

from sentence_experts import __version__
from sentence_experts.errors import SentenceExpertsError

TOOL = "sentence-experts"
_MAX_WAIT = 120.0
"""Maximum number of seconds between two attempts, even if the server asks for more (Retry-After)."""
_RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_ABSENT_STATUS = frozenset({404, 410})

MAX_BODY = 256 << 20
"""Maximum number of bytes of an answer, unpacked."""
_MAX_ERROR = 1 << 16  # of an answer that says why a request is refused
_PATIENCE = 5
_SLOWEST = 10_000.0
"""Bytes per second: an answer may take `_PATIENCE` times the timeout, plus its length at this rate."""

Params = Mapping[str, str | int | list[str]]


class UnreachableError(SentenceExpertsError):
    """No connection to a host: offline, a wrong address, a firewall."""


class RefusedError(SentenceExpertsError):
    """The server refuses this request and would do so again."""


class AbsentError(SentenceExpertsError):
    """The server does not have the thing requested."""


class FailedError(SentenceExpertsError):
    """Every attempt ended in a bad answer or none."""


class _RetryError(Exception):
    """A failed attempt that may succeed when repeated."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


Check = Callable[[bytes], None]
"""Raises ValueError with the reason if a body is not what was requested."""


def looks_like_xml(body: bytes) -> None:
    """Raise ValueError unless a body begins and ends like an XML document; it is not parsed."""
    start = body[:1000].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not start.startswith(b"<"):
        raise ValueError("not XML")
    if start.startswith((b"<!doctype html", b"<html")) or b"<html" in start:
        raise ValueError("a web page instead of XML")
    if not body.rstrip(b" \t\r\n\0").endswith(b">"):
        raise ValueError("truncated XML")


@dataclass
class _RateLimit:
    """Limits the number of requests that begin per second, over all threads."""

    seconds: float
    _next: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wait(self) -> None:
        with self._lock:
            now = time.monotonic()
            begin = max(now, self._next)
            self._next = begin + self.seconds
        if begin > now:
            time.sleep(begin - now)


class Client:
    """An HTTP client for any number of threads."""

    def __init__(
        self,
        email: str,
        *,
        per_second: Mapping[str, float] | None = None,
        attempts: int = 6,
        first_wait: float = 1.0,
        timeout: float = 60.0,
    ) -> None:
        """The `email` is sent in the User-Agent, so that a service can write before it blocks. `per_second`
        has the rates of hosts (with their ports, if they have any); it is 3 for any other."""
        self._rate_limits = {host: _RateLimit(1 / rate) for host, rate in (per_second or {}).items()}
        # Wakes threads that wait for another attempt, so that an interrupted program ends at once.
        self._closed = threading.Event()
        self._attempts = attempts
        self._first_wait = first_wait
        self._timeout = timeout
        self._http = httpx.Client(
            headers={
                "User-Agent": f"{TOOL}/{__version__}" + (f" (mailto:{email})" if email else ""),
                "Accept-Encoding": "gzip, deflate",
            },
            timeout=timeout,
            follow_redirects=True,
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self._closed.set()
        self._http.close()

    def get(
        self, url: str, params: Params | None = None, check: Check | None = None, *, form: bool = False
    ) -> bytes:
        """The body of the answer, decompressed; one that fails the `check` is requested again.

        A `form` is sent by POST, for services that take long queries so.

        Raises:
            UnreachableError: there is no connection.
            RefusedError: the server refuses the request (any other 4xx).
            AbsentError: there is no such thing (404, 410).
            FailedError: every attempt failed (408, 425, 429, 5xx, timeouts, slow, broken or bad bodies).
        """
        attempts = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self._attempts),
            wait=self._wait,
            retry=tenacity.retry_if_exception_type(_RetryError),
            sleep=tenacity.sleep_using_event(self._closed),
            reraise=True,
        )
        host = urlsplit(url).netloc
        try:
            return attempts(self._once, url, params or {}, check, form)
        except _RetryError as error:
            if isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
                raise UnreachableError(
                    f"cannot reach {host}: {error}; are you online? What was fetched is kept: give the same "
                    "command again"
                ) from error
            raise FailedError(f"{host}: {error}, {self._attempts} times") from error

    def _wait(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, _RetryError) and error.wait is not None:
            return min(error.wait, _MAX_WAIT)
        return min(self._first_wait * 2.0 ** (state.attempt_number - 1), _MAX_WAIT)

    def _once(self, url: str, params: Params, check: Check | None, form: bool) -> bytes:
        if self._closed.is_set():
            raise FailedError(f"{urlsplit(url).netloc}: no further requests are sent there")
        self._rate_limits.setdefault(urlsplit(url).netloc, _RateLimit(1 / 3)).wait()
        transfer = _Transfer(self._http, url, dict(params), form)
        # In a thread: httpx limits only the wait for the next byte, and a server can send one now and then.
        threading.Thread(target=transfer.run, daemon=True).start()
        began, pause = time.monotonic(), min(0.5, self._timeout / 4)
        while not transfer.done.wait(pause):
            seconds = time.monotonic() - began
            if seconds > _PATIENCE * self._timeout + transfer.received / _SLOWEST:
                transfer.abandoned = True
                raise _RetryError(f"too slow, {transfer.received:,} bytes in {seconds:.0f} s")
            if self._closed.is_set():
                transfer.abandoned = True
                raise FailedError(f"{urlsplit(url).netloc}: no further requests are sent there")
        body = transfer.result()
        if check is not None:
            try:
                check(body)
            except ValueError as error:
                raise _RetryError(f"the answer is {error}") from error
        return body


class _Transfer:
    """One request and its answer, of limited size, in a thread."""

    def __init__(self, http: httpx.Client, url: str, params: dict[str, Any], form: bool) -> None:
        self.done = threading.Event()
        self.received = 0
        self.abandoned = False
        self._http = http
        self._request: dict[str, Any] = {"method": "POST" if form else "GET", "url": url}
        self._request["data" if form else "params"] = params
        self._body = b""
        self._error: BaseException | None = None

    def run(self) -> None:
        """Send the request and read the answer."""
        try:
            with self._http.stream(**self._request) as answer:
                failed = answer.status_code >= 400
                self._body = self._read(answer, _MAX_ERROR if failed else MAX_BODY, cut=failed)
                _check_status(answer, self._body)
        except BaseException as error:  # raised again in the thread that waits
            self._error = error
        self.done.set()

    def result(self) -> bytes:
        """The body, or what went wrong."""
        try:
            if self._error is not None:
                raise self._error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _RetryError(str(error) or type(error).__name__) from error
        except (RuntimeError, OSError) as error:  # the client was closed
            raise _RetryError(f"{type(error).__name__}: {error}") from error
        return self._body

    def _read(self, answer: httpx.Response, limit: int, cut: bool) -> bytes:
        """The body, unpacked; at most `limit` bytes, with `cut` only the first of them."""
        packing = answer.headers.get("Content-Encoding", "identity").strip().lower()
        if packing not in ("identity", "gzip", "x-gzip", "deflate", ""):
            raise _RetryError(f"the answer has the encoding {packing[:20]!r}, which was not requested")
        unpack = zlib.decompressobj(wbits=47) if packing not in ("identity", "") else None
        blocks, length = [], 0
        for block in answer.iter_raw():
            self.received += len(block)
            if self.abandoned:
                break
            try:
                data = unpack.decompress(block, limit + 1 - length) if unpack else block
            except zlib.error as error:
                raise _RetryError(f"the answer cannot be decompressed ({error})") from error
            blocks.append(data)
            length += len(data)
            if length > limit:
                if cut:
                    break
                raise RefusedError(f"{answer.url.host} sent more than {limit:,} bytes for {answer.url.path}")
        if unpack and not unpack.eof and not cut and self.received:
            raise _RetryError("the compressed answer is truncated")
        return b"".join(blocks)[:limit]


def _check_status(answer: httpx.Response, body: bytes) -> None:
    status, host = answer.status_code, answer.url.netloc.decode("ascii", "replace")
    if status in _RETRIED_STATUS:
        raise _RetryError(f"HTTP {status}", _retry_after(answer))
    if status in _ABSENT_STATUS:
        raise AbsentError(f"{host} has no {answer.url.path}")
    if status >= 400:
        text = "".join(letter if letter.isprintable() else " " for letter in body.decode("utf-8", "replace"))
        reason = " ".join(text.split())[:200] or "no reason given"
        raise RefusedError(f"{host} refuses the request with HTTP {status}: {reason}")
    if status >= 300:
        raise _RetryError(f"HTTP {status}")


def _retry_after(answer: httpx.Response) -> float | None:
    """The seconds to wait that the header states, as a number or a date; None if it states neither."""
    value = answer.headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    try:
        until: Any = parsedate_to_datetime(value)
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        return max(0.0, float((until - datetime.now(UTC)).total_seconds()))
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
