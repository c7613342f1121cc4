"""Scores on tasks as tables: for the terminal, and as Markdown in the shape of the papers' tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from sentence_experts.evaluation.mteb.results import Bounds, Score, TaskEvaluation
from sentence_experts.evaluation.statistics import MIN_DATASETS
from sentence_experts.report.tables import EQUIVALENT, SIGNIFICANT, p_value, terminal_table
from sentence_experts.report.verdict import of_tasks

METRICS = {
    "ndcg_at_10": "nDCG@10",
    "map_at_1000": "MAP",
    "max_over_subqueries_map_at_1000": "MAP",
    "accuracy": "accuracy",
    "v_measure": "V-measure",
    "max_ap": "AP",
    "cosine_spearman": "Spearman",
}
AVERAGE = "Average over datasets"

Row = tuple[str, str, list[str]]  # name, metric, a cell per model


def shown(score: Score) -> str:
    """In percent, as in the papers: `47.52`, with `±0.31` over seeds and the interval `46.80 to 48.20`."""
    cells = [f"{100 * score.value:.2f}"]
    if score.spread is not None:
        cells.append(f"±{100 * score.spread:.2f}")
    if score.interval is not None:
        cells.append(ends(score.interval))
    return " ".join(cells)


def ends(bounds: Bounds) -> str:
    """`46.80 to 48.20`, in percent."""
    return f"{100 * bounds[0]:.2f} to {100 * bounds[1]:.2f}"


def type_rows(evaluation: TaskEvaluation) -> list[Row]:
    """A row per type, and the average over all datasets."""
    rows = []
    for kind, count in evaluation.types.items():
        metrics = dict.fromkeys(
            METRICS.get(task.metric, task.metric) for task in evaluation.tasks if task.kind == kind
        )
        cells = [shown(model.types[kind]) for model in evaluation.models]
        rows.append((f"{kind} ({count})", ", ".join(metrics), cells))
    rows.append(
        (f"{AVERAGE} ({len(evaluation.tasks)})", "", [shown(model.average) for model in evaluation.models])
    )
    return rows


def task_rows(evaluation: TaskEvaluation) -> list[Row]:
    """A row per task."""
    return [
        (
            task.name,
            METRICS.get(task.metric, task.metric),
            [shown(model.tasks[task.name]) for model in evaluation.models],
        )
        for task in evaluation.tasks
    ]


def headings(evaluation: TaskEvaluation) -> list[str]:
    """The labels of the models, with the number of seeds if there are several."""
    return [
        f"{model.label} ({len(model.runs)} seeds)" if len(model.runs) > 1 else model.label
        for model in evaluation.models
    ]


def difference_lines(evaluation: TaskEvaluation) -> list[str]:
    """`a - b: +0.41 (+0.12 to +0.71), p=.003*`: differences of the averages, in percentage points."""
    lines = []
    for each in evaluation.differences:
        gap, ends = 100 * (each.value or 0.0), ""
        if each.interval is not None:
            low, high = 100 * each.interval.low, 100 * each.interval.high
            ends = f" ({low:+.2f} to {high:+.2f}), {p_value(each.p_holm)}" + EQUIVALENT * each.equivalent
        lines.append(f"{each.first} - {each.second}: {gap:+.2f}{ends}")
    return lines


def notes(evaluation: TaskEvaluation) -> list[str]:
    """What the scores mean and what is missing."""
    lines = ["Scores are mteb's main scores, times 100."]
    if any(len(model.runs) > 1 for model in evaluation.models):
        lines.append(
            "Several seeds: the mean over runs, ± their standard deviation, and with three runs or more a "
            "95% interval over seeds (Student's t)."
        )
    if any(each.interval for each in evaluation.differences):
        resampled = len(evaluation.tasks) >= MIN_DATASETS
        over = "the choice of datasets, and seeds" if resampled else "the seeds, for these datasets alone"
        lines.append(
            f"Differences: 95% intervals, which cover {over} where a model has several; p: of the interval, "
            f"Holm, * below {SIGNIFICANT};{EQUIVALENT}: equivalent within "
            f"{100 * evaluation.settings['margin']:g} points."
        )
    if evaluation.missing:
        lines.append(f"Not measured, and not part of any average: {', '.join(evaluation.missing)}.")
    return lines


def task_tables(evaluation: TaskEvaluation) -> Iterator[Table]:
    """Tables for the terminal: by type, and by task."""
    if evaluation.tasks:
        yield _table("By type of task: mean over its datasets", "Type", evaluation, type_rows(evaluation))
        yield _table("By task", "Task", evaluation, task_rows(evaluation))


def markdown(evaluation: TaskEvaluation) -> str:
    """The whole result as a Markdown page."""
    parts = ["# Evaluation on tasks", "## Verdict", *of_tasks(evaluation).lines()]
    if evaluation.tasks:
        parts += ["## By type", _markdown_table("Type", evaluation, type_rows(evaluation))]
        parts += ["## By task", _markdown_table("Task", evaluation, task_rows(evaluation))]
    if evaluation.differences:
        listed = "\n".join(f"- {line}" for line in difference_lines(evaluation))
        parts += ["## Differences of the averages", listed]
    return "\n\n".join([*parts, *notes(evaluation)]) + "\n"


def _table(title: str, corner: str, evaluation: TaskEvaluation, rows: Sequence[Row]) -> Table:
    cells = {name: [metric, *(c.replace(" ", "\n", 1) for c in scores)] for name, metric, scores in rows}
    return terminal_table(title, corner, ["Metric", *headings(evaluation)], cells, fold=True)


def _markdown_table(corner: str, evaluation: TaskEvaluation, rows: Sequence[Row]) -> str:
    lines = [[corner, "Metric", *headings(evaluation)]]
    lines += [[name, metric, *cells] for name, metric, cells in rows]
    escaped = ["| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines]
    rule = "|---|---|" + "---:|" * len(evaluation.models)
    return "\n".join([escaped[0], rule, *escaped[1:]])
