"""A client with a journal: what was answered once is not requested again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.sources.http import AbsentError, Check, Client, FailedError, RefusedError
from sentence_experts.corpus.sources.journal import Answer, Journal
from sentence_experts.corpus.sources.services import Services
from sentence_experts.progress import Advance

Item = TypeVar("Item")
Result = TypeVar("Result")

NOT_FETCHED = "not-fetched"
ABSENT = "absent"
ODD = "odd-record"
IMPLAUSIBLE = 20
"""Number of records: a service that knows none of this many is taken to have failed."""


@dataclass
class Requests:
    """The access of all sources to services, answered from the journal where possible."""

    client: Client
    journal: Journal
    services: Services
    email: str
    api_key: str | None = None
    set_aside: list[Rejection] = field(default_factory=list)
    """What could not be fetched, and why; the next run tries again."""
    online: bool = True
    """Whether anything may be requested; once all is fetched, only the journal answers."""

    def stored(self, key: str, usable: Check = lambda body: None) -> Answer | None:
        """The journal's answer to `key`; None if it has none, or one whose body is not `usable`, which an
        older version stored."""
        answer = self.journal.get(key)
        if answer is not None and answer.body is not None:
            try:
                usable(answer.body)
            except ValueError:
                return None
        return answer

    def has(self, key: str, usable: Check = lambda body: None) -> bool:
        """Whether the journal has a usable answer to `key`."""
        return self.stored(key, usable) is not None

    def set_odd_aside(self, source: str, record: str | None, error: Exception) -> None:
        """Set aside one record of an answer whose other records are kept."""
        self.set_aside.append(Rejection(source, None, record, ODD, str(error)))

    def once(self, key: str, ask: Callable[[], bytes], usable: Check = lambda body: None) -> Answer:
        """The journal's answer to `key`, or if it has none that is `usable`, that of `ask`, which is stored.

        If the service has no such thing, the answer has no body.

        Raises:
            FailedError: every attempt failed; nothing is stored, so the next run asks again.
            RefusedError: the service refuses the request.
        """
        before = self.stored(key, usable)
        if before is not None:
            return before
        if not self.online:
            return Answer(key, None, "not fetched")
        try:
            return self.journal.put(key, ask())
        except AbsentError as error:
            return self.journal.put(key, None, str(error))

    def absent(self, source: str, ids: Iterable[str], *kinds: str) -> Iterator[Rejection]:
        """The things that the service `source` did not have, as the journal says under any `KIND/ID`."""
        for one in ids:
            answers = (self.journal.get(f"{kind}/{one}") for kind in kinds)
            absent = next((answer for answer in answers if answer and answer.body is None), None)
            if absent is not None:
                yield Rejection(source, None, one, ABSENT, absent.note)

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
                        self.set_aside.append(Rejection(source, None, item, NOT_FETCHED, str(error)))
                    advance()
        finally:
            # An error or Ctrl-C must not wait for requests whose results are not needed.
            pool.shutdown(wait=False, cancel_futures=True)


def batches_of(items: list[str], size: int) -> Iterator[tuple[str, list[str]]]:
    """The items in order, `size` at a time, each batch with a name for messages."""
    for start in range(0, len(items), size):
        batch = items[start : start + size]
        yield f"{batch[0]} and {len(batch) - 1} more" if len(batch) > 1 else batch[0], batch
