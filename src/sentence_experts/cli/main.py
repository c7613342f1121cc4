"""`sentence-experts`: the verbs, and one line instead of a traceback when something is wrong."""

from __future__ import annotations

import sys
import traceback
from importlib import import_module

import typer
from click.exceptions import Abort, ClickException

from sentence_experts import __version__
from sentence_experts.console import say
from sentence_experts.errors import SentenceExpertsError

app = typer.Typer(
    name="sentence-experts",
    help="Mixture-of-experts text embeddings: articles -> co-cited pairs -> experts -> evaluation -> search. "
    "Add --debug anywhere for a traceback when something fails.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Print the version."),
) -> None:
    pass


# One module a verb; each has `register(app)` and imports its heavy parts only when it runs.
VERBS = ("corpus", "pairs", "extend", "train", "evaluate", "encode", "search", "demo")


def _add_verbs() -> None:
    for verb in VERBS:
        import_module(f"sentence_experts.cli.{verb}").register(app)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: exit 0 on success, 1 on failure, 2 on wrong usage, 130 when interrupted."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    _add_verbs()
    try:
        status = app(arguments, standalone_mode=False)
    except ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (Abort, KeyboardInterrupt):
        say("interrupted; what was finished is kept, the same command goes on from there")
        sys.exit(130)
    except Exception as error:
        if debug:
            traceback.print_exc()
        elif isinstance(error, SentenceExpertsError):
            say(f"error: {' '.join(str(error).split())}")
        else:
            detail = " ".join(str(error).split())
            say(f"error: {type(error).__name__}: {detail} (unexpected; run again with --debug for the traceback)")
        sys.exit(getattr(error, "exit_code", 1))
    sys.exit(status if isinstance(status, int) else 0)
