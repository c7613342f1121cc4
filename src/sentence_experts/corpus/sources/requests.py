"""A client with a journal: what was answered once is not requested again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.sources.http import Client, FailedError, RefusedError
from sentence_experts.corpus.sources.journal import Journal
from sentence_experts.corpus.sources.services import Services
from sentence_experts.progress import Advance

Result = TypeVar("Result")

NOT_FETCHED = "not-fetched"
ABSENT = "absent"
ODD = "odd-record"


@dataclass
class Requests:
    """The access of all sources to services, answered from the journal where possible."""

    client: Client
    journal: Journal
    services: Services
    email: str
    api_key: str | None = None
    set_aside: list[Rejection] = field(default_factory=list)
    """Records that could not be fetched, with reasons; the next run tries again."""

    def set_odd_aside(self, source: str, record: str | None, error: Exception) -> None:
        """Set aside one record of an answer whose other records are kept."""
        self.set_aside.append(Rejection(source, None, record, ODD, str(error)))

    def set_failed_aside(self, source: str, record: str, error: Exception) -> None:
        """Set aside what a service did not give; the next run tries again."""
        self.set_aside.append(Rejection(source, None, record, NOT_FETCHED, str(error)))

    def at_once(
        self,
        source: str,
        items: Iterable[str],
        ask: Callable[[str], Result],
        keep: Callable[[str, Result], object],
        workers: int,
        advance: Advance,
    ) -> None:
        """Call `ask` for each item in threads and `keep` for each result in this one; failures are set aside
        as those of the service `source`."""
        waiting: dict[Future[Result], str] = {}
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
                    except (FailedError, RefusedError) as error:
                        self.set_failed_aside(source, item, error)
                    advance()
        finally:
            # An error or Ctrl-C must not wait for requests whose results are not needed.
            pool.shutdown(wait=False, cancel_futures=True)
