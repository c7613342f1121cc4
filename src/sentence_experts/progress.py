"""Progress of long work on stderr: the command line's bar at a terminal, else a line now and then.

Shown where the package's logger is at INFO, as the command line sets it; a library call is silent otherwise.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

logger = logging.getLogger("sentence_experts")

# Nobody waits longer without a word, also where the first unit takes longer.
THREAD = "progress"  # writes lines, and imports nothing
SECONDS_BEFORE_FIRST_LINE = 4.0
SECONDS_BETWEEN_LINES = 10.0


class Advance(Protocol):
    """Reports that `steps` more units are done."""

    def __call__(self, steps: int = 1, note: str = "") -> None:
        """Count `steps` units as done; `note`, such as the loss, is shown behind them until the next one."""


def unseen(steps: int = 1, note: str = "") -> None:
    """An `Advance` that shows nothing."""


Bar = Callable[[str, int | None], AbstractContextManager[Advance]]
_bars: list[Bar] = []


def use_bar(bar: Bar) -> None:
    """Show progress at a terminal with `bar`, of a description and a total, as the command line does."""
    _bars[:] = [bar]


@contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Advance]:
    """Show the progress of one piece of work.

    Args:
        description: what the work is, as it stands before the bar.
        total: the number of units, where it is known.

    Yields:
        What the work calls as units are done.
    """
    if not logger.isEnabledFor(logging.INFO):
        yield unseen
    elif _bars and sys.stderr.isatty():
        with _bars[0](description, total) as advance:
            yield advance
    else:
        lines = _Lines(description, total)
        with lines:
            yield lines.advance
        lines.end()


@contextmanager
def announced(description: str) -> Iterator[None]:
    """Show after four seconds, and then every ten, that work goes on that has no units to count.

    Args:
        description: what the work is, such as "loading minilm".
    """
    if logger.isEnabledFor(logging.INFO):
        with _Lines(description, None):
            yield
    else:
        yield


class _Lines:
    """A line after four seconds and then every ten; longer work also gets a line at its end."""

    def __init__(self, description: str, total: int | None) -> None:
        self._description = description
        self._of = f"/{total:,}" if total else ""
        self._started = time.monotonic()
        self._done = self._written = 0
        self._note = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write_regularly, name=THREAD, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def advance(self, steps: int = 1, note: str = "") -> None:
        self._done, self._note = self._done + steps, note or self._note

    def end(self) -> None:
        if 0 < self._written < self._done:
            self._write()

    def _write_regularly(self) -> None:
        seconds = SECONDS_BEFORE_FIRST_LINE
        while not self._ended.wait(seconds):
            self._write()
            seconds = SECONDS_BETWEEN_LINES

    def _write(self) -> None:
        seconds = time.monotonic() - self._started
        if (done := self._done) == 0:
            logger.info(f"{self._description}: {seconds:.0f} s so far")
            return
        self._written = done
        per_second = done / seconds
        speed = f"{per_second:,.1f}/s" if per_second >= 1 else f"{per_second * 60:.1f}/min"
        logger.info(f"{self._description}: {done:,}{self._of} ({speed}) {self._note}".rstrip())
