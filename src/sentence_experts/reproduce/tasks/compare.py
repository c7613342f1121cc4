"""Figures on tasks beside the published ones, each marked with what differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sentence_experts.reproduce.comparison import (
    NOT_RUN,
    OTHER_BASE,
    OTHER_DATA,
    OTHER_PROTOCOL,
    OTHER_SCALE,
    Comparison,
    changed_settings,
)
from sentence_experts.reproduce.tasks.plan import Model, Plan
from sentence_experts.reproduce.tasks.published import AVERAGE, Published, PublishedFigure, PublishedTable
from sentence_experts.reproduce.tasks.recipe import Recipe
from sentence_experts.reproduce.tasks.setting import Setting
from sentence_experts.reproduce.tasks.tables import LEGEND, Compared, tables_of
from sentence_experts.storage import read_json

# The paper's task -> the type that mteb measures it as.
TYPES = {
    "retrieval": "Retrieval",
    "classification": "Classification",
    "clustering": "Clustering",
    "reranking": "Reranking",
    "pair_classification": "PairClassification",
    "sts": "STS",
    "summarization": "Summarization",
}
PERCENT = 100


@dataclass(frozen=True)
class Measured:
    """The evaluation of a finished plan.

    Attributes:
        models: label -> its figures.
        datasets: type -> how many datasets were measured.
    """

    models: Mapping[str, Mapping[str, Any]]
    datasets: Mapping[str, int]

    @classmethod
    def of(cls, evaluation: Mapping[str, Any]) -> Measured:
        """From tasks.json."""
        kinds = [task["kind"] for task in evaluation["tasks"]]
        models = {model["label"]: model for model in evaluation["models"]}
        return cls(models, {kind: kinds.count(kind) for kind in kinds})

    def figure(self, label: str, task: str) -> Mapping[str, Any] | None:
        """A model's figure for a task; None where no dataset of it was measured."""
        found: Mapping[str, Any] | None = self.models[label]["types"].get(TYPES[task])
        return found


def compare(recipe: Recipe, setting: Setting, plan: Plan) -> Comparison:
    """Read the evaluation of a finished plan and set it beside the published figures.

    Raises:
        InputError: the evaluation is missing.
    """
    published = Published.read(recipe.protocol.published)
    measured = Measured.of(read_json(plan.evaluation))
    figures = [
        _compared(figure, published, recipe, setting, plan, measured)
        for figure in published.figures()
        if figure.table in recipe.tables
    ]
    return Comparison(
        title=recipe.title,
        paper=published.paper,
        scale=setting.scale,
        legend=LEGEND,
        figures=tuple(figures),
        tables=tuple(tables_of(figures)),
        differences=tuple(differences(recipe, setting, plan, measured)),
        choices=tuple(f"{each.what} ({each.kind}). Here: {each.here}" for each in recipe.protocol.choices),
        notes=published.notes,
    )


def _compared(
    figure: PublishedFigure,
    published: Published,
    recipe: Recipe,
    setting: Setting,
    plan: Plan,
    measured: Measured,
) -> Compared:
    table = published.table(figure.table)
    models = _models(plan, figure.table, figure.column)
    if not models:
        return Compared(figure, None, None, None, (NOT_RUN,))
    marks = _marks(models[0], recipe, setting)
    value, interval = _value(figure.task, models, table, published, measured)
    over = None
    if figure.gain and (others := _models(plan, figure.table, str(table.gains_over))):
        over, _ = _value(figure.task, others, table, published, measured)
    gain = value - over if value is not None and over is not None else None
    return Compared(figure, value, gain, interval, marks)


def _models(plan: Plan, table: str, column: str) -> list[Model]:
    """The models of a column: one, or one for each trained task."""
    return [model for model in plan.models if model.run.columns.get(table) == column]


Value = tuple[float | None, tuple[float, float] | None]


def _value(
    row: str, models: list[Model], table: PublishedTable, published: Published, measured: Measured
) -> Value:
    """In percent, with its interval over seeds; an average is over the datasets of the table's rows."""
    if row != AVERAGE:
        model = next(one for one in models if one.task in (None, published.tasks[row].read_as or row))
        found = measured.figure(model.label, row)
        if found is None:
            return None, None
        ends = found["interval"]
        return PERCENT * found["value"], (PERCENT * ends[0], PERCENT * ends[1]) if ends else None
    of_tasks = {
        task: _value(task, models, table, published, measured)[0] for task in table.rows if task != AVERAGE
    }
    counted = [
        (measured.datasets[TYPES[task]], value) for task, value in of_tasks.items() if value is not None
    ]
    if not counted:
        return None, None
    return sum(count * value for count, value in counted) / sum(count for count, _ in counted), None


def _marks(model: Model, recipe: Recipe, setting: Setting) -> tuple[str, ...]:
    marks = {
        OTHER_DATA: True,
        OTHER_BASE: model.base != model.published_base,
        OTHER_SCALE: setting.small,
        OTHER_PROTOCOL: not recipe.protocol.faithful,
    }
    return tuple(mark for mark, differs in marks.items() if differs)


def differences(recipe: Recipe, setting: Setting, plan: Plan, measured: Measured) -> Iterator[str]:
    """What differs from the published experiment, found by comparing the settings."""
    yield f"data: {setting.data}"
    yield from changed_settings(
        "tasks", recipe.compile_settings(False), recipe.compile_settings(setting.small)
    )
    bases = {f"{one.base} for {one.published_base}" for one in plan.models if one.base != one.published_base}
    if bases:
        yield f"base: {', '.join(sorted(bases))}"
    changed = {
        line
        for run in recipe.runs
        for line in changed_settings(
            "training", recipe.train_settings(run, False), recipe.train_settings(run, setting.small)
        )
    }
    yield from sorted(changed)
    tasks = Published.read(recipe.protocol.published).tasks
    counts = {task: measured.datasets.get(TYPES[task], 0) for task in tasks}
    listed = [f"{task} {count} for {tasks[task].datasets}" for task, count in counts.items()]
    yield f"datasets measured: {', '.join(listed)}"
