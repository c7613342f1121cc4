"""`sentence-experts reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from sentence_experts.cli.console import note, results, show
from sentence_experts.reproduce.recipe import ReproduceConfig

if TYPE_CHECKING:
    from sentence_experts.reproduce.comparison import ReproductionResult
    from sentence_experts.reproduce.experiment import Experiment, ReportTable


def reproduce(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A shipped recipe, such as hallee2025/moe_all, or a file")
    ],
    config: ReproduceConfig,
    out: Annotated[
        Path, typer.Option(help="Folder for all recipes; those of one paper share pairs and models")
    ] = Path("reproduced"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the steps and do nothing")] = False,
) -> None:
    """Run a published experiment and set its figures beside the printed ones.

    Every step is a call of a public function: compile_pairs, extend, train, evaluate. Run again, it continues
    where it stopped. Ends with a table for each published one, and report.json, report.md and report.html.

    Example: sentence-experts reproduce hallee2025/moe_all --dry-run
    """
    from sentence_experts.reproduce.run import plan_recipe, run_experiment

    experiment = plan_recipe(recipe, config, out, dry_run)
    if dry_run:
        _show_steps(experiment)
    else:
        _show(run_experiment(experiment), experiment.report)


def _show_steps(experiment: Experiment) -> None:
    if experiment.writes_first is not None:
        note(f"written first: {experiment.writes_first}")
    for step in experiment.steps:
        show(str(step))


def _show(comparison: ReproductionResult, report: Path) -> None:
    for table in comparison.tables:
        results.print(_rich_table(table))
    if comparison.figures:
        show(f"\n{comparison.legend}.")
    for line in comparison.differences:
        show(f"- {line}")
    show(f"report: {report / 'report.html'}")


def _rich_table(table: ReportTable) -> Table:
    """A rich table; a set of pairs is above its metric, an interval below its figure, without brackets."""
    from sentence_experts.report.tables import terminal_table

    corner, *headings = (heading.replace(" ", "\n") for heading in table.headings)
    shown = terminal_table(table.title, corner, headings)
    for line in table.lines:
        shown.add_row(*(Text(cell.replace(" (", "\n").replace(")", "")) for cell in line))
    return shown
