"""The terminal: results on stdout, notes of the package's loggers on stderr."""

from __future__ import annotations

import logging

from rich.console import Console

results = Console(soft_wrap=True)
notes = Console(stderr=True, soft_wrap=True, highlight=False)


def show(line: object) -> None:
    """Print a line of results (stdout) as it is, without markup and colours."""
    results.print(line, markup=False, highlight=False)


def note(message: str) -> None:
    """Print a note for the user (stderr, no markup)."""
    notes.print(message, markup=False)


class NotesHandler(logging.Handler):
    """Prints each log record as one note, warnings with their level in front."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record's message."""
        level = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        note(f"{level}{record.getMessage()}")


def show_logs() -> None:
    """Print what the package logs, from INFO on, as notes; calling it again changes nothing."""
    package = logging.getLogger("sentence_experts")
    package.setLevel(logging.INFO)
    package.propagate = False
    if not any(isinstance(handler, NotesHandler) for handler in package.handlers):
        package.addHandler(NotesHandler())
