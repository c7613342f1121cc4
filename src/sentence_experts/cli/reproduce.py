"""`sentence-experts reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sentence_experts.cli.console import results, show
from sentence_experts.reproduce.recipe import ReproduceConfig


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
    from sentence_experts.report.tables import for_terminal
    from sentence_experts.reproduce.run import plan_recipe, run_experiment

    experiment = plan_recipe(recipe, config, out, dry_run)
    if dry_run:
        for step in experiment.steps:
            show(str(step))
        return
    comparison = run_experiment(experiment)
    for table in comparison.tables:
        results.print(for_terminal(table))
    if comparison.figures:
        show(f"\n{comparison.legend}")
    for line in comparison.differences:
        show(f"- {line}")
    show(f"report: {experiment.report / 'report.html'}")
