"""The terminal: results on stdout, notes of the package's loggers on stderr."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from sentence_experts.cli.help import name_flags
from sentence_experts.corpus.formats.markup import without_controls
from sentence_experts.progress import Advance, use_bar

if TYPE_CHECKING:
    from sentence_experts.report.content import Report

# Public functions and methods that messages name, and their verbs.
VERBS = {
    "import_corpus": "corpus import",
    "fetch_corpus": "corpus fetch",
    "compile_pairs": "pairs compile",
    "import_pairs": "pairs import",
    "compile_tasks": "tasks",
    "count_values": "corpus show CORPUS --list subjects",
    "build_index": "index build",
    "extend": "extend",
    "add_expert": "add-expert",
    "auto_route": "auto-route",
}

# Parameters of the running verb; log messages show them as flags. Empty while none runs.
parameters: list[Any] = []


class _SafeConsole(Console):
    """Prints texts of records, which must not control the terminal."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Make a text printable, without control characters and those that reverse what follows."""
        return super().render_str(without_controls(text), **options)


# Names of files, domains and models may hold brackets and colons, which are not markup.
results = _SafeConsole(soft_wrap=True, markup=False, emoji=False)
notes = _SafeConsole(stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False)


def show(line: object) -> None:
    """Print a line of results (stdout) as it is, without markup and colours."""
    results.print(line, highlight=False)


def show_report(report: Report) -> None:
    """Print the tables, the notes and the verdict of a report."""
    from sentence_experts.report.tables import for_terminal

    for table in report.tables():
        results.print(for_terminal(table))
    for line in ("", *report.notes) if report.notes else ():
        show(line)
    show_verdict(report.verdict.lines())


def show_verdict(lines: Iterable[str]) -> None:
    """Print the sentences that end a report."""
    results.print("\nVERDICT", style="bold")
    for line in lines:
        show(name_flags(line, parameters))


def note(message: str) -> None:
    """Print a note for the user (stderr, no markup), with the verb of each function that it names."""
    notes.print(name_verbs(message))


def name_verbs(message: str) -> str:
    """The message with `` `compile_pairs` `` as `sentence-experts pairs compile`, and so on."""
    return re.sub(rf"`({'|'.join(VERBS)})`", lambda name: f"`sentence-experts {VERBS[name[1]]}`", message)


class NotesHandler(logging.Handler):
    """Prints each log record as one note, warnings with their level in front."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record's message, and the traceback of its error if it has one."""
        level = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        note(f"{level}{name_flags(record.getMessage(), parameters)}")
        if record.exc_info:
            notes.print("".join(format_exception(record.exc_info[1])).rstrip())


@contextmanager
def progress_bar(description: str, total: int | None) -> Iterator[Advance]:
    """A bar on stderr."""
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


def show_logs() -> None:
    """Print what the package logs, from INFO on, as notes; calling it again changes nothing."""
    use_bar(progress_bar)
    package = logging.getLogger("sentence_experts")
    package.setLevel(logging.INFO)
    package.propagate = False
    if not any(isinstance(handler, NotesHandler) for handler in package.handlers):
        package.addHandler(NotesHandler())
