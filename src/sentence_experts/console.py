"""What the commands say while they work: notes and progress on stderr, results on stdout."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

results = Console(soft_wrap=True)
notes = Console(stderr=True, soft_wrap=True, highlight=False)

SECONDS_BETWEEN_LINES = 10.0


def say(message: str) -> None:
    """A note for the person at the terminal (stderr, no markup)."""
    notes.print(message, markup=False)


class Advance(Protocol):
    """Reports that `steps` more units are done."""

    def __call__(self, steps: int = 1) -> None:
        """Count `steps` units as done."""


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Advance]:
    """Show how far `what` has come: a bar at a terminal, a line every ten seconds in a log."""
    if sys.stderr.isatty():
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=notes) as bar:
            task = bar.add_task(what, total=total)
            yield lambda steps=1: bar.advance(task, steps)
        return

    started = spoke = time.monotonic()
    done = 0

    def advance(steps: int = 1) -> None:
        nonlocal done, spoke
        done += steps
        now = time.monotonic()
        if now - spoke >= SECONDS_BETWEEN_LINES:
            spoke = now
            of = f"/{total:,}" if total else ""
            say(f"{what}: {done:,}{of} ({done / (now - started):,.1f}/s)")

    yield advance
