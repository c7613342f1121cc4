"""Models on labelled pairs: metrics by domain, pooled, and as the mean of the domains; how models compare.

The runs of a model that was trained with several seeds are measured as one: a gap between two single runs may
come from their seeds alone. Metrics are then means over runs, shown with their standard deviation, and
intervals cover the papers and the seeds (`evaluation.statistics`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sentence_experts.errors import UsageError
from sentence_experts.evaluation.differences import compared
from sentence_experts.evaluation.metrics import METRIC_NAMES, class_means, pair_metrics, pair_weighted_mean
from sentence_experts.evaluation.pairs import (
    KEPT_COLUMNS,
    LINKED_BY,
    PairScorer,
    checked_table,
    score_pairs,
    scored_by_domain,
)
from sentence_experts.evaluation.results import (
    PAIR_WEIGHTED_MEAN,
    POOLED,
    Difference,
    ModelResult,
    PairEvaluation,
    PairMetrics,
    View,
    score_column,
    view_of_domain,
)
from sentence_experts.evaluation.statistics import (
    METRICS_WITH_INTERVAL,
    Interval,
    Runs,
    estimate,
    joined,
    runs_of,
)
from sentence_experts.evaluation.text_free import text_free_scorers
from sentence_experts.evaluation.wilcoxon import Areas, areas_by_view, rank_tests
from sentence_experts.progress import announced


@dataclass(frozen=True)
class Measured:
    """The metrics of one model in each view (`results.View`).

    Attributes:
        figures: view -> metrics, with intervals.
        runs: view -> metric -> the model's runs, whose difference from another model's on the same pairs can
            be estimated. Empty without a bootstrap.
    """

    figures: Mapping[View, PairMetrics]
    runs: Mapping[View, Mapping[str, Runs]] = field(default_factory=dict)

    def by_domain(self) -> dict[str, PairMetrics]:
        """Domain -> metrics."""
        return {view.domain: metrics for view, metrics in self.figures.items() if view.domain is not None}


def measure(
    table: pa.Table,
    scores: NDArray[np.float64],
    replicates: int = 1000,
    seed: int = 0,
    threshold_min: float | None = None,
    by_article: bool = False,
) -> Measured:
    """Metrics of the scored pairs of a checked table; `replicates` 0 leaves out the intervals.

    With `by_article` the intervals allow for pairs that are linked by the same article.
    """
    sets = scored_by_domain(table, scores, by_article)
    domains = {
        domain: metrics_of(pairs.scores, pairs.labels, threshold_min) for domain, pairs in sets.items()
    }
    everything = joined(list(sets.values()))
    pooled = metrics_of(everything.scores, everything.labels, threshold_min)
    counts = {domain: of_domain.pairs for domain, of_domain in domains.items()}
    means = pair_weighted_mean({domain: of_domain.metrics for domain, of_domain in domains.items()}, counts)
    mean = PairMetrics(pooled.pairs, pooled.positives, means)
    views = {POOLED: pooled, PAIR_WEIGHTED_MEAN: mean}
    views |= {view_of_domain(domain): of_domain for domain, of_domain in domains.items()}
    if replicates == 0:
        return Measured(views)
    with announced("estimating intervals"):
        by_domain, of_pooled, of_mean = runs_of(sets, replicates, seed, threshold_min)
    runs = {POOLED: of_pooled, PAIR_WEIGHTED_MEAN: of_mean}
    runs |= {view_of_domain(domain): of_domain for domain, of_domain in by_domain.items()}
    return Measured({view: with_intervals(each, runs[view]) for view, each in views.items()}, runs)


def metrics_of(
    scores: NDArray[np.float64], labels: NDArray[np.int64], threshold_min: float | None = None
) -> PairMetrics:
    """The metrics of one set of pairs, without intervals."""
    metrics = pair_metrics(scores, labels, threshold_min) | class_means(scores, labels)
    return PairMetrics(len(labels), int(labels.sum()), metrics)


def with_intervals(metrics: PairMetrics, runs: Mapping[str, Runs]) -> PairMetrics:
    """The metrics with the intervals of those that have one.

    On few pairs F1max may be too high by more than half of its interval, which is then widened up to it.
    """
    intervals: dict[str, Interval | None] = {}
    for name, each in runs.items():
        value, estimated = metrics.metrics[name], estimate(each)
        bounds = None if estimated is None else estimated.interval(0.0)
        if bounds is not None and value is not None:
            bounds = Interval(min(bounds.low, value), max(bounds.high, value))
        intervals[name] = bounds
    return replace(metrics, intervals=intervals)


def mean_over_runs(runs: Sequence[Measured]) -> Measured:
    """The mean of several runs measured on the same pairs; a single run stays as it is."""
    if len(runs) == 1:
        return runs[0]
    means, joint = {}, {}
    for view in runs[0].figures:
        means[view] = _mean_metrics([run.figures[view] for run in runs])
        if runs[0].runs:
            joint[view] = {
                name: Runs.joined([run.runs[view][name] for run in runs]) for name in METRICS_WITH_INTERVAL
            }
            means[view] = with_intervals(means[view], joint[view])
    return Measured(means, joint)


def _mean_metrics(runs: Sequence[PairMetrics]) -> PairMetrics:
    means: dict[str, float | None] = {}
    spread: dict[str, float | None] = {}
    for name in runs[0].metrics:
        values = [value for run in runs if (value := run.metrics[name]) is not None]
        if len(values) < len(runs):
            values = []  # undefined for a run
        means[name] = float(np.mean(values)) if values else None
        spread[name] = float(np.std(values, ddof=1)) if values else None
    return PairMetrics(runs[0].pairs, runs[0].positives, means, spread=spread)


@dataclass(frozen=True)
class _Run:
    label: str
    settings: Mapping[str, Any]
    measured: Measured
    areas: Mapping[View, Areas]


def evaluate_scorers(
    models: Mapping[str, Sequence[PairScorer]],
    table: pa.Table,
    *,
    bootstrap: int = 1000,
    seed: int = 0,
    threshold_min: float | None = None,
    margin: float = 0.01,
    cluster: str = "paper",
    settings: Mapping[str, Any] | None = None,
    baseline: Collection[str] = (),
) -> PairEvaluation:
    """Score the pairs with every model, measure, and compare each model with each other.

    A model that is the same as an earlier one is not encoded and compared again: `same_model` in the settings
    names both.

    Args:
        models: label -> the model's runs; several are measured as one model.
        table: the pairs, columns as in `pairs.PAIR_COLUMNS`.
        bootstrap: number of replicates; 0 for no intervals.
        seed: random seed of the bootstrap.
        threshold_min: lowest candidate threshold (`metrics.pair_metrics`).
        margin: two models are equivalent if the interval of their difference lies within plus and minus this.
        cluster: what makes pairs related in intervals: "paper", or "article" (articles and papers).
        settings: recorded in the results.
        baseline: labels of models that were not trained here, whose seeds do not matter.

    Raises:
        InputError: the table lacks a column, or a model gives a score that is not a finite number.
        UsageError: the pairs do not keep the articles that `cluster` needs.
        RouteError: a model with experts lacks a route for a domain.
    """
    scorers = [scorer for runs in models.values() for scorer in runs]
    table = checked_table(table)
    if cluster == "article" and LINKED_BY not in table.column_names:
        raise UsageError(
            "`cluster=article`: these pairs do not keep the articles that link them; compile them again"
        )
    all_scores = table.select(KEPT_COLUMNS)
    runs: dict[str, _Run] = {}
    first_of: dict[Any, str] = {}
    same: dict[str, str] = {}  # a run -> an earlier one that is the same model
    for scorer in scorers:
        if (known := first_of.setdefault(getattr(scorer, "identity", scorer.label), scorer.label)) in runs:
            all_scores = all_scores.append_column(score_column(scorer.label), all_scores[score_column(known)])
            runs[scorer.label] = replace(runs[known], label=scorer.label, settings=scorer.settings())
            same[scorer.label] = known
            continue
        scores = score_pairs(scorer, table)
        all_scores = all_scores.append_column(score_column(scorer.label), pa.array(scores))
        measured = measure(table, scores, bootstrap, seed, threshold_min, cluster == "article")
        areas = areas_by_view(scored_by_domain(table, scores))
        runs[scorer.label] = _Run(scorer.label, scorer.settings(), measured, areas)
    by_model = {label: [runs[each.label] for each in members] for label, members in models.items()}
    means = {label: mean_over_runs([run.measured for run in each]) for label, each in by_model.items()}
    used: dict[str, Any] = {"replicates": bootstrap, "seed": seed, "threshold_min": threshold_min}
    used |= {"margin": margin, "cluster": cluster}
    used["same_model"] = {label: first for label, first in same.items() if {label, first} <= means.keys()}
    distinct = {label: each for label, each in means.items() if label not in used["same_model"]}
    single = {label: by_model[label][0].areas for label in distinct if len(by_model[label]) == 1}
    return PairEvaluation(
        {**(settings or {}), **used, "metrics": METRIC_NAMES},
        tuple(_result(label, means[label], each, label not in baseline) for label, each in by_model.items()),
        all_scores,
        differences(distinct, margin),
        rank_tests(single),
    )


def measure_text_free(
    table: pa.Table, works: pa.Table | None, replicates: int = 1000, seed: int = 0, by_article: bool = False
) -> tuple[ModelResult, ...]:
    """What separates the classes of a checked table without comparing texts (`text_free`).

    Nothing if the pairs are of one class.
    """
    table = checked_table(table)
    if len(table["label"].unique()) < 2:
        return ()
    results = []
    for scorer in text_free_scorers(table, works):
        measured = measure(table, score_pairs(scorer, table), replicates, seed, by_article=by_article)
        results.append(
            _result(scorer.label, measured, [_Run(scorer.label, scorer.settings(), measured, {})], False)
        )
    return tuple(results)


def differences(measured: Mapping[str, Measured], margin: float) -> tuple[Difference, ...]:
    """Each model minus each later one: F1max and ROC-AUC in every view, with paired intervals.

    Both are measured on the same pairs, so what makes pairs hard for both cancels out. p-values are corrected
    for the number of pairs of models.
    """
    rows: list[Difference] = []
    for view in next(iter(measured.values())).figures:
        for metric in METRICS_WITH_INTERVAL:
            values = {label: model.figures[view].metrics[metric] for label, model in measured.items()}
            runs = {label: model.runs[view][metric] for label, model in measured.items() if model.runs}
            rows += compared(values, runs, view, metric, margin)
    return tuple(rows)


def _result(label: str, measured: Measured, runs: Sequence[_Run], trained: bool) -> ModelResult:
    views = measured.figures[POOLED], measured.figures[PAIR_WEIGHTED_MEAN], measured.by_domain()
    if [run.label for run in runs] == [label]:
        return ModelResult(label, runs[0].settings, *views, trained=trained)
    each = tuple(_result(run.label, run.measured, [run], trained) for run in runs)
    return ModelResult(label, {"seeds": len(runs)}, *views, runs=each, trained=trained)
