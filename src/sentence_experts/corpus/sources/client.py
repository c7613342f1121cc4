"""HTTP requests to services with a rate limit per host, several attempts, and a journal of the answers.

A failure is one of three: the host cannot be reached (an error for the user), the thing does not exist, or
there is no good answer. The caller sets the last two aside and continues.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, TypeVar

import httpx
import tenacity
from lxml import etree
from pydantic import BaseModel, ValidationError

from sentence_experts import __version__
from sentence_experts.corpus.formats.markup import Element
from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.sources.journal import Journal
from sentence_experts.corpus.sources.services import Service, Services
from sentence_experts.errors import SentenceExpertsError
from sentence_experts.progress import Advance

TOOL = "sentence-experts"
SHOWN = 100
"""Characters of an odd answer that messages show."""
MAX_BODY = 256 << 20
"""Maximum number of bytes of an answer, unpacked."""
_MAX_WAIT = 120.0  # seconds between two attempts, even if the server asks for more (Retry-After)
_RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_ABSENT_STATUS = frozenset({404, 410})

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


class Client:
    """Access to all services for any number of threads.

    Attributes:
        journal: the answers so far, from which requests are answered where possible.
        set_aside: records that could not be fetched or used, with reasons; the next run requests them again.
    """

    def __init__(
        self,
        services: Services,
        journal: Journal,
        email: str = "",
        api_key: str | None = None,
        *,
        attempts: int = 6,
        first_wait: float = 1.0,
        timeout: float = 60.0,
    ) -> None:
        """The `email` is sent in the User-Agent, so that a service can write before it blocks."""
        self.services, self.journal, self.email, self.api_key = services, journal, email, api_key
        self.set_aside: list[Rejection] = []
        self._next: dict[str, float] = {}  # host -> when the next request may begin
        self._lock = threading.Lock()
        self._first_wait = first_wait
        # Wakes threads that wait for another attempt, so that an interrupted program ends at once.
        self._closed = threading.Event()
        self._retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(attempts),
            wait=self._wait,
            retry=tenacity.retry_if_exception_type(_RetryError),
            sleep=tenacity.sleep_using_event(self._closed),
            reraise=True,
        )
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
            FailedError: the server refuses the request (any other 4xx) or sends too much, or every attempt
                failed (408, 425, 429, 5xx, timeouts, broken or bad bodies).
        """
        host, sent = service.host, {"data" if form else "params": dict(params)}
        try:
            answer: Answer = self._retrying(self._once, service, path, sent, parse)
            return answer
        except _RetryError as error:
            if isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
                raise UnreachableError(
                    f"cannot reach {host}: {error}; are you online? What was fetched is kept: give the same "
                    "command again"
                ) from error
            raise FailedError(f"{host}: {error}, every time") from error

    def _wait(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, _RetryError) and error.wait is not None:
            return min(error.wait, _MAX_WAIT)
        return float(min(self._first_wait * 2.0 ** (state.attempt_number - 1), _MAX_WAIT))

    def _once(self, service: Service, path: str, sent: dict[str, Any], parse: Parse[Answer]) -> Answer:
        self._pace(service)
        if self._closed.is_set():
            raise FailedError(f"{service.host}: no further requests are sent there")
        method = "POST" if "data" in sent else "GET"
        try:
            with self._http.stream(method, service.url + path, **sent) as answer:
                body = _read_body(answer)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _RetryError(str(error) or type(error).__name__) from error
        except (RuntimeError, OSError) as error:  # the client was closed
            raise _RetryError(f"{type(error).__name__}: {error}") from error
        try:
            return parse(body)
        except ValueError as error:
            raise _RetryError(f"the answer is {error}") from error

    def _pace(self, service: Service) -> None:
        """Wait until the next request to a host may begin, over all threads."""
        with self._lock:
            now = time.monotonic()
            begin = max(now, self._next.get(service.host, 0.0))
            self._next[service.host] = begin + 1 / service.per_second
        time.sleep(begin - now)

    def set_record_aside(self, source: str, record: str | None, reason: str, error: Exception) -> None:
        """Set aside what a service did not give, or one record of an answer whose others are kept."""
        self.set_aside.append(Rejection(source, None, record, reason, str(error)))

    def at_once(
        self,
        source: str,
        items: Iterable[str],
        ask: Callable[[str], Answer],
        keep: Callable[[str, Answer], object],
        workers: int,
        advance: Advance,
    ) -> None:
        """Call `ask` for each item in threads and `keep` for each result in this one; failures are set aside
        as those of the service `source`."""
        waiting: dict[Future[Answer], str] = {}
        left = iter(items)
        pool = ThreadPoolExecutor(workers)
        try:
            while True:
                for item in islice(left, 4 * workers - len(waiting)):
                    waiting[pool.submit(ask, item)] = item
                if not waiting:
                    return
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    item = waiting.pop(future)
                    try:
                        keep(item, future.result())
                    except FailedError as error:
                        self.set_record_aside(source, item, "not-fetched", error)
                    advance()
        finally:
            # An error or Ctrl-C must not wait for requests whose results are not needed.
            pool.shutdown(wait=False, cancel_futures=True)


def _read_body(answer: httpx.Response) -> bytes:
    """Return the whole body, if the status is good."""
    status, host = answer.status_code, answer.url.netloc.decode("ascii", "replace")
    if status in _ABSENT_STATUS:
        raise AbsentError(f"{host} has no {answer.url.path}")
    if status < 200 or 300 <= status < 400 or status in _RETRIED_STATUS:
        raise _RetryError(f"HTTP {status}", answer.headers.get("Retry-After", "")[:9])
    body = bytearray()
    for block in answer.iter_bytes():
        body += block
        if len(body) > MAX_BODY:
            raise FailedError(f"{host} sent more than {MAX_BODY:,} bytes for {answer.url.path}")
    if status >= 400:
        text = "".join(letter if letter.isprintable() else " " for letter in body.decode("utf-8", "replace"))
        reason = " ".join(text.split())[:200] or "no reason given"
        raise FailedError(f"{host} refuses the request with HTTP {status}: {reason}")
    return bytes(body)


def shaped(shape: type[Shape]) -> Parse[Shape]:
    """Return a parser of JSON bodies of this shape; its ValueError names the field that is not."""

    def parse(body: bytes) -> Shape:
        try:
            return shape.model_validate_json(body)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            got = repr(first["input"])[:SHOWN]
            raise ValueError(f"of another shape: {where} {first['msg']} (got {got})") from error

    return parse


def rooted(tag: str) -> Parse[Element]:
    """Return a parser of XML bodies with such a root element, or that name an error; nothing outside a body
    is read."""

    def parse(body: bytes) -> Element:
        parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
        try:
            root: Element = etree.fromstring(body, parser)
        except etree.XMLSyntaxError as error:
            raise ValueError(f"broken XML ({' '.join(str(error.msg).split())})") from error
        if etree.QName(root).localname != tag and root.find(".//ERROR") is None:
            raise ValueError(f"<{root.tag}> instead of <{tag}>: {' '.join(root.itertext())[:SHOWN]}")
        return root

    return parse
