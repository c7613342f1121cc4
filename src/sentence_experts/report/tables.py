"""Evaluation results as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from sentence_experts.evaluation.results import PAIR_WEIGHTED_MEAN, POOLED, VIEWS, Evaluation, Figures
from sentence_experts.evaluation.statistics import Interval

# metric -> heading; those that have an interval show it below.
COLUMNS = {
    "f1_max": "F1max",
    "precision": "Prec.",
    "recall": "Recall",
    "threshold": "Thresh.",
    "roc_auc": "ROC-AUC",
    "ratio": "Ratio",
    "mean_distance": "Dist.",
    "accuracy": "Acc.",
}
UNDEFINED = "–"
# (view, metric) -> heading of the table of differences.
DIFFERENCES = {
    (POOLED, "f1_max"): "F1max, pooled",
    (POOLED, "roc_auc"): "ROC-AUC, pooled",
    (PAIR_WEIGHTED_MEAN, "f1_max"): "F1max, mean",
    (PAIR_WEIGHTED_MEAN, "roc_auc"): "ROC-AUC, mean",
}


def views(found: Evaluation) -> Iterator[tuple[str, str, dict[str, Figures]]]:
    """(key, title, model label -> figures) of each table: pooled, mean of the domains, each domain."""
    for key in (POOLED, PAIR_WEIGHTED_MEAN):
        yield key, VIEWS[key], {model.label: model.view(key) for model in found.models}
    for domain in found.models[0].domains:
        yield domain, f"Domain: {domain}", {model.label: model.domains[domain] for model in found.models}


def number(value: float | None) -> str:
    """Three decimals, or a dash where the figure is undefined."""
    return UNDEFINED if value is None else f"{value:.3f}"


def bounds(interval: Interval | None) -> str:
    """`.790-.835`, or nothing where there is no interval."""
    ends = (interval.low, interval.high) if interval else ()
    return "-".join(f"{end:.3f}".removeprefix("0") for end in ends)


def cells(figures: Figures) -> list[str]:
    """One row's figures in the order of `COLUMNS`, each with its interval on a second line."""
    return [
        f"{number(figures.metrics[name])}\n{bounds(figures.intervals.get(name))}".rstrip() for name in COLUMNS
    ]


def evaluation_tables(found: Evaluation) -> Iterator[Table]:
    """One rich table a view, narrow enough for 80 columns."""
    for _, title, rows in views(found):
        first = next(iter(rows.values()))
        lines = {label: cells(figures) for label, figures in rows.items()}
        yield _table(f"{title} ({counted(first)})", "Model", list(COLUMNS.values()), lines)


def difference_rows(found: Evaluation) -> Iterator[tuple[str, list[str]]]:
    """(other model, one cell a column of `DIFFERENCES`), each cell with its interval on a second line."""
    for label in dict.fromkeys(difference.second for difference in found.differences):
        cells = {(each.view, each.metric): each for each in found.differences if each.second == label}
        yield (
            label,
            [
                f"{signed(cells[key].value)}\n{signed_bounds(cells[key].interval)}".rstrip()
                for key in DIFFERENCES
            ],
        )


def difference_table(found: Evaluation) -> Table | None:
    """How much the first model is above each other one; None where there is nothing to compare."""
    if not found.differences:
        return None
    title = f"{found.models[0].label} minus each other model (paired, 95% intervals)"
    return _table(title, "Minus", list(DIFFERENCES.values()), dict(difference_rows(found)))


def _table(title: str, corner: str, headings: list[str], rows: dict[str, list[str]]) -> Table:
    table = Table(
        title=Text(f"\n{title}", style="bold"), title_justify="left", box=None, padding=(0, 1, 0, 0)
    )
    table.add_column(corner, overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for label, row in rows.items():
        table.add_row(Text(label), *row)
    return table


def signed(value: float | None) -> str:
    """`+0.012`, or a dash where the difference is undefined."""
    return UNDEFINED if value is None else f"{value:+.3f}"


def signed_bounds(interval: Interval | None) -> str:
    """`-0.004 to +0.021`, or nothing where there is no interval."""
    return f"{interval.low:+.3f} to {interval.high:+.3f}" if interval else ""


def counted(figures: Figures) -> str:
    """`1,200 pairs, 600 of them linked`."""
    return f"{figures.pairs:,} pairs, {figures.positives:,} of them linked"
