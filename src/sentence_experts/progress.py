"""Progress of long work on stderr: the command line's bar at a terminal, else a line now and then.

Shown where the package's logger is at INFO, as the command line sets it; a library call is silent otherwise.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

logger = logging.getLogger("sentence_experts")

THREAD = "progress"  # writes lines, and imports nothing
# Nobody waits longer without a word, also where the first unit takes longer.
SECONDS_BEFORE_FIRST_LINE = 4.0
SECONDS_BETWEEN_LINES = 10.0


class Advance(Protocol):
    """A function that reports `steps` more units as done."""

    def __call__(self, steps: int = 1, note: str = "") -> None:
        """Count `steps` units as done; `note`, such as the loss, is shown behind them until the next one."""


def unseen(steps: int = 1, note: str = "") -> None:
    """Show nothing (an `Advance` for silent work)."""


Bar = Callable[[str, int | None], AbstractContextManager[Advance]]
_bars: list[Bar] = []


def use_bar(bar: Bar) -> None:
    """Show progress at a terminal with `bar`, of a description and a total, as the command line does."""
    _bars[:] = [bar]


def progress(description: str, total: int | None = None) -> AbstractContextManager[Advance]:
    """Show the progress of one piece of work while a `with` runs, which gets an `Advance` to call.

    Args:
        description: name of the work, as it stands before the bar.
        total: the number of units, where it is known.
    """
    if not logger.isEnabledFor(logging.INFO):
        return nullcontext(unseen)
    show = _bars[0] if _bars and sys.stderr.isatty() else _lines
    return show(description, total)


@contextmanager
def announce(description: str) -> Iterator[None]:
    """Show after four seconds, and then every ten, that work goes on that has no units to count.

    Args:
        description: name of the work, such as "loading minilm".
    """
    with _lines(description, None) if logger.isEnabledFor(logging.INFO) else nullcontext():
        yield


@contextmanager
def _lines(description: str, total: int | None) -> Iterator[Advance]:
    """Write a line after four seconds and then every ten; longer work also gets a line at its end."""
    started, ended = time.monotonic(), threading.Event()
    done = written = 0
    last_note = ""

    def advance(steps: int = 1, note: str = "") -> None:
        nonlocal done, last_note
        done, last_note = done + steps, note or last_note

    def write() -> None:
        nonlocal written
        seconds, written = time.monotonic() - started, done
        if written == 0:
            logger.info(f"{description}: {seconds:.0f} s so far")
            return
        per_second = written / seconds
        speed = f"{per_second:,.1f}/s" if per_second >= 1 else f"{per_second * 60:.1f}/min"
        of_all = f"/{total:,}" if total else ""
        logger.info(f"{description}: {written:,}{of_all} ({speed}) {last_note}".rstrip())

    def write_regularly() -> None:
        seconds = SECONDS_BEFORE_FIRST_LINE
        while not ended.wait(seconds):
            write()
            seconds = SECONDS_BETWEEN_LINES

    thread = threading.Thread(target=write_regularly, name=THREAD, daemon=True)
    thread.start()
    try:
        yield advance
    finally:
        ended.set()
        thread.join()
    if 0 < written < done:
        write()
