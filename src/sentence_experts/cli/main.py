"""`sentence-experts`: the verbs, and one line instead of a traceback when something is wrong."""

from __future__ import annotations

import os
import sys
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from sentence_experts import __version__
from sentence_experts.cli.console import note, show_logs
from sentence_experts.errors import SentenceExpertsError
from sentence_experts.storage import no_space

# One module per verb, in the order of the work. Each has `register(app)` and imports heavy modules only when
# it runs.
VERBS = (
    "corpus",
    "pairs",
    "tasks",
    "audit",
    "extend",
    "add-expert",
    "drop-expert",
    "train",
    "tune",
    "evaluate",
    "compare",
    "similarity",
    "auto-route",
    "encode",
    "search",
    "moee",
    "export",
    "quantize",
    "reproduce",
    "demo",
)
INTERRUPTED = 130


class _InOrder(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return [verb for verb in VERBS if verb in self.commands]


app = typer.Typer(
    cls=_InOrder,
    name="sentence-experts",
    help="Mixture-of-experts text embeddings: articles -> co-cited pairs -> experts -> evaluation -> search. "
    "Add --debug to any command for the traceback of an error.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Print the version."
    ),
) -> None:
    pass


def app_with_verbs(*verbs: str) -> typer.Typer:
    """The command line with the given verbs, by default all; each is imported and added once."""
    for verb in verbs or VERBS:
        _add(verb)
    return app


@cache
def _add(verb: str) -> None:
    import_module(f"sentence_experts.cli.{verb.replace('-', '_')}").register(app)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: exit 0 on success, 1 on failure, 2 on wrong usage, 130 when interrupted."""
    # Threads that spin while they wait take the cores from other processes: on a shared machine a training
    # step took 5 times as long beside one other busy process, with threads that sleep 10% longer.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    show_logs()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        # Only the verb that runs is imported; all of them for the list of verbs.
        alone = [argument for argument in arguments[:1] if argument in VERBS]
        status = app_with_verbs(*alone)(arguments, prog_name="sentence-experts", standalone_mode=False)
    except TyperException as error:
        if error.format_message():  # empty where the help text was shown instead
            note(f"error: {error.format_message()} (add --help to see the usage)")
        sys.exit(error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        status = INTERRUPTED
    except Exception as error:
        if debug:
            traceback.print_exc()
        else:
            note(f"error: {_one_line(error)}")
        sys.exit(getattr(error, "exit_code", 1))
    if status == INTERRUPTED:
        without = " without --overwrite" if "--overwrite" in arguments else ""
        note(f"interrupted; the same command{without} continues where it stopped")
    sys.exit(status if isinstance(status, int) else 0)


def _one_line(error: Exception) -> str:
    message = " ".join(str(error).split())
    if isinstance(error, SentenceExpertsError):
        return message
    if (full := no_space(error, Path.cwd())) is not None:
        return full
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return f"{type(error).__name__}: {message} (unexpected; --debug shows the traceback)"
