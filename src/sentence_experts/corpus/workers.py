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


def number_of_workers(given: int | None) -> int:
    """Return the number of processes for a setting `workers`: by default one per core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(given or cores, 4 * cores)


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

    def run(self, function: Callable[..., Result], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
        """Yield the results of a function for tuples of arguments, as they are done.

        Raises:
            SentenceExpertsError: a process died.
        """
        if self._number == 1:
            yield from (function(*task) for task in tasks)
            return
        if self._pool is None:
            # Not fork: the calling program may have threads.
            context = DetachedContext()
            self._pool = ProcessPoolExecutor(self._number, mp_context=context, initializer=_follow_parent)
        running: set[Future[Result]] = set()
        try:
            for task in tasks:
                running.add(self._pool.submit(function, *task))
                while len(running) >= 2 * self._number:
                    finished, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in finished)
            yield from (future.result() for future in running)
        except BrokenProcessPool as error:
            raise SentenceExpertsError(
                "a worker process died (out of memory?); the finished parts are kept: run the same command "
                "again, perhaps with `workers=1`"
            ) from error


def _follow_parent() -> None:
    """End this worker process when its parent ends, even if the parent was killed."""

    def watch() -> None:
        if (parent := multiprocessing.parent_process()) is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
