"""Scores of models on tasks: by task, averaged by type and over all datasets, and over seeds.

Averages are as in MoTE (tables 2-7): a type's average is the mean over its datasets, the overall one the mean
over all datasets (not over the types). Only tasks that every run was measured on count, so that averages are
comparable.

Scores of a model with several runs are means over the runs; with three runs or more, Student's t gives a 95%
interval over seeds. Differences of two models' averages are paired by dataset, and by seed if both have
equally many; their intervals cover the seeds, and the choice of datasets if there are enough
(`evaluation.statistics`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sentence_experts.evaluation.estimates import Estimate, runs_of_datasets
from sentence_experts.evaluation.results import (
    SEEDS_NEEDED,
    Difference,
    Evaluation,
    View,
    differences_of,
)

# Types in the order of the papers' tables; others follow.
TYPES = (
    "Retrieval",
    "Classification",
    "Clustering",
    "Reranking",
    "PairClassification",
    "STS",
    "Summarization",
)
AVERAGE, MAIN_SCORE = View("average"), "main_score"  # view and metric of the differences

Bounds = tuple[float, float]


@dataclass(frozen=True)
class MeasuredTask:
    """A task that was measured; `kind` is mteb's type, `metric` the main score, `revision` the data's."""

    name: str
    kind: str
    metric: str
    revision: str


@dataclass(frozen=True)
class Run:
    """One run of one model; `scores` is task name -> main score, 0 to 1, or a correlation."""

    label: str
    model: str
    settings: Mapping[str, Any]
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Score:
    """A mean over runs, their standard deviation, and, with three or more runs, the 95% interval."""

    value: float
    spread: float | None = None
    interval: Bounds | None = None


@dataclass(frozen=True)
class ModelScores:
    """The scores of one model: of each task, the average of each type, and the average over all datasets.

    `trained` says whether it was trained here; baselines were not.
    """

    label: str
    tasks: Mapping[str, Score]
    types: Mapping[str, Score]
    average: Score
    runs: tuple[Run, ...]
    trained: bool = True


@dataclass(frozen=True, repr=False)
class TaskEvaluation(Evaluation):
    """Several models on the same tasks."""

    FILES = ("tasks.json",)
    settings: Mapping[str, Any]  # all that is needed to repeat the evaluation
    tasks: tuple[MeasuredTask, ...]  # tasks that every run was measured on, by type
    models: tuple[ModelScores, ...]
    differences: tuple[Difference, ...] = ()  # average of each model minus each later one
    missing: Mapping[str, str] = field(default_factory=dict)  # task that some run lacks -> reason

    @property
    def types(self) -> dict[str, int]:
        """Number of tasks by type."""
        kinds = [task.kind for task in self.tasks]
        return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per model and task: its score, and its spread and interval over seeds, if any."""
        return [
            {"model": model.label, "task": task.name, "type": task.kind, "metric": task.metric}
            | {"score": score.value, "spread": score.spread}
            | dict(zip(("low", "high"), score.interval or (None, None), strict=True))
            for model in self.models
            for task in self.tasks
            for score in (model.tasks[task.name],)
        ]


def join_runs(
    tasks: Sequence[MeasuredTask],
    runs: Sequence[Run],
    settings: Mapping[str, Any] | None = None,
    missing: Mapping[str, str] | None = None,
    margin: float = 0.01,
    baseline: Collection[str] = (),
) -> TaskEvaluation:
    """Join the scores of all runs by model.

    Args:
        settings, missing: values to record in the result (`missing`: task -> why it was not measured).
        margin: margin of equivalence (`EvaluateConfig`).
        baseline: labels of models that were not trained here.
    """
    common = [task for task in tasks if all(task.name in run.scores for run in runs)]
    order = {kind: place for place, kind in enumerate(TYPES)}
    common.sort(key=lambda task: (order.get(task.kind, len(order)), task.kind, task.name))
    names = [task.name for task in common]
    kinds = {kind: [task.name for task in common if task.kind == kind] for kind in (t.kind for t in common)}
    members: dict[str, list[Run]] = {}
    for run in runs:
        members.setdefault(run.model, []).append(run)
    models = tuple(
        ModelScores(
            label,
            {name: _score(own, [name]) for name in names},
            {kind: _score(own, tasks_of_kind) for kind, tasks_of_kind in kinds.items()},
            _score(own, names),
            tuple(own),
            label not in baseline,
        )
        for label, own in members.items()
        if common
    )
    runs_by_model = {
        model.label: runs_of_datasets(np.array([[run.scores[name] for name in names] for run in model.runs]))
        for model in models
    }
    averages = {model.label: model.average.value for model in models}
    differences = tuple(differences_of(averages, runs_by_model, AVERAGE, MAIN_SCORE, margin))
    noted = {**(settings or {}), "margin": margin}
    return TaskEvaluation(noted, tuple(common), models, differences, missing or {})


def _score(runs: Sequence[Run], names: Sequence[str]) -> Score:
    """Return the mean over runs of each run's mean over the tasks of these names."""
    values = np.array([np.mean([run.scores[name] for name in names]) for run in runs])
    mean, count = float(values.mean()), len(values)
    spread = float(values.std(ddof=1)) if count > 1 else None
    if spread is None or count < SEEDS_NEEDED:
        return Score(mean, spread)
    interval = Estimate(mean, spread / count**0.5, count - 1).interval(-np.inf, np.inf)
    return Score(mean, spread, (interval.low, interval.high))
