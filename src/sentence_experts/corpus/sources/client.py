"""HTTP requests to services with a rate limit per host, several attempts, and a journal of the answers.

A failure is one of three: the host cannot be reached (an error for the user), the thing does not exist, or
there is no good answer. The caller sets the last two aside and continues.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import tenacity
from pydantic import BaseModel, ValidationError

from sentence_experts import __version__
from sentence_experts.corpus.config import Service, Services
from sentence_experts.corpus.paper import NOT_FETCHED, Rejection
from sentence_experts.corpus.sources.journal import Journal
from sentence_experts.errors import SentenceExpertsError
from sentence_experts.progress import Advance

logger = logging.getLogger(__name__)

TOOL = "sentence-experts"
SHOWN = 100
"""Characters of an odd answer that messages show."""
ATTEMPTS = 6
FIRST_WAIT = 1.0
"""Seconds before the second attempt, doubled before each further one."""
TIMEOUT = 60.0
"""Seconds without a byte after which an attempt fails."""
_MAX_WAIT = 120.0  # seconds between two attempts, even if the server asks for more (Retry-After)
_LONG_WAIT = 10.0  # seconds from which a wait is logged
_RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})

Names = dict[str, str]
"""The ids that a paper goes by: `pmid`, `pmcid`, `doi`, `openalex`."""
Answer = TypeVar("Answer")
Shape = TypeVar("Shape", bound=BaseModel)
Parse = Callable[[bytes], Answer]
"""Parses a body; raises ValueError with the reason if it is not what was requested."""


class UnreachableError(SentenceExpertsError):
    """No connection to a host: offline, a wrong address, a firewall."""


class FailedError(SentenceExpertsError):
    """The server refuses the request, or every attempt ended in a bad answer or none."""


class AbsentError(FailedError):
    """The server does not have the thing requested."""


class _RetryError(Exception):
    """A failed attempt that may succeed when repeated."""

    def __init__(self, reason: str, wait: str = "") -> None:
        super().__init__(reason)
        self.wait = float(wait) if wait.isascii() and wait.isdigit() else None


@dataclass(frozen=True)
class Record:
    """An article in the journal, or the reason why its text is not there or not to be used.

    Attributes:
        id: the id at the service.
        names: the ids elsewhere.
        address: the address that it came from.
        body: the text; None if it is left out.
        version: the version, if the service counts them.
        licence: the licence code.
        reason: code and detail, if it is left out.
    """

    id: str
    names: Names = field(default_factory=dict)
    address: str = ""
    body: bytes | None = None
    version: str | None = None
    licence: str | None = None
    reason: tuple[str, str] = ("", "")


class Client:
    """Access to all services for any number of threads.

    Attributes:
        journal: the answers so far, from which requests are answered where possible.
        set_aside: records that could not be fetched or used, with reasons; the next run requests them again.
    """

    def __init__(
        self, services: Services, journal: Journal, email: str = "", api_key: str | None = None
    ) -> None:
        """Send the `email` in the User-Agent, so that a service can write before it blocks."""
        self.services, self.journal, self.email, self.api_key = services, journal, email, api_key
        self.set_aside: list[Rejection] = []
        self._next: dict[str, float] = {}  # host -> when the next request may begin
        self._lock = threading.Lock()
        # Wakes threads that wait for another attempt, so that an interrupted program ends at once.
        self._closed = threading.Event()
        self._retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(ATTEMPTS),
            wait=_compute_wait,
            retry=tenacity.retry_if_exception_type(_RetryError),
            sleep=tenacity.sleep_using_event(self._closed),
            before_sleep=_tell_wait,
            reraise=True,
        )
        agent = f"{TOOL}/{__version__}" + (f" (mailto:{email})" if email else "")
        self._http = httpx.Client(headers={"User-Agent": agent}, timeout=TIMEOUT, follow_redirects=True)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self._closed.set()
        self._http.close()

    def get(
        self,
        service: Service,
        path: str,
        params: Mapping[str, str | int],
        parse: Parse[Answer],
        *,
        form: bool = False,
    ) -> Answer:
        """Return the parsed body of the answer; one that cannot be parsed is requested again.

        A `form` is sent by POST, for services that take long queries so.

        Raises:
            UnreachableError: there is no connection.
            AbsentError: there is no such thing (404, 410).
            FailedError: the server refuses the request (any other 4xx), or every attempt failed (408, 425,
                429, 5xx, timeouts, broken or bad bodies).
        """
        sent = {"data" if form else "params": dict(params)}
        try:
            answer: Answer = self._retrying(self._once, service, path, sent, parse)
            return answer
        except _RetryError as error:
            if isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
                raise UnreachableError(
                    f"cannot reach {service.host}: {error}; are you online? What was fetched is kept: give "
                    "the same command again"
                ) from error
            raise FailedError(f"{service.host}: {error}, every time") from error

    def _once(self, service: Service, path: str, sent: dict[str, Any], parse: Parse[Answer]) -> Answer:
        self._pace(service)
        if self._closed.is_set():
            raise FailedError(f"{service.host}: no further requests are sent there")
        try:
            answer = self._http.request("POST" if "data" in sent else "GET", service.url + path, **sent)
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError, OSError) as error:  # or it was closed
            raise _RetryError(str(error) or type(error).__name__) from error
        status = answer.status_code
        if status in (404, 410):
            raise AbsentError(f"{service.host} has no {answer.url.path}")
        if status in _RETRIED_STATUS or not (200 <= status < 300 or status >= 400):
            raise _RetryError(f"HTTP {status}", answer.headers.get("Retry-After", "")[:9])
        if status >= 400:
            reason = " ".join(answer.text.split())[:200] or "no reason given"
            raise FailedError(f"{service.host} refuses the request with HTTP {status}: {reason}")
        try:
            return parse(answer.content)
        except ValueError as error:
            raise _RetryError(f"the answer is {error}") from error

    def _pace(self, service: Service) -> None:
        """Wait until the next request to a host may begin, over all threads."""
        with self._lock:
            now = time.monotonic()
            begin = max(now, self._next.get(service.host, 0.0))
            self._next[service.host] = begin + 1 / service.per_second
        time.sleep(begin - now)

    def fetch(
        self,
        source: str,
        records: Iterable[str],
        request: Callable[[str], dict[str, bytes]],
        workers: int,
        advance: Advance,
    ) -> None:
        """Put into the journal what `request`, called in threads, returns for each record; failures are set
        aside as failures of `source`."""
        pool = ThreadPoolExecutor(workers)
        try:
            waiting = {pool.submit(request, record): record for record in records}
            for future in as_completed(waiting):
                record = waiting.pop(future)
                try:
                    for key, body in future.result().items():
                        self.journal.put(key, body)
                except FailedError as error:
                    self.set_aside.append(Rejection(source, None, record, NOT_FETCHED, str(error)))
                advance()
        finally:
            # An error or Ctrl-C must not wait for requests whose results are not needed.
            pool.shutdown(wait=False, cancel_futures=True)


def _compute_wait(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    stated = error.wait if isinstance(error, _RetryError) else None
    return min(FIRST_WAIT * 2.0 ** (state.attempt_number - 1) if stated is None else stated, _MAX_WAIT)


def _tell_wait(state: tenacity.RetryCallState) -> None:
    if state.next_action is not None and state.next_action.sleep >= _LONG_WAIT:
        reason = state.outcome.exception() if state.outcome else "no answer"
        logger.info(f"{state.args[0].host}: {reason}; asked again in {state.next_action.sleep:.0f} s")


def make_parser(shape: type[Shape]) -> Parse[Shape]:
    """Return a parser of JSON bodies of this shape; its ValueError names the field that is not."""

    def parse(body: bytes) -> Shape:
        try:
            return shape.model_validate_json(body)
        except ValidationError as error:
            first = error.errors()[0]
            where, got = ".".join(map(str, first["loc"])), repr(first["input"])[:SHOWN]
            raise ValueError(f"of another shape: {where} {first['msg']} (got {got})") from error

    return parse
