"""HTTP requests with a rate limit per host and several attempts.

A failure is one of four: the host cannot be reached (an error for the user), the server refuses the request,
the thing does not exist, or every attempt had a bad answer. The caller records the last two and continues.
"""

from __future__ import annotations

import re
import threading
import time
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
"""Bytes per second: a body may take `_PATIENCE` times the timeout, plus its length at this rate."""

Params = Mapping[str, str | int]


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
        """Return the body of the answer, decompressed; one that fails the `check` is requested again.

        A `form` is sent by POST, for services that take long queries so.

        Raises:
            UnreachableError: there is no connection.
            RefusedError: the server refuses the request (any other 4xx), or sends too much.
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
            return attempts(self._once, url, dict(params or {}), check, form)
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

    def _once(self, url: str, params: dict[str, Any], check: Check | None, form: bool) -> bytes:
        host = urlsplit(url).netloc
        self._rate_limits.setdefault(host, _RateLimit(1 / 3)).wait()
        if self._closed.is_set():
            raise FailedError(f"{host}: no further requests are sent there")
        sent: dict[str, Any] = {"data" if form else "params": params}
        try:
            with self._http.stream("POST" if form else "GET", url, **sent) as answer:
                body = self._body(answer)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _RetryError(str(error) or type(error).__name__) from error
        except (RuntimeError, OSError) as error:  # the client was closed
            raise _RetryError(f"{type(error).__name__}: {error}") from error
        if check is not None:
            try:
                check(body)
            except ValueError as error:
                raise _RetryError(f"the answer is {error}") from error
        return body

    def _body(self, answer: httpx.Response) -> bytes:
        """Return the whole body, if the status is good; of another answer only its beginning is read."""
        good = 200 <= answer.status_code < 300
        limit, began = MAX_BODY if good else _MAX_ERROR, time.monotonic()
        body = bytearray()
        for block in answer.iter_bytes():
            body += block
            if len(body) > limit:
                break
            # httpx limits only the wait for the next byte, and a server can send one now and then.
            seconds = time.monotonic() - began
            if seconds > _PATIENCE * self._timeout + len(body) / _SLOWEST or self._closed.is_set():
                raise _RetryError(f"too slow, {len(body):,} bytes in {seconds:.0f} s")
        if not good:
            raise _error_of(answer, bytes(body[:limit]))
        if len(body) > limit:
            raise RefusedError(f"{answer.url.host} sent more than {limit:,} bytes for {answer.url.path}")
        return bytes(body)


def _error_of(answer: httpx.Response, body: bytes) -> Exception:
    status, host = answer.status_code, answer.url.netloc.decode("ascii", "replace")
    if status < 400 or status in _RETRIED_STATUS:
        return _RetryError(f"HTTP {status}", _retry_after(answer))
    if status in _ABSENT_STATUS:
        return AbsentError(f"{host} has no {answer.url.path}")
    text = "".join(letter if letter.isprintable() else " " for letter in body.decode("utf-8", "replace"))
    reason = " ".join(text.split())[:200] or "no reason given"
    return RefusedError(f"{host} refuses the request with HTTP {status}: {reason}")


def _retry_after(answer: httpx.Response) -> float | None:
    """Return the seconds to wait that the header states, as a number or a date; None if it states neither."""
    value = answer.headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    try:
        until: Any = parsedate_to_datetime(value)
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        return max(0.0, float((until - datetime.now(UTC)).total_seconds()))
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
