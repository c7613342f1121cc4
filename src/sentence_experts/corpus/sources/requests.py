"""A client with a journal: what was answered once is not requested again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TypeVar

from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.sources.http import AbsentError, Client, FailedError, RefusedError
from sentence_experts.corpus.sources.journal import Answer, Journal
from sentence_experts.corpus.sources.services import Services
from sentence_experts.progress import Advance

Item = TypeVar("Item")
Result = TypeVar("Result")

NOT_FETCHED = "not-fetched"
ABSENT = "absent"


@dataclass
class Requests:
    """The access of all sources to services.

    Attributes:
        client: sends the requests.
        journal: stores the answers.
        services: the address of each service.
        email: the user's address, which NCBI requires with every request.
        api_key: an NCBI key, for 10 requests per second instead of 3.
        set_aside: what could not be fetched, and why; the next run tries again.
        asking: whether anything may be requested; once all is fetched, only the journal answers.
    """

    client: Client
    journal: Journal
    services: Services
    email: str
    api_key: str | None = None
    set_aside: list[Rejection] = field(default_factory=list)
    asking: bool = True

    def once(self, key: str, ask: Callable[[], bytes]) -> Answer:
        """The journal's answer to `key`; if it has none, the result of `ask`, which is stored.

        If the service has no such thing, the answer has no body.

        Raises:
            FailedError: every attempt failed; nothing is stored, so the next run asks again.
            RefusedError: the service refuses the request.
        """
        before = self.journal.get(key)
        if before is not None:
            return before
        if not self.asking:
            return Answer(key, None, "not fetched")
        try:
            return self.journal.put(key, ask())
        except AbsentError as error:
            return self.journal.put(key, None, str(error))

    def in_turn(
        self, source: str, batches: Iterable[tuple[str, Item]], ask: Callable[[Item], Result]
    ) -> Iterator[Result]:
        """Yield the result of `ask` for each named batch; one that fails is set aside under its name."""
        for name, batch in batches:
            try:
                yield ask(batch)
            except (FailedError, RefusedError) as error:
                self.set_aside.append(Rejection(source, None, name, NOT_FETCHED, str(error)))

    def at_once(
        self,
        source: str,
        items: Iterable[str],
        ask: Callable[[str], Result],
        keep: Callable[[str, Result], object],
        workers: int,
        advance: Advance,
    ) -> None:
        """Ask for many things in threads, and store each result in this one.

        Args:
            source: the service's name, for what is set aside.
            items: what to ask for.
            ask: asks, in a thread.
            keep: stores the result, in the caller's thread.
            workers: the number of threads.
            advance: counts an item.
        """
        waiting: dict[Future[Result], str] = {}
        pool = ThreadPoolExecutor(workers)
        try:
            for item in items:
                waiting[pool.submit(ask, item)] = item
                if len(waiting) >= 4 * workers:
                    self._keep_done(source, waiting, keep, advance)
            while waiting:
                self._keep_done(source, waiting, keep, advance)
        finally:
            # An error or Ctrl-C must not wait for requests whose results are not needed.
            pool.shutdown(wait=False, cancel_futures=True)

    def _keep_done(
        self,
        source: str,
        waiting: dict[Future[Result], str],
        keep: Callable[[str, Result], object],
        advance: Advance,
    ) -> None:
        done, _ = wait(waiting, return_when=FIRST_COMPLETED)
        for future in done:
            item = waiting.pop(future)
            try:
                keep(item, future.result())
            except (FailedError, RefusedError) as error:
                self.set_aside.append(Rejection(source, None, item, NOT_FETCHED, str(error)))
            advance()


def batches_of(items: list[str], size: int) -> Iterator[tuple[str, list[str]]]:
    """The items in order, `size` at a time, each batch with a name for messages."""
    for start in range(0, len(items), size):
        batch = items[start : start + size]
        yield f"{batch[0]} and {len(batch) - 1} more" if len(batch) > 1 else batch[0], batch
