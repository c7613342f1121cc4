"""`sentence-experts`: its commands (verbs), and one line instead of a traceback when something is wrong."""

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
from sentence_experts.errors import SentenceExpertsError, UsageError, readable
from sentence_experts.storage import describe_full_disk

# The verbs in the order of the work, with their one-line descriptions. A verb's module is imported only if
# the verb is called, and imports heavy modules only when it runs.
VERBS = {
    "corpus": "Import or fetch articles and their citations",
    "pairs": "Make training, validation and test pairs",
    "tasks": "Compile training pairs and test sets of tasks",
    "audit": "Show what training and test pairs share",
    "extend": "Give an encoder routes: an expert, adapter or head per domain or task",
    "add-route": "Add a route, with an expert, an adapter or a head, to a model",
    "drop-route": "Drop a route and what it owns from a model",
    "fit": "Teach a model kinds of similarity from the label columns of a table",
    "train": "Train a model on pairs, tasks or both",
    "tune": "Search for training settings",
    "evaluate": "Measure models on labelled pairs, on MTEB or on your own tasks",
    "similarity": "Measure how similar the vectors of a text are under different routes",
    "encode": "Encode the texts of one file or many",
    "index": "Encode a corpus for search",
    "teach": "Teach a kind of similarity by papers that are similar and others that are not",
    "screen": "List papers in the order in which to read them, by those that were read",
    "search": "Find the papers of a corpus that are nearest to a text",
    "serve": "Serve models over HTTP",
    "moee": "Embeddings from mixture-of-experts language models",
    "export": "Write a dense model that loads without this package",
    "reproduce": "Run a published experiment and compare the figures",
    "demo": "Show all steps from articles to search, and routes taught from labels",
}
MODULES = {
    **dict.fromkeys(("extend", "add-route", "drop-route", "export"), "models"),
    **dict.fromkeys(("evaluate", "audit", "similarity"), "evaluation"),
    **dict.fromkeys(("train", "fit", "tune"), "training"),
    **dict.fromkeys(("index", "teach", "screen", "search", "serve"), "search"),
    "tasks": "pairs",
    "demo": "reproduce",
}  # the other verbs have a module of their name
ALIASES = {"add-expert": "add-route", "drop-expert": "drop-route"}  # names of verbs before 0.3
INTERRUPTED = 130
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # mimalloc holds 15 MB more
# Libraries of extras that modules import at their top -> the extra that installs them.
EXTRAS = dict.fromkeys(("pandas", "scipy", "sklearn"), "evaluate") | dict.fromkeys(
    ("torch", "transformers", "sentence_transformers", "datasets"), "models"
)
PRINTING = {"rich", "typer", "click", "cli"}  # modules that write to the terminal only


class _Verbs(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


app = typer.Typer(
    cls=_Verbs,
    name="sentence-experts",
    help="Mixture-of-experts text embeddings: articles -> co-cited pairs -> experts -> evaluation -> search. "
    "Add --debug to any command for the traceback of an error.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
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
    """Return the command line with the given verbs; each is imported and added once."""
    for verb in verbs:
        _add(verb)
    return app


@cache
def _add(verb: str) -> None:
    name = verb.replace("-", "_")
    command = getattr(import_module(f"sentence_experts.cli.{MODULES.get(verb, name)}"), name)
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=verb)
        return
    from sentence_experts.cli.options import add_verb

    add_verb(app, command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: exit 0 on success, 1 on failure, 2 on wrong usage, 130 when interrupted."""
    # Threads that spin while they wait take the cores from other processes: on a shared machine a training
    # step took 5 times as long beside one other busy process, with threads that sleep 10% longer.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    show_logs()
    if sys.stdout is None:  # a file that is opened now could take its place
        note("error: standard output is closed: leave it open, or send it to a file")
        sys.exit(1)
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    arguments[:1] = [ALIASES.get(argument, argument) for argument in arguments[:1]]
    try:
        for argument in arguments:
            if argument.encode(errors="ignore") != os.fsencode(argument):
                raise UsageError(f"{argument!a}: not UTF-8; libraries need names that are")
        called = [argument for argument in arguments[:1] if argument in VERBS]
        wrong = bool(arguments) and not called and arguments[0][:1] != "-"  # the error names similar verbs
        run = app_with_verbs(*(VERBS if wrong else called))
        status = run(arguments, prog_name="sentence-experts", standalone_mode=False)
        sys.stdout.flush()
    except TyperException as error:
        message = error.format_message()
        is_help = message.startswith("Usage:")  # the text that a group without a command prints
        note(message if is_help else f"error: {readable(message)} (add --help to see the usage)")
        sys.exit(error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        status = INTERRUPTED
    except Exception as error:
        if debug:
            traceback.print_exc()
        else:
            note(f"error: {readable(_join_lines(error))}")
        sys.exit(getattr(error, "exit_code", 1))
    if status == INTERRUPTED:
        without = " without --overwrite" if "--overwrite" in arguments else ""
        note(f"interrupted; the same command{without} continues where it stopped")
    sys.exit(status if isinstance(status, int) else 0)


def _join_lines(error: Exception) -> str:
    message = " ".join(str(error).split())
    if isinstance(error, SentenceExpertsError):
        return message
    writer = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    if isinstance(error, OSError) and not error.filename and PRINTING & {*writer.parts}:
        return f"standard output cannot be written to: {error.strerror}"
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return "the working directory was removed: change to one that exists, and give the same command again"
    if (full := describe_full_disk(error, here)) is not None:
        return full
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, ModuleNotFoundError) and (extra := EXTRAS.get((error.name or "").partition(".")[0])):
        return f'this needs {error.name}, which is not installed: pip install "sentence-experts[{extra}]"'
    if isinstance(error, PermissionError):  # pyarrow's names the file in its message
        return message
    return f"{type(error).__name__}: {message} (unexpected; --debug shows the traceback)"
