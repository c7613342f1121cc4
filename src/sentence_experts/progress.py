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

    def __call__(self, steps: int = 1) -> None:
        """Count `steps` units as done."""


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
        yield lambda steps=1: None
    elif sys.stderr.isatty():
        with _bar(description, total) as advance:
            yield advance
    else:
        yield _lines(description, total)


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
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=total)
        yield lambda steps=1: bar.advance(task, steps)


def _lines(description: str, total: int | None) -> Advance:
    started = last = time.monotonic()
    done = 0

    def advance(steps: int = 1) -> None:
        nonlocal done, last
        done += steps
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES:
            last = now
            of = f"/{total:,}" if total else ""
            logger.info(f"{description}: {done:,}{of} ({done / (now - started):,.1f}/s)")

    return advance
