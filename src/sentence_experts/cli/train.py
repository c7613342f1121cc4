"""`sentence-experts train`: contrastive training on a pairs dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sentence_experts.cli.options import with_settings
from sentence_experts.console import results
from sentence_experts.training.config import TrainConfig


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("train")(with_settings(TrainConfig)(train))


def train(
    model: Annotated[str, typer.Option(help="Folder or hub id of the model to train (see `extend`)")],
    pairs: Annotated[Path, typer.Option(help="Folder written by `pairs`")],
    out: Annotated[
        Path, typer.Option(help="Folder for the run: model/, checkpoints/, config.yaml, run.json")
    ],
    given: dict[str, Any],
    config: Annotated[
        Path | None, typer.Option(help="YAML file with any of the settings below; flags go over it")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run")] = False,
) -> None:
    """Train a model on linked pairs: each pair's negatives are the other pairs of its batch, but linked ones.

    The validation split picks the best step and stops the run; the test split is not touched.

    Example: sentence-experts train --model my-model --pairs my-pairs --out runs/first --epochs 1
    """
    settings = TrainConfig.read(config, given)

    from sentence_experts.pairs.dataset import PairsFolder
    from sentence_experts.training.run import train as run

    result = run(model, PairsFolder.open(pairs), out, settings, resume)
    best = result["best_validation_f1_max"]
    results.print(f"best validation F1max {best:.4f} at step {result['best_step']} of {result['steps']}")
    results.print(f"model: {out / 'model'}")
