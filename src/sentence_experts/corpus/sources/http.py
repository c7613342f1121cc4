"""Requests that are polite and patient: paced for each host, tried again, and told apart when they fail.

Every failure is one of four: the host cannot be reached (stop and tell the user), the server refuses the
request as it is (asking again is of no use), what was asked for is not there, or the answer was bad every
time it was asked for. The last two are recorded by the caller, and the rest goes on.
"""

from __future__ import annotations

import json
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
from lxml import etree

from sentence_experts import __version__
from sentence_experts.errors import SentenceExpertsError

TOOL = "sentence-experts"
_LONGEST_WAIT = 120.0
"""Seconds; a server that asks for more (Retry-After) is asked again after this."""
_TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_NOT_THERE = frozenset({404, 410})

Params = Mapping[str, str | int | list[str]]


class UnreachableError(SentenceExpertsError):
    """No connection to a host: offline, a wrong address, a firewall."""


class RefusedError(SentenceExpertsError):
    """The server refuses this request and would do so again."""


class AbsentError(SentenceExpertsError):
    """What was asked for is not on the server."""


class FailedError(SentenceExpertsError):
    """Every attempt ended in a bad answer or none."""


class _PassingError(Exception):
    """An attempt that may do better next time."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


Check = Callable[[bytes], None]
"""Raises ValueError with the reason if a body is not what was asked for."""


def is_xml(body: bytes) -> None:
    """The body is a whole, well-formed XML document, not a web page.

    Raises:
        ValueError: it is not.
    """
    looks_like_xml(body)
    try:
        etree.fromstring(body, etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True))
    except etree.XMLSyntaxError as error:
        raise ValueError(f"broken XML ({error.msg})") from error


def looks_like_xml(body: bytes) -> None:
    """The body begins and ends as an XML document does; whether it is well-formed is for its reader to say.

    Raises:
        ValueError: it does not, or it is a web page.
    """
    start = body[:1000].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not start.startswith(b"<"):
        raise ValueError("not XML")
    if start.startswith((b"<!doctype html", b"<html")) or b"<html" in start:
        raise ValueError("a web page instead of XML")
    if not body.rstrip(b" \t\r\n\0").endswith(b">"):
        raise ValueError("XML that ends in the middle")


def is_json(body: bytes) -> None:
    """The body is JSON.

    Raises:
        ValueError: it is not.
    """
    try:
        json.loads(body)
    except ValueError as error:
        raise ValueError("not JSON") from error


@dataclass
class _Pace:
    """Lets at most so many requests a second begin, from however many threads."""

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
    """Asks servers, in any number of threads.

    Attributes:
        asked: how many requests have been sent, attempts counted one by one.
    """

    def __init__(
        self,
        email: str,
        *,
        per_second: Mapping[str, float] | None = None,
        attempts: int = 6,
        first_wait: float = 1.0,
        timeout: float = 60.0,
    ) -> None:
        """Args:
        email: of the person who asks; sent in the User-Agent, so that a service can write before it blocks.
        per_second: host (with its port, where it has one) -> requests a second; 3 for any other.
        attempts: how often a request is tried.
        first_wait: seconds before the second attempt; doubled for each further one.
        timeout: seconds without a byte after which an attempt has failed.
        """
        self._paces = {host: _Pace(1 / rate) for host, rate in (per_second or {}).items()}
        self._lock = threading.Lock()
        # Wakes whoever waits for another attempt, so that an interrupted program ends at once.
        self._closed = threading.Event()
        self._attempts = attempts
        self._first_wait = first_wait
        self._http = httpx.Client(
            headers={"User-Agent": f"{TOOL}/{__version__} (mailto:{email})"},
            timeout=timeout,
            follow_redirects=True,
        )
        self.asked = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self._closed.set()
        self._http.close()

    def get(
        self, url: str, params: Params | None = None, check: Check | None = None, *, form: bool = False
    ) -> bytes:
        """The body of the answer, decompressed.

        Args:
            url: the address, without its query.
            params: the query.
            check: what a good body is; a bad one is asked for again.
            form: send the query as a form (POST), for services that take longer ones so.

        Raises:
            UnreachableError: there is no connection.
            RefusedError: the server refuses the request (any 4xx not named here).
            AbsentError: there is no such thing (404, 410).
            FailedError: every attempt failed (408, 425, 429, 5xx, timeouts, broken or bad bodies).
        """
        attempts = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self._attempts),
            wait=self._wait,
            retry=tenacity.retry_if_exception_type(_PassingError),
            sleep=tenacity.sleep_using_event(self._closed),
            reraise=True,
        )
        host = urlsplit(url).netloc
        try:
            return attempts(self._once, url, params or {}, check, form)
        except _PassingError as error:
            if isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
                raise UnreachableError(
                    f"cannot reach {host}: {error}; are you online? What was fetched is kept: give the same "
                    "command again"
                ) from error
            raise FailedError(f"{host}: {error}, {self._attempts} times") from error

    def _wait(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, _PassingError) and error.wait is not None:
            return min(error.wait, _LONGEST_WAIT)
        return min(self._first_wait * 2.0 ** (state.attempt_number - 1), _LONGEST_WAIT)

    def _once(self, url: str, params: Params, check: Check | None, form: bool) -> bytes:
        if self._closed.is_set():
            raise FailedError(f"{urlsplit(url).netloc}: not asked any more")
        self._pace(urlsplit(url).netloc).wait()
        with self._lock:
            self.asked += 1
        try:
            if form:
                answer = self._http.post(url, data=dict(params))
            else:
                answer = self._http.get(url, params=dict(params))
        except httpx.TransportError as error:
            raise _PassingError(str(error) or type(error).__name__) from error
        except httpx.HTTPError as error:  # too many redirects, an encoding that cannot be undone
            raise _PassingError(str(error)) from error
        _check_status(answer)
        if check is not None:
            try:
                check(answer.content)
            except ValueError as error:
                raise _PassingError(f"the answer is {error}") from error
        return answer.content

    def _pace(self, host: str) -> _Pace:
        with self._lock:
            return self._paces.setdefault(host, _Pace(1 / 3))


def _check_status(answer: httpx.Response) -> None:
    status, host = answer.status_code, answer.url.netloc.decode()
    if status in _TRY_AGAIN:
        raise _PassingError(f"HTTP {status}", _retry_after(answer))
    if status in _NOT_THERE:
        raise AbsentError(f"{host} has no {answer.url.path}")
    if status >= 400:
        said = " ".join(answer.text.split())[:200]
        raise RefusedError(f"{host} refuses the request with HTTP {status}: {said or 'no reason given'}")


def _retry_after(answer: httpx.Response) -> float | None:
    """Seconds to wait, as the header says, in seconds or as a date."""
    value = answer.headers.get("Retry-After", "").strip()
    if value.isdigit():
        return float(value)
    try:
        until: Any = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, float((until - datetime.now(UTC)).total_seconds()))
