"""What models score on tasks: by task, averaged by type and over all datasets, joined over seeds.

Averages are as in MoTE (tables 2-7): a type's is the mean over its datasets, the whole's the mean over all
datasets (not over the types). Only tasks that every run was measured on count, so that averages compare.

A model of several runs has the mean over them, of averages too; with three runs or more, Student's t gives a
95% interval for what another seed would do to that mean. Between two models, a bootstrap that draws datasets
gives a 95% interval of the difference of their averages: how far it depends on which datasets were taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t

from sentence_experts.evaluation.results import SEEDS_NEEDED, Evaluation, table_text
from sentence_experts.storage import write_json

# The order of the papers' tables; other types follow.
TYPES = (
    "Retrieval",
    "Classification",
    "Clustering",
    "Reranking",
    "PairClassification",
    "STS",
    "Summarization",
)
DATASETS_NEEDED = 5  # fewer say nothing of other datasets
LEVEL = 0.95

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Task:
    """A task that was measured: mteb's type, its main figure's name, and the data's revision."""

    name: str
    kind: str
    metric: str
    revision: str


@dataclass(frozen=True)
class Run:
    """One run of one model: task name -> main figure (0 to 1, or a correlation). `settings` names the run."""

    label: str
    model: str
    settings: Mapping[str, Any]
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Figure:
    """A mean over a model's runs.

    Attributes:
        value: the mean.
        spread: the runs' standard deviation; None for one run.
        interval: 95%, over seeds; None for fewer than three runs.
    """

    value: float
    spread: float | None = None
    interval: Bounds | None = None


@dataclass(frozen=True)
class ModelScores:
    """One model's figures: each task's, each type's average, the average over all datasets."""

    label: str
    tasks: Mapping[str, Figure]
    types: Mapping[str, Figure]
    average: Figure
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Gap:
    """How much the average of `first` is above that of `second`; 95% interval over datasets, if enough."""

    first: str
    second: str
    value: float
    interval: Bounds | None


@dataclass(frozen=True, repr=False)
class TaskEvaluation(Evaluation):
    """Several models on the same tasks.

    Attributes:
        settings: what one needs to repeat it.
        tasks: those that every run was measured on, by type.
        models: in the order they were given.
        gaps: of the averages of each model and each later one.
        missing: name of each task that some run lacks -> why.
    """

    settings: Mapping[str, Any]
    tasks: tuple[Task, ...]
    models: tuple[ModelScores, ...]
    gaps: tuple[Gap, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def types(self) -> dict[str, int]:
        """Type -> how many tasks."""
        kinds = [task.kind for task in self.tasks]
        return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready for `storage.write_json`."""
        return {
            "settings": dict(self.settings),
            "tasks": [asdict(task) for task in self.tasks],
            "models": [asdict(model) for model in self.models],
            "gaps": [asdict(gap) for gap in self.gaps],
            "missing": dict(self.missing),
        }

    def rows(self) -> list[dict[str, Any]]:
        """A row per model and task: its score, and the spread and interval over seeds if there are any."""
        return [
            {"model": model.label, "task": task.name, "type": task.kind, "metric": task.metric}
            | {"score": score.value, "spread": score.spread}
            | dict(zip(("low", "high"), score.interval or (None, None), strict=True))
            for model in self.models
            for task in self.tasks
            for score in (model.tasks[task.name],)
        ]

    def __repr__(self) -> str:
        """The average over the tasks of each model."""
        rows = [(model.label, f"{100 * model.average.value:.2f}") for model in self.models]
        title = f"TaskEvaluation of {len(self.tasks)} tasks"
        return table_text(title, ("model", "average"), rows)

    def save(self, out: Path) -> None:
        """Write `tasks.json` to a folder."""
        write_json(out / "tasks.json", self.to_json())


def joined(
    tasks: Sequence[Task],
    runs: Sequence[Run],
    settings: Mapping[str, Any] | None = None,
    missing: Mapping[str, str] | None = None,
    replicates: int = 1000,
    seed: int = 0,
) -> TaskEvaluation:
    """The figures of all runs, joined by model.

    Args:
        tasks: all that were to be measured.
        runs: each with the scores that it has.
        settings: noted in the result.
        missing: task name -> why it was not measured.
        replicates: of the bootstrap over datasets; 0 for none.
        seed: of the bootstrap.
    """
    common = [task for task in tasks if all(task.name in run.scores for run in runs)]
    common.sort(key=lambda task: (_place(task.kind), task.kind, task.name))
    members: dict[str, list[Run]] = {}
    for run in runs:
        members.setdefault(run.model, []).append(run)
    models = tuple(_model(label, each, common) for label, each in members.items()) if common else ()
    gaps = tuple(_gap(a, b, replicates, seed) for a, b in combinations(models, 2))
    return TaskEvaluation(settings or {}, tuple(common), models, gaps, missing or {})


def _place(kind: str) -> int:
    return TYPES.index(kind) if kind in TYPES else len(TYPES)


def _model(label: str, runs: Sequence[Run], tasks: Sequence[Task]) -> ModelScores:
    kinds = dict.fromkeys(task.kind for task in tasks)
    return ModelScores(
        label,
        {task.name: _figure(runs, [task.name]) for task in tasks},
        {kind: _figure(runs, [task.name for task in tasks if task.kind == kind]) for kind in kinds},
        _figure(runs, [task.name for task in tasks]),
        tuple(runs),
    )


def _figure(runs: Sequence[Run], names: Sequence[str]) -> Figure:
    """The mean over runs of each run's mean over the tasks of these names."""
    values = np.array([np.mean([run.scores[name] for name in names]) for run in runs])
    mean, count = float(values.mean()), len(values)
    if count == 1:
        return Figure(mean)
    spread = float(values.std(ddof=1))
    if count < SEEDS_NEEDED:
        return Figure(mean, spread)
    half = float(t.isf((1 - LEVEL) / 2, count - 1)) * spread / count**0.5
    return Figure(mean, spread, (mean - half, mean + half))


def _gap(first: ModelScores, second: ModelScores, replicates: int, seed: int) -> Gap:
    by_task = np.array([first.tasks[name].value - second.tasks[name].value for name in first.tasks])
    bounds = None
    if replicates and len(by_task) >= DATASETS_NEEDED:
        drawn = np.random.default_rng(seed).integers(len(by_task), size=(replicates, len(by_task)))
        low, high = np.quantile(by_task[drawn].mean(axis=1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        bounds = (float(low), float(high))
    return Gap(first.label, second.label, float(by_task.mean()), bounds)
