"""Numbers as they are written in reports, and tables on a terminal."""

from __future__ import annotations

from rich import table as rich_table
from rich.text import Text

from sentence_experts.evaluation.results import PairMetrics
from sentence_experts.evaluation.statistics import Interval
from sentence_experts.report.content import Table
from sentence_experts.report.verdict import SIGNIFICANT

# metric -> heading; intervals and standard deviations over seeds are shown below a value.
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
EQUIVALENT = "≈"


def number(value: float | None, form: str = ".3f") -> str:
    """Return three decimals or another form, or a dash if the value is undefined."""
    return UNDEFINED if value is None else format(value, form)


def bounds(interval: Interval | None) -> str:
    """Return `.790-.835`, or nothing without an interval."""
    ends = (interval.low, interval.high) if interval else ()
    return "-".join(f"{end:.3f}".removeprefix("0") for end in ends)


def metric_cell(figures: PairMetrics, name: str) -> str:
    """Return the value of a metric, and below it its interval and its deviation over seeds, if any."""
    deviation = figures.spread.get(name)
    spread = "" if deviation is None else f"±{deviation:.3f}".replace("±0.", "±.")
    below = filter(None, (bounds(figures.intervals.get(name)), spread))
    return "\n".join([number(figures.metrics[name]), *below])


def p_value(value: float | None) -> str:
    """Return `p=.031*`, or nothing without a value; the star marks values below 0.05."""
    if value is None:
        return ""
    shown = f"p={value:.3f}".replace("=0.", "=.") if value >= 0.0005 else "p<.001"
    return shown + ("*" if value < SIGNIFICANT else "")


def for_terminal(table: Table) -> rich_table.Table:
    """Return a table without frame: a column of names to the left, columns of numbers to the right."""
    title = Text(f"\n{table.title}", style="bold")
    shown = rich_table.Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    corner, *headings = table.headings
    shown.add_column(corner, overflow="fold")
    for heading in headings:
        shown.add_column(
            heading, justify="right", no_wrap=not table.fold, overflow="fold" if table.fold else "ellipsis"
        )
    for row in table.rows:
        shown.add_row(*map(Text, row))
    return shown
