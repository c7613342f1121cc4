"""Models on labelled pairs: metrics by domain, pooled, and as the mean of the domains; how models compare.

The runs of a model that was trained with several seeds are measured as one: a gap between two single runs may
come from their seeds alone. Metrics are then means over runs, shown with their standard deviation, and
intervals cover the papers and the seeds (`evaluation.statistics`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sentence_experts.errors import UsageError
from sentence_experts.evaluation.estimates import Estimate, Interval, Runs, ScoredPairs, estimate
from sentence_experts.evaluation.metrics import (
    METRIC_NAMES,
    class_means,
    lowest_threshold,
    pair_metrics,
    pair_weighted_mean,
)
from sentence_experts.evaluation.results import (
    PAIR_WEIGHTED_MEAN,
    POOLED,
    Difference,
    ModelResult,
    PairEvaluation,
    PairMetrics,
    View,
    differences_of,
    score_column,
    view_of_domain,
)
from sentence_experts.evaluation.scorers import (
    Scorer,
    check_table,
    domains_of,
    rows_of,
    score_pairs,
)
from sentence_experts.evaluation.statistics import METRICS_WITH_INTERVAL, runs_of
from sentence_experts.evaluation.text_free import score_without_comparing
from sentence_experts.pairs.dataset import LINKED_BY
from sentence_experts.progress import announce

KEPT_COLUMNS = ("domain", "anchor_id", "positive_id", "label")
# Cosines of the same vectors, computed by another forward pass, differ by at most this, and by this share of
# their standard deviation: those of nearly identical texts are close together in any model.
_ROUNDING, _ROUNDING_SHARE = 1e-5, 1e-3


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
        """Return domain -> metrics."""
        return {view.domain: metrics for view, metrics in self.figures.items() if view.domain is not None}

    def result(
        self, label: str, settings: Mapping[str, Any], trained: bool, *runs: ModelResult
    ) -> ModelResult:
        """Return the same as a result; `runs` are those that it is the mean of."""
        pooled, mean = self.figures[POOLED], self.figures[PAIR_WEIGHTED_MEAN]
        return ModelResult(label, settings, pooled, mean, self.by_domain(), runs, trained)


def measure(
    table: pa.Table,
    scores: NDArray[np.float64],
    replicates: int = 1000,
    seed: int = 0,
    threshold_min: float | None = None,
    by_article: bool = False,
) -> Measured:
    """Measure the scored pairs of a checked table; `replicates` 0 leaves out the intervals.

    With `by_article` the intervals allow for pairs that are linked by the same article.
    """
    sets = _split_by_domain(table, scores, by_article)
    domains = {name: metrics_of(pairs.scores, pairs.labels, threshold_min) for name, pairs in sets.items()}
    everything = ScoredPairs.joined(list(sets.values()))
    pooled = metrics_of(everything.scores, everything.labels, threshold_min)
    counts = {name: each.pairs for name, each in domains.items()}
    means = pair_weighted_mean({name: each.metrics for name, each in domains.items()}, counts)
    figures = {POOLED: pooled, PAIR_WEIGHTED_MEAN: PairMetrics(pooled.pairs, pooled.positives, means)}
    figures |= {view_of_domain(name): each for name, each in domains.items()}
    if replicates == 0:
        return Measured(figures)
    with announce("estimating intervals"):
        by_domain, pooled_runs, mean_runs = runs_of(sets, replicates, seed, threshold_min)
    runs = dict(zip(figures, [pooled_runs, mean_runs, *by_domain.values()], strict=True))
    return Measured({view: with_intervals(each, runs[view]) for view, each in figures.items()}, runs)


def _split_by_domain(
    table: pa.Table, scores: NDArray[np.float64], by_article: bool
) -> dict[str, ScoredPairs]:
    """Return domain -> its scored pairs; `scores` are in the order of the table, (pairs,)."""
    labels = table["label"].to_numpy().astype(np.int64)
    columns = ("anchor_id", "positive_id", *((LINKED_BY,) if by_article else ()))
    # Sorted, so that the order of the pairs does not change the last digit of a sum.
    keys = [(name, "ascending") for name in ("anchor_id", "positive_id", "label")]
    order = pc.sort_indices(table, keys).to_numpy()
    sets = {}
    for domain in domains_of(table):
        rows = order[np.isin(order, rows_of(table, domain))]
        ids = [table[column].take(pa.array(rows)).to_pylist() for column in columns]
        sets[domain] = ScoredPairs(scores[rows], labels[rows], *ids)
    return sets


def metrics_of(
    scores: NDArray[np.float64], labels: NDArray[np.int64], threshold_min: float | None = None
) -> PairMetrics:
    """Return the metrics of one set of pairs, without intervals; `lowest_threshold` bounds its threshold."""
    lowest = lowest_threshold(labels, threshold_min)
    metrics = pair_metrics(scores, labels, lowest) | class_means(scores, labels)
    return PairMetrics(len(labels), int(labels.sum()), metrics)


def with_intervals(metrics: PairMetrics, runs: Mapping[str, Runs]) -> PairMetrics:
    """Return the metrics with the intervals of those that have one.

    On few pairs F1max may be too high by more than half of its interval, which is then widened up to it.
    """
    intervals: dict[str, Interval | None] = {}
    for name, each in runs.items():
        value, estimated = metrics.metrics[name], estimate(each)
        bounds = None if estimated is None else _ends(estimated, name)
        if bounds is not None and value is not None:
            bounds = Interval(min(bounds.low, value), max(bounds.high, value))
        intervals[name] = bounds
    return replace(metrics, intervals=intervals)


def _ends(estimated: Estimate, metric: str) -> Interval:
    return estimated.interval_of_area() if metric == "roc_auc" else estimated.interval(0.0)


def mean_over_runs(runs: Sequence[Measured]) -> Measured:
    """Return the mean of several runs measured on the same pairs; a single run stays as it is."""
    if len(runs) == 1:
        return runs[0]
    means, joint = {}, {}
    for view, first in runs[0].figures.items():
        mean: dict[str, float | None] = {}
        spread: dict[str, float | None] = {}
        for name in first.metrics:
            values = [value for run in runs if (value := run.figures[view].metrics[name]) is not None]
            defined = len(values) == len(runs)
            mean[name] = float(np.mean(values)) if defined else None
            spread[name] = float(np.std(values, ddof=1)) if defined else None
        means[view] = PairMetrics(first.pairs, first.positives, mean, spread=spread)
        if runs[0].runs:
            joint[view] = {
                name: Runs.joined([run.runs[view][name] for run in runs]) for name in METRICS_WITH_INTERVAL
            }
            means[view] = with_intervals(means[view], joint[view])
    return Measured(means, joint)


def evaluate_scorers(
    models: Mapping[str, Sequence[Scorer]],
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

    A model that gives the same cosines as an earlier one is not compared again: `same_model` in the settings
    names both.

    Args:
        models: label -> the model's runs; several are measured as one model.
        table: the pairs, columns as in `scorers.PAIR_COLUMNS`.
        bootstrap, seed, threshold_min, margin, cluster: settings of `EvaluateConfig`.
        settings: settings to record in the results.
        baseline: labels of models that were not trained here, whose seeds do not matter.

    Raises:
        InputError: the table lacks a column, or a model gives a score that is not a finite number.
        UsageError: the pairs do not keep the articles that `cluster` needs.
        RouteError: a model with experts lacks a route for a domain.
    """
    table = check_table(table)
    if cluster == "article" and LINKED_BY not in table.column_names:
        raise UsageError(
            "`cluster=article`: these pairs do not keep the articles that link them; compile them again"
        )
    threshold_min = lowest_threshold(table["label"], threshold_min)
    options = bootstrap, seed, threshold_min, cluster == "article"
    measured: dict[str, Measured] = {}
    first_run: dict[str, str] = {}  # run's label -> the first run with its cosines
    kept = table.select(KEPT_COLUMNS)
    for scorer in (scorer for runs in models.values() for scorer in runs):
        label, found = scorer.label, score_pairs(scorer.score, table)
        rounding = min(_ROUNDING, _ROUNDING_SHARE * float(np.std(found)))
        alike = (name for name in measured if np.allclose(found, _cosines(kept, name), 0, rounding))
        first_run[label] = next(alike, label)
        measured[label] = measured.get(first_run[label]) or measure(table, found, *options)
        kept = kept.append_column(score_column(label), pa.array(found))
    results, means = [], {}
    for label, scorers in models.items():
        means[label] = mean_over_runs([measured[each.label] for each in scorers])
        trained = label not in baseline
        runs = [measured[each.label].result(each.label, each.settings(), trained) for each in scorers]
        is_single = [run.label for run in runs] == [label]
        several = means[label].result(label, {"seeds": len(runs)}, trained, *runs)
        results.append(runs[0] if is_single else several)
    same = _find_same({name: [first_run[each.label] for each in runs] for name, runs in models.items()})
    used = {"replicates": bootstrap, "seed": seed, "threshold_min": threshold_min, "margin": margin}
    used |= {"cluster": cluster, "same_model": same, "metrics": METRIC_NAMES}  # type: ignore[dict-item]
    own = [{each.label: first_run[each.label] for each in runs} for runs in models.values()]
    again = {run: first for runs in own for run, first in runs.items() if run != first and first in runs}
    used |= {"same_run": again}  # type: ignore[dict-item]
    differences = _compute_differences(
        {name: each for name, each in means.items() if name not in same}, margin
    )
    return PairEvaluation({**(settings or {}), **used}, tuple(results), kept, differences)


def _find_same(models: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return model -> an earlier one of the same runs, in the same shares; `models` has the runs of each."""
    firsts = dict[frozenset[tuple[str, float]], str]()
    same = {}
    for label, runs in models.items():
        shares = frozenset((run, count / len(runs)) for run, count in Counter(runs).items())
        if (first := firsts.setdefault(shares, label)) != label:
            same[label] = first
    return same


def _cosines(scores: pa.Table, label: str) -> NDArray[np.float64]:
    return scores[score_column(label)].to_numpy()  # type: ignore[no-any-return]


def measure_text_free(
    table: pa.Table, works: pa.Table | None, replicates: int = 1000, seed: int = 0, by_article: bool = False
) -> tuple[ModelResult, ...]:
    """Measure the scores that separate a table's classes without comparing texts (`text_free`).

    The result is empty if the pairs are of one class.
    """
    table = check_table(table)
    if len(table["label"].unique()) < 2:
        return ()
    return tuple(
        measure(table, scores, replicates, seed, None, by_article).result(label, {"model": label}, False)
        for label, scores in score_without_comparing(table, works).items()
    )


def _compute_differences(measured: Mapping[str, Measured], margin: float) -> tuple[Difference, ...]:
    """Return each model minus each later one: F1max and ROC-AUC in every view, with paired intervals.

    Both are measured on the same pairs, so what makes pairs hard for both cancels out. p-values are corrected
    for the number of pairs of models.
    """
    rows: list[Difference] = []
    for view in next(iter(measured.values())).figures:
        for metric in METRICS_WITH_INTERVAL:
            values = {label: model.figures[view].metrics[metric] for label, model in measured.items()}
            runs = {label: model.runs[view][metric] for label, model in measured.items() if model.runs}
            rows += differences_of(values, runs, view, metric, margin)
    return tuple(rows)
