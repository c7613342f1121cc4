"""The side of `sentence-experts evaluate` that measures on tasks: `--mteb` and `--tasks`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sentence_experts.cli.console import results
from sentence_experts.cli.evaluate_settings import EvaluationSettings
from sentence_experts.errors import SentenceExpertsError, UsageError

if TYPE_CHECKING:
    from sentence_experts.evaluation.mteb.results import TaskEvaluation

# What a model is measured on -> the flags that belong to it alone.
FLAGS_OF = {
    "pairs": ("baseline", "split", "tfidf_fit", "linked_only", "threshold_min"),
    "mteb": ("only",),
    "tasks": ("only",),
}


def check_kind(settings: EvaluationSettings) -> None:
    """One of --pairs, --mteb and --tasks is given, and no flag that belongs to another.

    Raises:
        UsageError: otherwise.
    """
    given = [kind for kind in FLAGS_OF if getattr(settings, kind)]
    if len(given) != 1:
        got = " and ".join(f"--{kind}" for kind in given) or "none"
        raise UsageError(f"give one of --pairs FOLDER, --mteb NAME and --tasks FOLDER (got {got})")
    foreign = {
        flag: kind for kind, flags in FLAGS_OF.items() for flag in flags if flag not in FLAGS_OF[given[0]]
    }
    for flag, kind in foreign.items():
        if getattr(settings, flag) != type(settings).model_fields[flag].default:
            raise UsageError(f"--{flag.replace('_', '-')} is for --{kind}, not for --{given[0]}")


def evaluate_tasks(settings: EvaluationSettings, models: list[str]) -> None:
    """Measure the models, show the tables, and fail at the end where a task's data could not be had."""
    from sentence_experts.evaluation.mteb.results import TaskEvaluation
    from sentence_experts.tasks.dataset import Tasks

    data = settings.mteb or Tasks.open(settings.tasks or "")
    found = settings.evaluate(models, data)
    assert isinstance(found, TaskEvaluation)
    show_tasks(found, settings.out)


def show_tasks(found: TaskEvaluation, out: Path) -> None:
    """Show the tables.

    Raises:
        SentenceExpertsError: a task's data could not be had.
    """
    from sentence_experts.report.task_tables import gap_lines, notes, task_tables

    for table in task_tables(found):
        results.print(table)
    for line in ("", *gap_lines(found), *notes(found), f"report: {out / 'tasks.md'}"):
        results.print(line, markup=False, highlight=False)
    if found.missing:
        raise SentenceExpertsError(
            f"{len(found.missing)} tasks were not measured, their data could not be loaded: "
            f"{', '.join(found.missing)}; the same command tries them again and keeps the others"
        )
