"""`sentence-experts reproduce`: a published experiment, its figures beside the printed ones."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentence_experts.cli.console import note, results

if TYPE_CHECKING:
    from sentence_experts.reproduce.comparison import Comparison
    from sentence_experts.reproduce.experiment import Experiment


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""

    def reproduce(
        recipe: Annotated[
            Path, typer.Argument(metavar="RECIPE", help="A recipe, as recipes/hallee2025/moe_all.yaml")
        ],
        scale: Annotated[
            str,
            typer.Option(
                help="small: minutes on two cores, without a hub, on the articles that `demo` works on; "
                "full: as published, on --corpus"
            ),
        ] = "small",
        corpus: Annotated[
            Path | None, typer.Option(help="With --scale full: folder written by `corpus import`")
        ] = None,
        out: Annotated[
            Path, typer.Option(help="Folder for all recipes; those of one paper share pairs and models")
        ] = Path("reproduced"),
        seeds: Annotated[
            int | None, typer.Option(min=1, help="Training runs of each model; default: the recipe's")
        ] = None,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the commands and do nothing")] = False,
    ) -> None:
        """Run a published experiment and set its figures beside the printed ones.

        Every step is an ordinary command: pairs, extend, train, evaluate. Given again, it goes on where it
        was. Ends with a table for each published one, and report.json, report.md and report.html.

        Example: sentence-experts reproduce recipes/hallee2025/moe_all.yaml --dry-run
        """
        from sentence_experts.reproduce.open import open_experiment

        experiment = open_experiment(recipe, scale, corpus, out, seeds, dry_run)
        if dry_run:
            _show_steps(experiment)
            return

        from sentence_experts.reproduce.run import run_experiment

        def command(arguments: Sequence[str]) -> int:
            results.print(f"\n$ {_line(arguments)}", style="bold", markup=False)
            return app(list(arguments), standalone_mode=False) or 0

        _show(run_experiment(experiment, command), experiment.report)

    app.command("reproduce")(reproduce)


def _show_steps(experiment: Experiment) -> None:
    if experiment.writes_first is not None:
        note(f"written first: {experiment.writes_first}")
    for step in experiment.steps:
        results.print(_line(step.command), markup=False, highlight=False)


def _show(comparison: Comparison, report: Path) -> None:
    from sentence_experts.reproduce.tables import for_terminal

    for table in comparison.tables:
        results.print(for_terminal(table))
    if comparison.figures:
        results.print(f"\n{comparison.legend}.", markup=False, highlight=False)
    for line in comparison.differences:
        results.print(f"- {line}", markup=False, highlight=False)
    results.print(f"report: {report / 'report.html'}", markup=False, highlight=False)


def _line(arguments: Sequence[str]) -> str:
    return f"sentence-experts {shlex.join(arguments)}"
