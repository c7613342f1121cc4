"""`sentence-experts tasks`: a task file -> the datasets of its tasks in train, validation and test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sentence_experts.cli.console import show, show_table
from sentence_experts.cli.options import Overwrite
from sentence_experts.tasks.config import TasksConfig

if TYPE_CHECKING:
    from sentence_experts.tasks.dataset import Tasks

MAX_NAMED = 5


def tasks(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="YAML file with the tasks, their instructions and their datasets"
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write the datasets to")],
    config: TasksConfig,
    overwrite: Overwrite = False,
) -> None:
    """Compile the datasets of tasks: retrieval, classification, clustering, and their test sets.

    Rows come from files, corpora and hub datasets. Classification and clustering are trained on pairs of
    texts of one label. No text of a validation or test set is in the training set of any dataset.

    Example: sentence-experts tasks tasks.yaml --out my-tasks
    """
    from sentence_experts.tasks.compile import compile_tasks

    _show(compile_tasks(file, config, out, overwrite))


def _show(folder: Tasks) -> None:
    """Show the number of pairs and texts per dataset, what is left out and why, and problems with classes."""
    from sentence_experts.tasks.split import SPLITS

    rows = []
    for task, datasets in folder.manifest["datasets"].items():
        for name, entry in datasets.items():
            counts = folder.counts[task][name]
            sets = [f"{counts[split]:,}" if split in counts else "-" for split in SPLITS]
            left_out = sum(sum(entry[why].values()) for why in ("set_aside", "removed"))
            rows.append((f"{task}/{name}", *sets, str(entry.get("classes", "-")), f"{left_out:,}"))
    headings = ("task/dataset", "train", "valid", "test", "classes", "left out")
    show_table("pairs of each dataset", headings, rows)
    for task, datasets in folder.manifest["datasets"].items():
        for name, entry in datasets.items():
            for note in _notes(entry):
                show(f"{task}/{name}: {note}")
    for route, instruction in folder.task_file.instructions().items():
        expert = folder.task_file.experts()[route]
        shared = "" if expert == route else f", with the expert of {expert}"
        show(f"route {route}: texts begin with {instruction!r}{shared}")
    show(f"written to {folder.path}")


def _notes(entry: dict[str, Any]) -> list[str]:
    """Return one line per reason for which rows were left out, and per problem with classes."""
    notes = [f"set aside {count:,}: {why}" for why, count in entry["set_aside"].items()]
    notes += [f"removed {count:,}: {why.replace('_', ' ')}" for why, count in entry["removed"].items()]
    for split, labels in entry.get("classes_of_one_text", {}).items():
        notes.append(f"{split}: one text and so no pair in {_named(labels)}")
    if missing := entry.get("classes_not_in_train"):
        notes.append(f"measured but without a training text: {_named(missing)}")
    return notes


def _named(labels: list[str]) -> str:
    more = f" and {len(labels) - MAX_NAMED:,} more" if len(labels) > MAX_NAMED else ""
    return f"{len(labels):,} class{'es' * (len(labels) > 1)}: {', '.join(labels[:MAX_NAMED])}{more}"
