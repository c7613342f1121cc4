"""`sentence-experts tune`: search for training settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from sentence_experts.cli.console import results
from sentence_experts.cli.options import with_settings
from sentence_experts.training.config import TrainConfig

if TYPE_CHECKING:
    from sentence_experts.training.search import Trial


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("tune")(with_settings(TrainConfig)(tune))


def tune(
    model: Annotated[str, typer.Option(help="Folder or hub id of the model that every trial trains")],
    pairs: Annotated[Path, typer.Option(help="Folder written by `pairs`")],
    out: Annotated[Path, typer.Option(help="Folder for the search: trials/, study.db, best.yaml")],
    given: dict[str, Any],
    trials: Annotated[
        int, typer.Option(min=1, help="How many settings to try, those before a resume too")
    ] = 20,
    space: Annotated[
        Path | None,
        typer.Option(
            help="YAML file with what varies, a line each: 'warmup: {type: float, low: 0, high: 0.5}'. The "
            "types are int, float (log: true if wanted) and categorical (choices: [a, b]). Without: as in "
            "the preprint, batch size 5-20, warmup and epochs"
        ),
    ] = None,
    share: Annotated[float, typer.Option(help="How much of each domain's training pairs a trial sees")] = 0.1,
    sampler: Annotated[str, typer.Option(help="random, or tpe (learns from the trials before)")] = "random",
    search_seed: Annotated[int, typer.Option(min=0, help="Fixes the sample of pairs and all draws")] = 0,
    config: Annotated[
        Path | None, typer.Option(help="YAML file with settings that all trials share; flags go over it")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a search, or add trials to it")
    ] = False,
) -> None:
    """Try training settings on a sample of the training pairs; the best F1max on validation wins.

    Settings given as flags below are the same in all trials, and not searched.

    Example: sentence-experts tune --model my-model --pairs my-pairs --out search --trials 20
    """
    from sentence_experts.training.search_space import read_space, without_fixed

    settings = TrainConfig.read(config, given)
    varied = without_fixed(read_space(space), settings, given)

    from sentence_experts.pairs.dataset import PairsFolder
    from sentence_experts.training.search import SearchPlan, best_of, search

    plan = SearchPlan(
        model, PairsFolder.open(pairs), out, settings, varied, trials, share, sampler, search_seed
    )
    done = search(plan, resume)
    results.print(_table(done, list(varied)))
    best = best_of(done)
    results.print(
        f"best: trial {best.number + 1}, validation F1max {best.f1_max:.4f}. This set chose the settings, so "
        "the figure is too high for new papers.",
        highlight=False,
    )
    results.print(f"train with them: --config {out / 'best.yaml'}", markup=False, highlight=False)


def _table(trials: list[Trial], varied: list[str]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    for heading in ("trial", *varied, "steps", "F1max"):
        table.add_column(heading, justify="right")
    for trial in trials:
        drawn = [_cell(trial.drawn[name]) for name in varied]
        figure = "failed" if trial.f1_max is None else f"{trial.f1_max:.4f}"
        table.add_row(str(trial.number + 1), *drawn, _cell(trial.steps), figure)
    return table


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
