"""`sentence-experts train|fit|tune`: contrastive training on pairs and tasks, and on labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sentence_experts.cli.console import name_flags, show, show_table, show_verdict
from sentence_experts.cli.options import Model, ModelOut, Overwrite, check_there
from sentence_experts.errors import UsageError
from sentence_experts.models.sources import check_source
from sentence_experts.training.config import FitConfig, TrainConfig, TuneConfig
from sentence_experts.yaml_files import read_yaml

PairsFolder = Annotated[Path | None, typer.Option(help="Pairs folder")]
TasksFolder = Annotated[Path | None, typer.Option(help="Tasks folder; may be given together with --pairs")]


def train(
    model: Model,
    out: Annotated[
        Path, typer.Option(help="Folder for the run: model/, checkpoints/, config.yaml, run.json")
    ],
    config: TrainConfig,
    pairs: PairsFolder = None,
    tasks: TasksFolder = None,
    overwrite: Overwrite = False,
) -> None:
    """Train a model on pairs, tasks or both: the other positives of a pair's batch are its negatives.

    Known positives that meet in a batch are left out. The validation split chooses the best step and stops
    the run, unless --keep last; the test split is not used. Several processes train together, each with
    --batch-size pairs: torchrun --nproc-per-node 2 --no-python sentence-experts train ...

    Example: sentence-experts train my-model --pairs my-pairs --out runs/first --epochs 1
    """
    data = _training_data(pairs, tasks)
    check_source(model)
    from sentence_experts.training import processes
    from sentence_experts.training.run import train as run

    result = run(model, data, config, out, overwrite)
    if processes.is_first():
        show(f"model: {out / 'model'}")
        show(name_flags(result.summary))


def fit(
    model: Model,
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE", help="Texts with labels: .csv, .tsv, .jsonl, .parquet, or a corpus folder"
        ),
    ],
    out: ModelOut,
    config: FitConfig,
    overwrite: Overwrite = False,
) -> None:
    """Teach a model kinds of similarity: a route for each label column of a table.

    Texts that share a label of a column become alike under its route. Every text is encoded once, then each
    route is a linear map, learned in seconds; `add-route` and `drop-route` change the routes later.

    Example: sentence-experts fit minilm packages.jsonl --text description --by use --by tool --out my-model
    """
    check_there(table)
    check_source(model)
    from sentence_experts.models.sources import load_quietly
    from sentence_experts.training.labelled_texts import check_columns

    check_columns(table, config)
    load_quietly()
    from sentence_experts.training.fit import HEADINGS, RECALL, RECALL_TITLE, TITLE, TRIED
    from sentence_experts.training.fit import fit as run

    result = run(model, table, config, out=out, overwrite=overwrite)
    counts = ", ".join(f"{len(rows):,} {name}" for name, rows in result.sets.items())
    show(f"texts: {counts}" + "".join(f"; left out: {n:,} {reason}" for reason, n in result.left_out.items()))
    show_table(TITLE, HEADINGS, result.rows())
    show_table(RECALL_TITLE, RECALL, result.recall_rows())
    show_table(
        "Kinds of routes, by nDCG@10 on validation texts",
        TRIED[:-1],
        [row[:-1] for row in result.tried_rows()],
    )
    for each in result.tried:
        show(f"chosen for {each['kind']}s: {each['chosen']}")
    show_verdict([result.summary, *([result.verdict] if result.verdict else [])])
    show(f"model: {out}")


def tune(
    model: Model,
    out: Annotated[Path, typer.Option(help="Folder for the search: trials/, best.yaml")],
    config: TuneConfig,
    pairs: PairsFolder = None,
    tasks: TasksFolder = None,
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
    data = _training_data(pairs, tasks)
    check_source(model)
    if space is not None:
        read_yaml(space, "a search space")  # its settings are checked once torch is imported
    from sentence_experts.training.tune import read_space
    from sentence_experts.training.tune import tune as run

    read_space(space, config)

    result = run(model, data, config, out, overwrite, space=space)
    show(result.to_pandas().dropna(axis=1, how="all").to_string(index=False, na_rep="–"))
    show(
        f"best: trial {result.best.number}, validation {result.best.best:.4f}. The settings "
        "were chosen on this set, so expect a lower figure on new papers."
    )
    show(f"train with them: --config {out / 'best.yaml'}")


def _training_data(pairs: Path | None, tasks: Path | None) -> list[Path]:
    """Return the folders that are given, checked before anything heavy is imported."""
    data = [folder for folder in (pairs, tasks) if folder is not None]
    if not data:
        raise UsageError("give `pairs`, `tasks` or both")
    from sentence_experts.tasks.dataset import open_dataset

    for folder in data:
        open_dataset(folder)
    return data
