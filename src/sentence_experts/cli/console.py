"""The terminal: results on stdout, notes of the package's loggers on stderr."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sentence_experts.corpus.formats.markup import without_controls
from sentence_experts.progress import Advance, use_bar

if TYPE_CHECKING:
    from sentence_experts.evaluation.results import Result

# Function or method that messages name -> its verb.
VERB_BY_FUNCTION = {
    "import_corpus": "corpus import",
    "fetch_corpus": "corpus fetch",
    "compile_pairs": "pairs compile",
    "import_pairs": "pairs import",
    "compile_tasks": "tasks",
    "count_values": "corpus show CORPUS --list subjects",
    "build_index": "index build",
    "extend": "extend",
    "add_route": "add-route",
}

# Parameters of the running verb; messages show them as flags. Empty while none runs.
parameters: list[Any] = []


class _SafeConsole(Console):
    """A console for texts of records, which must not control the terminal."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Make a text printable, without control characters and those that reverse what follows."""
        return super().render_str(without_controls(text), **options)

    def on_broken_pipe(self) -> None:
        """Print no more notes if nobody reads them; the end of results ends the command, as rich has it."""
        self.quiet = True
        if not self.stderr:
            super().on_broken_pipe()


# Names of files, domains and models may hold brackets and colons, which are not markup.
results = _SafeConsole(soft_wrap=True, markup=False, emoji=False)
notes = _SafeConsole(stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False)


def show(line: object) -> None:
    """Print a line of results (stdout) as it is, without markup and colours."""
    results.print(str(line), highlight=False)


def show_table(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1, header: bool = True
) -> None:
    """Print a table whose first `left` columns are words, and the others numbers."""
    table = Table(title=title, title_justify="left", show_header=header, box=None, padding=(0, 1, 0, 0))
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right")
    for row in rows:
        table.add_row(*row)
    results.print(table)


def show_report(result: Result, out: Path | None) -> None:
    """Print the tables, the notes and the verdict of a result, and write its report to the folder `out`."""
    from sentence_experts.report.content import for_terminal  # imports torch: after the checks
    from sentence_experts.report.write import report_of, write_report

    report = report_of(result)
    for table in report.tables():
        results.print(for_terminal(table))
    for line in ("", *report.notes) if report.notes else ():
        show(line)
    show_verdict(report.verdict.lines())
    if out is not None:
        show(f"report: {write_report(result, out, keep=True)}")


def show_verdict(lines: Iterable[str]) -> None:
    """Print the sentences that end a report."""
    results.print("\nVERDICT", style="bold")
    for line in lines:
        show(name_flags(line))


def note(message: str) -> None:
    """Print a note for the user (stderr, no markup), with the verb of each function that it names."""
    with suppress(OSError):  # the lines of a log on a full disk come later, and the work goes on
        notes.print(name_verbs(message))


def name_verbs(message: str) -> str:
    """Return the message with `` `compile_pairs` `` as `sentence-experts pairs compile`, and so on."""
    names = "|".join(VERB_BY_FUNCTION)
    return re.sub(rf"`({names})`", lambda name: f"`sentence-experts {VERB_BY_FUNCTION[name[1]]}`", message)


def name_flags(message: str, known: Iterable[Any] = parameters) -> str:
    """Return the message with the flag of each parameter that it names in backticks.

    `` `top_k` `` becomes `--top-k`, `` `top_k=5` `` `--top-k 5`, and `` `packed=False` `` `--no-packed`.
    """
    by_name = {each.name: each for each in known}

    def flag(match: re.Match[str]) -> str:
        name, value = match["name"], match["value"] and match["value"].strip("'")
        parameter = by_name.get(name)
        if parameter is None:
            return match[0]
        if parameter.param_type_name == "argument":
            return str(parameter.metavar or name.upper())
        positive = next((each for each in parameter.opts if each.startswith("--")), parameter.opts[0])
        if value in (None, "True"):
            return str(positive)
        if value == "False" and parameter.secondary_opts:
            return str(parameter.secondary_opts[0])
        return f"{positive} {value}"

    return re.sub(r"`(?P<name>[a-z_][a-z0-9_]*)(?:=(?P<value>[^`]*))?`", flag, message)


class NotesHandler(logging.Handler):
    """A handler that prints log records as notes, warnings with their level in front."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record's message, and the traceback of its error if it has one."""
        level = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        trace = "".join(format_exception(record.exc_info[1])) if record.exc_info else ""
        note(f"{level}{name_flags(record.getMessage())}\n{trace}".rstrip())


@contextmanager
def progress_bar(description: str, total: int | None) -> Iterator[Advance]:
    """Show a bar on stderr."""
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
