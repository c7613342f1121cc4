"""The report of an evaluation on tasks, in the shape of the papers' tables."""

from __future__ import annotations

from sentence_experts.evaluation.estimates import MIN_DATASETS
from sentence_experts.evaluation.mteb.results import Score, TaskEvaluation
from sentence_experts.report.content import Report, Table, Verdict
from sentence_experts.report.wording import (
    EQUIVALENT,
    SIGNIFICANT,
    describe_standing,
    model_advice,
    names_of_measured,
    p_value,
    points,
    single_runs,
)

METRICS = {
    "ndcg_at_10": "nDCG@10",
    "map_at_1000": "MAP",
    "max_over_subqueries_map_at_1000": "MAP",
    "accuracy": "accuracy",
    "v_measure": "V-measure",
    "max_ap": "AP",
    "cosine_spearman": "Spearman",
}


def tasks_report(evaluation: TaskEvaluation) -> Report:
    """Return the report: scores by type and by task, then the differences of the averages."""
    tables, models = [], evaluation.models
    if tasks := evaluation.tasks:
        metrics = {task.name: METRICS.get(task.metric, task.metric) for task in tasks}
        rows = []
        for kind, count in evaluation.types.items():
            named = dict.fromkeys(metrics[task.name] for task in tasks if task.kind == kind)
            scores = [format_percent(model.types[kind]) for model in models]
            rows.append([f"{kind} ({count})", ", ".join(named), *scores])
        average = [format_percent(model.average) for model in models]
        rows.append([f"Average over datasets ({len(tasks)})", "", *average])
        by_task = [
            [name, metric, *(format_percent(model.tasks[name]) for model in models)]
            for name, metric in metrics.items()
        ]
        labels = [
            f"{model.label} ({len(model.runs)} seeds)" if len(model.runs) > 1 else model.label
            for model in models
        ]
        title = "By type of task: mean over its datasets"
        tables = [
            Table(title, ("Type", "Metric", *labels), rows, fold=True),
            Table("By task", ("Task", "Metric", *labels), by_task, fold=True),
        ]
    notes = [*difference_lines(evaluation), *_notes(evaluation)]
    return Report("Evaluation on tasks", tasks_verdict(evaluation), tables, notes=notes)


def format_percent(score: Score) -> str:
    """Return percent, as in the papers: `47.52`, with `±0.31 46.80 to 48.20` over seeds below it."""
    below = [] if score.spread is None else [f"±{100 * score.spread:.2f}"]
    if score.interval is not None:
        below.append("{:.2f} to {:.2f}".format(*(100 * end for end in score.interval)))
    return "\n".join(filter(None, [f"{100 * score.value:.2f}", " ".join(below)]))


def difference_lines(evaluation: TaskEvaluation) -> list[str]:
    """Return `a - b: +0.41 (+0.12 to +0.71), p=.003*` for each difference, in percentage points."""
    lines = []
    for each in evaluation.differences:
        ends = ""
        if each.interval is not None:
            ends = f" ({points(each.interval.low)} to {points(each.interval.high)}), {p_value(each.p_holm)}"
        lines.append(
            f"{each.first} - {each.second}: {points(each.value or 0.0)}{ends}"
            + f" {EQUIVALENT}" * each.equivalent
        )
    return lines


def _notes(evaluation: TaskEvaluation) -> list[str]:
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
            f"Holm, * below {SIGNIFICANT}; {EQUIVALENT}: equivalent within "
            f"{100 * evaluation.settings['margin']:g} points."
        )
    if evaluation.missing:
        lines.append(f"Not measured, and not part of any average: {', '.join(evaluation.missing)}.")
    return lines


def tasks_verdict(evaluation: TaskEvaluation) -> Verdict:
    """Judge by the average over all datasets."""
    values = {model.label: model.average.value for model in evaluation.models}
    data = evaluation.settings.get("tasks") or ", ".join(evaluation.settings.get("mteb", [])) or "tasks"
    if not values:
        advice = ["Give the command again when the tasks' data can be loaded."]
        return Verdict(f"No task of {data} was measured.", (), advice)
    kinds = ", ".join(f"{kind} {count}" for kind, count in evaluation.types.items())
    order = sorted(values, key=lambda label: -values[label])
    trained = {model.label: len(model.runs) for model in evaluation.models if model.trained}
    margin = f"{100 * evaluation.settings['margin']:g} points"
    findings = [
        f"Average over datasets: {'; '.join(f'{label} {100 * values[label]:.2f}' for label in order)}.",
        *describe_standing(order, evaluation.differences, points, margin),
        *single_runs(trained, len(values)),
    ]
    baselines = [model.label for model in evaluation.models if not model.trained]
    advice = model_advice(order, trained, len(values), baselines, "minilm")
    if evaluation.missing:
        advice.append(
            f"Give the command again for the {len(evaluation.missing)} tasks whose data was not there."
        )
    compared = f"{names_of_measured(values)} on {len(evaluation.tasks)} tasks ({kinds}; {data})."
    return Verdict(compared, findings, advice)
