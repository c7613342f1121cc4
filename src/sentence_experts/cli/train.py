"""`sentence-experts train`: contrastive training on pairs, tasks or both."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sentence_experts.cli.console import parameters, show
from sentence_experts.cli.help import name_flags
from sentence_experts.cli.options import Model, Overwrite, add_verb
from sentence_experts.errors import UsageError
from sentence_experts.models.sources import check_source
from sentence_experts.training.config import TrainConfig

Pairs = Annotated[Path | None, typer.Option(help="Pairs folder")]
Tasks = Annotated[Path | None, typer.Option(help="Tasks folder; may be given together with --pairs")]


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, train)


def train(
    model: Model,
    out: Annotated[
        Path, typer.Option(help="Folder for the run: model/, checkpoints/, config.yaml, run.json")
    ],
    config: TrainConfig,
    pairs: Pairs = None,
    tasks: Tasks = None,
    overwrite: Overwrite = False,
) -> None:
    """Train a model on pairs, tasks or both: the other texts of a pair's batch are its negatives.

    Known positives that meet in a batch are left out. The validation split chooses the best step and stops
    the run, unless --keep last; the test split is not used. Several processes train together, each with
    --batch-size pairs: torchrun --nproc-per-node 2 --no-python sentence-experts train ...

    Example: sentence-experts train my-model --pairs my-pairs --out runs/first --epochs 1
    """
    data = training_data(pairs, tasks)
    check_source(model)

    from sentence_experts.training import processes
    from sentence_experts.training.run import train as run

    result = run(model, data, config, out, overwrite)
    if processes.is_first():
        show(f"model: {out / 'model'}")
        show(name_flags(result.summary, parameters))


def training_data(pairs: Path | None, tasks: Path | None) -> list[Path]:
    """The folders that are given.

    Raises:
        UsageError: there is none.
        InputError: one cannot be read.
    """
    data = [folder for folder in (pairs, tasks) if folder is not None]
    if not data:
        raise UsageError("give `pairs`, `tasks` or both")
    from sentence_experts.tasks.dataset import open_dataset

    for folder in data:  # before anything heavy is imported
        open_dataset(folder)
    return data
