"""Models on labelled pairs: the metrics of each, and how the models compare."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pyarrow as pa

from sentence_experts.errors import UsageError
from sentence_experts.evaluation.measure import Measured, mean_over_runs, measure
from sentence_experts.evaluation.metrics import METRIC_NAMES
from sentence_experts.evaluation.pairs import (
    KEPT_COLUMNS,
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
)
from sentence_experts.evaluation.statistics import BOOTSTRAPPED, interval
from sentence_experts.evaluation.wilcoxon import Areas, areas_by_view, mean_areas, rank_tests


@dataclass(frozen=True)
class _Run:
    label: str
    settings: Mapping[str, Any]
    measured: Measured
    areas: Mapping[str, Areas]


def evaluate_scorers(
    models: Mapping[str, Sequence[PairScorer]],
    table: pa.Table,
    *,
    bootstrap: int = 1000,
    seed: int = 0,
    threshold_min: float | None = None,
    settings: Mapping[str, Any] | None = None,
    baseline: Collection[str] = (),
) -> PairEvaluation:
    """Score the pairs with every model, measure, and compare each model with each other.

    Args:
        models: label -> the model's runs; several are measured as one model.
        table: the pairs, columns as in `pairs.PAIR_COLUMNS`.
        bootstrap: number of replicates; 0 for no intervals.
        seed: random seed of the bootstrap.
        threshold_min: lowest candidate threshold (`metrics.pair_metrics`).
        settings: recorded in the results.
        baseline: labels of models that were not trained here, whose seeds do not matter.

    Raises:
        InputError: the table lacks a column, or a model gives a score that is not a finite number.
        UsageError: a model has the name of a column of the scores.
        RouteError: a model with experts lacks a route for a domain.
    """
    scorers = [scorer for runs in models.values() for scorer in runs]
    for label in (*models, *(scorer.label for scorer in scorers)):
        if label in KEPT_COLUMNS:
            raise UsageError(f"a model cannot be called {label!r}: give it another `name`")
    table = checked_table(table)
    all_scores = table.select(KEPT_COLUMNS)
    runs: dict[str, _Run] = {}
    for scorer in scorers:
        scores = score_pairs(scorer, table)
        all_scores = all_scores.append_column(scorer.label, pa.array(scores))
        measured = measure(table, scores, bootstrap, seed, threshold_min)
        areas = areas_by_view(scored_by_domain(table, scores))
        runs[scorer.label] = _Run(scorer.label, scorer.settings(), measured, areas)
    by_model = {label: [runs[each.label] for each in members] for label, members in models.items()}
    means = {label: mean_over_runs([run.measured for run in each]) for label, each in by_model.items()}
    used = {"replicates": bootstrap, "seed": seed, "threshold_min": threshold_min, "metrics": METRIC_NAMES}
    return PairEvaluation(
        {**(settings or {}), **used},
        tuple(_result(label, means[label], each, label not in baseline) for label, each in by_model.items()),
        all_scores,
        differences(means),
        rank_tests({label: mean_areas([run.areas for run in each]) for label, each in by_model.items()}),
    )


def differences(measured: Mapping[str, Measured]) -> tuple[Difference, ...]:
    """Each model minus each later one: F1max and ROC-AUC in every view, with paired intervals.

    Both have the same bootstrap draws of papers, so what makes pairs hard for both cancels out.
    """
    gaps = []
    for first, second in combinations(measured, 2):
        upper, lower = measured[first], measured[second]
        for view in upper.figures:
            for metric in BOOTSTRAPPED:
                values = [model.figures[view].metrics[metric] for model in (upper, lower)]
                gap = None if values[0] is None or values[1] is None else values[0] - values[1]
                bounds = (
                    interval(upper.replicates[view][metric] - lower.replicates[view][metric], gap)
                    if upper.replicates
                    else None
                )
                gaps.append(Difference(first, second, view, metric, gap, bounds))
    return tuple(gaps)


def _result(label: str, found: Measured, runs: Sequence[_Run], trained: bool) -> ModelResult:
    views = found.figures[POOLED], found.figures[PAIR_WEIGHTED_MEAN], found.by_domain()
    if [run.label for run in runs] == [label]:
        return ModelResult(label, runs[0].settings, *views, trained=trained)
    each = tuple(_result(run.label, run.measured, [run], trained) for run in runs)
    return ModelResult(label, {"seeds": len(runs)}, *views, runs=each, trained=trained)
