"""`sentence-experts tune`: search for training settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from sentence_experts.cli.console import results, show
from sentence_experts.cli.options import Model, Overwrite, add_verb
from sentence_experts.cli.train import Pairs, Tasks, training_data
from sentence_experts.models.sources import check_source
from sentence_experts.training.config import TuneConfig

if TYPE_CHECKING:
    from sentence_experts.training.tune import TuneResult


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, tune)


def tune(
    model: Model,
    out: Annotated[Path, typer.Option(help="Folder for the search: trials/, study.db, best.yaml")],
    config: TuneConfig,
    pairs: Pairs = None,
    tasks: Tasks = None,
    space: Annotated[
        Path | None,
        typer.Option(
            help="YAML file of the settings to search, one per line: 'warmup: {type: float, low: 0, high: "
            "0.5}'. Types: int and float (with log: true if wanted), categorical (choices: [a, b]). Default: "
            "batch_size from 5 to 20, warmup and epochs, as in the 2024 preprint"
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Try training settings on a sample of the training pairs; the best validation figure wins.

    Training settings given as flags are the same in all trials, and not searched.

    Example: sentence-experts tune my-model --pairs my-pairs --out search --trials 20
    """
    from sentence_experts.training.tune import read_space

    read_space(space, config)
    data = training_data(pairs, tasks)
    check_source(model)

    from sentence_experts.training.tune import tune as run

    result = run(model, data, config, out, overwrite, space=space)
    results.print(_table(result))
    show(
        f"best: trial {result.best.number + 1}, validation {result.best.best:.4f}. The settings "
        "were chosen on this set, so expect a lower figure on new papers."
    )
    show(f"train with them: --config {out / 'best.yaml'}")


def _table(result: TuneResult) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    for heading in ("trial", *result.best.settings, "steps", "validation"):
        table.add_column(heading, justify="right")
    for trial in result.trials:
        best = "failed" if trial.best is None else f"{trial.best:.4f}"
        table.add_row(str(trial.number + 1), *map(_cell, trial.settings.values()), _cell(trial.steps), best)
    return table


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
