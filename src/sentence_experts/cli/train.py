"""`sentence-experts train`: contrastive training on a pairs dataset or on tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, create_model
from pydantic.fields import FieldInfo

from sentence_experts.cli.console import results
from sentence_experts.cli.options import with_settings
from sentence_experts.errors import UsageError
from sentence_experts.training.config import RunConfig, TrainConfig
from sentence_experts.training.task_config import TaskConfig

SOURCES: dict[str, type[RunConfig]] = {"pairs": TrainConfig, "tasks": TaskConfig}


def _flags_of_both() -> type[BaseModel]:
    """The settings of both sources; each that is not for all runs says which it is for."""
    found: dict[str, tuple[str, FieldInfo]] = {}
    for source, settings in SOURCES.items():
        for name, field in settings.model_fields.items():
            text = field.description or ""
            if name not in RunConfig.model_fields:
                text = f"With --{source}: {text[:1].lower()}{text[1:]}"
                if field.default is not None:
                    text = f"{text}; by default {field.default}"
            known = found[name][0] if name in found else text
            described = known if known == text else f"{known}. {text}"
            default = field.default if name in RunConfig.model_fields else None
            kept = found[name][1].annotation if name in found else field.annotation
            found[name] = described, FieldInfo(annotation=kept, default=default, description=described)
    fields: dict[str, Any] = {name: (field.annotation, field) for name, (_, field) in found.items()}
    return create_model("TrainFlags", **fields)


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("train")(with_settings(_flags_of_both())(train))


def train(
    model: Annotated[str, typer.Option(help="Folder or hub id of the model to train (see `extend`)")],
    out: Annotated[
        Path, typer.Option(help="Folder for the run: model/, checkpoints/, config.yaml, run.json")
    ],
    given: dict[str, Any],
    pairs: Annotated[Path | None, typer.Option(help="Folder written by `pairs`")] = None,
    tasks: Annotated[Path | None, typer.Option(help="Folder written by `tasks`, in place of --pairs")] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file with any of the settings below; flags go over it")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run")] = False,
) -> None:
    """Train a model on pairs or on tasks: the other texts of a pair's batch are its negatives.

    On pairs (--pairs), linked texts that meet in a batch are left out. On tasks (--tasks), a batch is of one
    task and has its temperature. The validation split picks the best step and stops the run; the test split
    is not touched. Several processes train on tasks together, each with --batch-size pairs:
    torchrun --nproc-per-node 2 --no-python sentence-experts train --tasks ...

    Example: sentence-experts train --model my-model --pairs my-pairs --out runs/first --epochs 1
    """
    sources = [name for name, folder in (("pairs", pairs), ("tasks", tasks)) if folder is not None]
    if len(sources) != 1:
        raise UsageError(f"give --pairs or --tasks{', not both' if sources else ''}")
    (source,) = sources
    strange = [name for name in given if name not in SOURCES[source].model_fields]
    if strange:
        other = next(name for name in SOURCES if name != source)
        raise UsageError(
            f"--{strange[0].replace('_', '-')}: means nothing with --{source}, only with --{other}"
        )
    if pairs is not None:
        _train_on_pairs(model, pairs, out, TrainConfig.read(config, given), resume)
    elif tasks is not None:
        _train_on_tasks(model, tasks, out, TaskConfig.read(config, given), resume)


def _train_on_pairs(model: str, pairs: Path, out: Path, settings: TrainConfig, resume: bool) -> None:
    from sentence_experts.pairs.dataset import PairsFolder
    from sentence_experts.training.run import train as run

    result = run(model, PairsFolder.open(pairs), out, settings, resume)
    _say_best("F1max", result["best_validation_f1_max"], result, out)


def _train_on_tasks(model: str, tasks: Path, out: Path, settings: TaskConfig, resume: bool) -> None:
    from sentence_experts.tasks.dataset import TasksFolder
    from sentence_experts.training.task_run import train_tasks

    result = train_tasks(model, TasksFolder.open(tasks), out, settings, resume)
    _say_best("nDCG@10", result["best_validation_ndcg_at_10"], result, out)


def _say_best(title: str, best: float, result: dict[str, Any], out: Path) -> None:
    from sentence_experts.training import processes

    if not processes.is_first():
        return
    results.print(f"best validation {title} {best:.4f} at step {result['best_step']} of {result['steps']}")
    results.print(f"model: {out / 'model'}")
