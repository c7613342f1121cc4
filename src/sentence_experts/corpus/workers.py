"""Worker processes that parse documents and files of records."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from sentence_experts.compat.multiprocessing import DetachedContext
from sentence_experts.errors import SentenceExpertsError

Result = TypeVar("Result")
_QUEUED_PER_WORKER = 2
MAX_WORKERS_PER_CORE = 4


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def number_of_workers(given: int | None) -> int:
    """Return the number of processes for a setting `workers`."""
    return min(given or cores(), MAX_WORKERS_PER_CORE * cores())


class Workers:
    """Some processes, which start with their first task; with `number` 1, this process does everything."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def run(
        self,
        function: Callable[..., Result],
        tasks: Iterable[tuple[Any, ...]],
        here: Callable[..., bool] = lambda *task: False,
    ) -> Iterator[Result]:
        """Yield the results of a function for tuples of arguments, as they are done; `here` tells which of
        them only this process can do.

        Raises:
            SentenceExpertsError: a process died.
        """
        running: set[Future[Result]] = set()
        try:
            for task in tasks:
                if self._number == 1 or here(*task):
                    yield function(*task)
                    continue
                running.add(self._started().submit(function, *task))
                while len(running) >= self._number * _QUEUED_PER_WORKER:
                    finished, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in finished)
            yield from (future.result() for future in running)
        except BrokenProcessPool as error:
            raise SentenceExpertsError(
                "a worker process died (out of memory?); the finished parts are kept: run the same command "
                "again, perhaps with `workers=1`"
            ) from error

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # Not fork: the calling program may have threads.
            context = DetachedContext()
            self._pool = ProcessPoolExecutor(self._number, mp_context=context, initializer=_follow_parent)
        return self._pool


def _follow_parent() -> None:
    """End this worker process when its parent ends, even if the parent was killed."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
