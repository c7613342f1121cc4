"""Progress of long work on stderr: a bar at a terminal, a line every ten seconds in a log.

Shown where the package's logger is at INFO, as the command line sets it; a library call is silent otherwise.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

logger = logging.getLogger("sentence_experts")

SECONDS_BETWEEN_LINES = 10.0


class Advance(Protocol):
    """Reports that `steps` more units are done."""

    def __call__(self, steps: int = 1, note: str = "") -> None:
        """Count `steps` units as done; `note`, such as the loss, is shown behind them until the next one."""


def unseen(steps: int = 1, note: str = "") -> None:
    """An `Advance` that shows nothing."""


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
    elif sys.stderr.isatty():
        with _bar(description, total) as advance:
            yield advance
    else:
        lines = _Lines(description, total)
        yield lines.advance
        lines.end()


@contextmanager
def _bar(description: str, total: int | None) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    # The description may hold a path with brackets, which are not markup.
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=total, note="")
        yield lambda steps=1, note="": bar.update(task, advance=steps, **({"note": note} if note else {}))


class _Lines:
    """A line every ten seconds; work that took longer than that also gets a line at its end."""

    def __init__(self, description: str, total: int | None) -> None:
        self._description = description
        self._of = f"/{total:,}" if total else ""
        self._started = self._last = time.monotonic()
        self._done = self._written = 0
        self._note = ""

    def advance(self, steps: int = 1, note: str = "") -> None:
        self._done, self._note = self._done + steps, note or self._note
        if time.monotonic() - self._last >= SECONDS_BETWEEN_LINES:
            self._write()

    def end(self) -> None:
        if 0 < self._written < self._done:
            self._write()

    def _write(self) -> None:
        self._last, self._written = time.monotonic(), self._done
        per_second = self._done / (self._last - self._started)
        logger.info(
            f"{self._description}: {self._done:,}{self._of} ({per_second:,.1f}/s) {self._note}".rstrip()
        )
