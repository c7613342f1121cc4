"""Evaluation results as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from sentence_experts.evaluation.results import (
    PAIR_WEIGHTED_MEAN,
    POOLED,
    SEEDS_NEEDED,
    VIEWS,
    ModelResult,
    PairEvaluation,
    PairMetrics,
    View,
    view_of_domain,
)
from sentence_experts.evaluation.statistics import Interval

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
# (view, metric) -> heading of the table of differences.
DIFFERENCES = {
    (POOLED, "f1_max"): "F1max, pooled",
    (POOLED, "roc_auc"): "ROC-AUC, pooled",
    (PAIR_WEIGHTED_MEAN, "f1_max"): "F1max, mean",
    (PAIR_WEIGHTED_MEAN, "roc_auc"): "ROC-AUC, mean",
}
SIGNIFICANT = 0.05
EQUIVALENT = " ≈"
MAX_ROWS = 15  # of differences: all pairs of six models


def views(evaluation: PairEvaluation) -> Iterator[tuple[View, str, dict[str, PairMetrics]]]:
    """(key, title, model label -> metrics) of each table: pooled, mean of the domains, each domain."""
    for key in (POOLED, PAIR_WEIGHTED_MEAN):
        yield key, VIEWS[key], {model.label: model.views[key] for model in evaluation.models}
    for domain in evaluation.models[0].domains:
        yield (
            view_of_domain(domain),
            f"Domain: {domain}",
            {model.label: model.domains[domain] for model in evaluation.models},
        )


def number(value: float | None, form: str = ".3f") -> str:
    """Three decimals or another form, or a dash if the value is undefined."""
    return UNDEFINED if value is None else format(value, form)


def change(before: float | None, after: float | None, form: str = "+.4f") -> str:
    """`+0.0123`, or a dash if one of the two is undefined."""
    return number(None if before is None or after is None else after - before, form)


def bounds(interval: Interval | None) -> str:
    """`.790-.835`, or nothing without an interval."""
    ends = (interval.low, interval.high) if interval else ()
    return "-".join(f"{end:.3f}".removeprefix("0") for end in ends)


def spread(deviation: float | None) -> str:
    """`±.004`, or nothing for a single run."""
    return "" if deviation is None else f"±{deviation:.3f}".replace("±0.", "±.")


def lines(figures: PairMetrics, name: str) -> list[str]:
    """The value of a metric, and below it its interval and its standard deviation over seeds, if any."""
    below = (bounds(figures.intervals.get(name)), spread(figures.spread.get(name)))
    return [number(figures.metrics[name]), *filter(None, below)]


def evaluation_tables(evaluation: PairEvaluation) -> Iterator[Table]:
    """One table per view, narrow enough for 80 columns."""
    for _, title, rows in views(evaluation):
        first = next(iter(rows.values()))
        runs = {model.label: f"\n{model.seeds} seeds" for model in evaluation.models if model.seeds > 1}
        cells = {
            label + runs.get(label, ""): ["\n".join(lines(figures, name)) for name in COLUMNS]
            for label, figures in rows.items()
        }
        yield terminal_table(f"{title} ({counted(first)})", "Model", list(COLUMNS.values()), cells)


def difference_rows(evaluation: PairEvaluation) -> Iterator[tuple[str, str, list[list[str]]]]:
    """(model, other model, a cell per column of `DIFFERENCES`): value, interval, p-value and equivalence."""
    gaps = {(each.first, each.second, each.view, each.metric): each for each in evaluation.differences}
    tests = {(test.first, test.second, test.view): test for test in evaluation.tests}
    for first, second in dict.fromkeys((each.first, each.second) for each in evaluation.differences):
        cells = []
        for view, metric in DIFFERENCES:
            gap = gaps[first, second, view, metric]
            test = tests.get((first, second, view)) if metric == "roc_auc" else None
            below = (
                signed_bounds(gap.interval),
                p_value(gap.p_holm) + EQUIVALENT * gap.equivalent,
                f"rank {p_value(test.p_holm)}" if test else "",
            )
            cells.append([number(gap.value, "+.3f"), *filter(None, below)])
        yield first, second, cells


def sampled(evaluation: PairEvaluation) -> str:
    """What the intervals allow for."""
    return f"papers{', articles' * (evaluation.settings.get('cluster') == 'article')} and seeds"


def meaning_of_differences(evaluation: PairEvaluation) -> str:
    """What the figures of `difference_rows` are, in one line."""
    rank = "; rank: signed-rank test of two fixed models, without seeds" if evaluation.tests else ""
    return (
        f"paired, 95% intervals over {sampled(evaluation)}; p: of the interval, Holm, * below {SIGNIFICANT};"
        f"{EQUIVALENT}: equivalent within {evaluation.settings['margin']:g}{rank}"
    )


def difference_table(evaluation: PairEvaluation) -> Table | None:
    """Each model minus each later one; with many models, the first model only. None for a single model."""
    if not evaluation.differences:
        return None
    rows = list(difference_rows(evaluation))
    title = f"Differences ({meaning_of_differences(evaluation)})"
    if len(rows) > MAX_ROWS:
        rows = [row for row in rows if row[0] == evaluation.models[0].label]
        title += "; first model only, the others are in the report"
    shown = {f"{first}\n- {second}": ["\n".join(cell) for cell in cells] for first, second, cells in rows}
    return terminal_table(title, "Model - model", list(DIFFERENCES.values()), shown)


TEXT_FREE = "Without comparing texts"
MEANING_OF_TEXT_FREE = (
    "all domains pooled; what models have above this comes from the texts. A ROC-AUC below 0.5 means the "
    "reverse order"
)


def text_free_rows(text_free: Sequence[ModelResult]) -> dict[str, list[str]]:
    """A row per figure: F1max and ROC-AUC over all pairs, and the F1 of calling every pair linked."""
    rows = {
        model.label: ["\n".join(lines(model.pooled, name)) for name in ("f1_max", "roc_auc")]
        for model in text_free
    }
    floor = text_free[0].pooled.f1_of_all_linked
    return {**rows, "everything is linked": [number(floor), number(0.5)]}


def text_free_table(text_free: Sequence[ModelResult]) -> Table:
    """What separates the classes without comparing texts."""
    title = f"{TEXT_FREE} ({MEANING_OF_TEXT_FREE})"
    return terminal_table(title, "By", ("F1max", "ROC-AUC"), text_free_rows(text_free))


def router_rows(evaluation: PairEvaluation) -> dict[str, list[str]]:
    """Shares of texts sent to the right expert: all, by domain, by block; a cell per run."""
    routers = list(evaluation.routers.values())
    domains = dict.fromkeys(domain for each in routers for domain in each.by_domain)
    blocks = sorted({block for each in routers for block in each.by_block})
    rows = {"all": [number(each.mean) for each in routers]}
    rows |= {f"domain {name}": [number(each.by_domain.get(name)) for each in routers] for name in domains}
    return rows | {f"block {name}": [number(each.by_block.get(name)) for each in routers] for name in blocks}


def router_table(evaluation: PairEvaluation) -> Table | None:
    """How often learned routers chose the expert of a text's domain; None if no model has any."""
    if not evaluation.routers:
        return None
    texts = max(each.texts for each in evaluation.routers.values())
    title = f"Learned routers: share of {texts:,} texts sent to their domain's expert"
    return terminal_table(title, "Mean over blocks of", list(evaluation.routers), router_rows(evaluation))


def seeds_note(evaluation: PairEvaluation) -> str | None:
    """A warning about too few seeds; None if all trained models have enough, or there is a single model."""
    few = [model.label for model in evaluation.models if model.trained and model.seeds < SEEDS_NEEDED]
    if not few or not evaluation.differences:
        return None
    return (
        f"Fewer than {SEEDS_NEEDED} seeds: {', '.join(few)}. Differences from these models are those of "
        "these runs; they do not support a claim that one way of training is better than another."
    )


def p_value(value: float | None) -> str:
    """`p=.031*`, or nothing without a value; the star marks values below 0.05."""
    if value is None:
        return ""
    shown = f"p={value:.3f}".replace("=0.", "=.") if value >= 0.0005 else "p<.001"
    return shown + ("*" if value < SIGNIFICANT else "")


def p_text(value: float | None) -> str:
    """A p-value in few characters."""
    if value is None:
        return UNDEFINED
    return "<.001" if value < 0.001 else f"{value:.3f}".replace("0.", ".", 1)


def terminal_table(
    title: str,
    corner: str,
    headings: Iterable[str],
    rows: Mapping[str, Sequence[str]] | None = None,
    fold: bool = False,
) -> Table:
    """A table without frame: a column of names to the left, columns of numbers to the right.

    `corner` is the heading of the names; `rows`, name -> cells, may be added later. With `fold`, columns of
    numbers may be folded.
    """
    table = Table(
        title=Text(f"\n{title}", style="bold"), title_justify="left", box=None, padding=(0, 1, 0, 0)
    )
    table.add_column(corner, overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=not fold, overflow="fold" if fold else "ellipsis")
    for name, cells in (rows or {}).items():
        table.add_row(Text(name), *cells)
    return table


def signed_bounds(interval: Interval | None) -> str:
    """`-0.004 to +0.021`, or nothing without an interval."""
    return f"{interval.low:+.3f} to {interval.high:+.3f}" if interval else ""


def counted(figures: PairMetrics) -> str:
    """`1,200 pairs, 600 of them linked`."""
    return f"{figures.pairs:,} pairs, {figures.positives:,} of them linked"
