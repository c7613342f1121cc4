"""Several models on the same labelled pairs: each one's figures, and how they compare."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pyarrow as pa

from sentence_experts.errors import UsageError
from sentence_experts.evaluation.measure import Measured, measure
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
    Evaluation,
    ModelResult,
)
from sentence_experts.evaluation.seeds import mean_over_runs
from sentence_experts.evaluation.statistics import BOOTSTRAPPED, interval
from sentence_experts.evaluation.wilcoxon import Areas, areas_by_view, mean_areas, rank_tests


@dataclass(frozen=True)
class _Run:
    label: str
    settings: Mapping[str, Any]
    measured: Measured
    areas: Mapping[str, Areas]


def evaluate(
    scorers: Sequence[PairScorer],
    table: pa.Table,
    replicates: int = 1000,
    seed: int = 0,
    threshold_min: float | None = None,
    settings: Mapping[str, Any] | None = None,
    seeds: Mapping[str, Sequence[str]] | None = None,
    baselines: Collection[str] = (),
) -> Evaluation:
    """Score the pairs with every model, measure, and compare each model with each other.

    Args:
        scorers: the models, or runs of models.
        table: the pairs, columns as in `pairs.PAIR_COLUMNS`.
        replicates: of the bootstrap; 0 for no intervals.
        seed: of the bootstrap.
        threshold_min: lowest candidate threshold (`metrics.pair_metrics`).
        settings: what else the results note.
        seeds: label of a model -> the labels of its runs, which are then measured as one.
        baselines: labels of models that nobody trained here, whose figures have no seed.

    Raises:
        InputError: the table lacks something, or a model gives a score that is not a finite number.
        UsageError: no models, or two with one label.
        RouteError: a model with experts lacks a route for a domain.
    """
    members = _members([scorer.label for scorer in scorers], seeds or {})
    table = checked_table(table)
    kept = table.select(KEPT_COLUMNS)
    runs: dict[str, _Run] = {}
    for scorer in scorers:
        scores = score_pairs(scorer, table)
        kept = kept.append_column(scorer.label, pa.array(scores))
        measured = measure(table, scores, replicates, seed, threshold_min)
        areas = areas_by_view(scored_by_domain(table, scores))
        runs[scorer.label] = _Run(scorer.label, scorer.settings(), measured, areas)
    models = {label: [runs[run] for run in labels] for label, labels in members.items()}
    means = {label: mean_over_runs([run.measured for run in each]) for label, each in models.items()}
    used = {"replicates": replicates, "seed": seed, "threshold_min": threshold_min, "metrics": METRIC_NAMES}
    return Evaluation(
        {**(settings or {}), **used},
        tuple(_result(label, means[label], runs, label not in baselines) for label, runs in models.items()),
        kept,
        differences(means),
        rank_tests({label: mean_areas([run.areas for run in each]) for label, each in models.items()}),
    )


def differences(measured: Mapping[str, Measured]) -> tuple[Difference, ...]:
    """Each model minus each later one: F1max and ROC-AUC in every view, with paired intervals.

    Both meet the same draws of papers, so what makes pairs hard for both does not count.
    """
    gaps = []
    for first, second in combinations(measured, 2):
        upper, lower = measured[first], measured[second]
        for view in upper.figures:
            for metric in BOOTSTRAPPED:
                values = [model.figures[view].metrics[metric] for model in (upper, lower)]
                gap = None if values[0] is None or values[1] is None else values[0] - values[1]
                bounds = (
                    interval(upper.drawn[view][metric] - lower.drawn[view][metric], gap)
                    if upper.drawn
                    else None
                )
                gaps.append(Difference(first, second, view, metric, gap, bounds))
    return tuple(gaps)


def _members(runs: Sequence[str], seeds: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Model label -> labels of its runs, in the order of the runs."""
    if not runs:
        raise UsageError("nothing to evaluate: name at least one model or baseline")
    model_of = {run: label for label, members in seeds.items() for run in members}
    members: dict[str, list[str]] = {}
    for run in runs:
        members.setdefault(model_of.get(run, run), []).append(run)
    for label in (*runs, *members):
        if label in KEPT_COLUMNS:
            raise UsageError(f"a model cannot be called {label!r}: name it with --name LABEL=PATH")
        if runs.count(label) > 1 or (label in runs and label not in seeds.get(label, [label])):
            raise UsageError(f"two models are called {label!r}: name one with --name LABEL=PATH")
    return members


def _result(label: str, found: Measured, runs: Sequence[_Run], trained: bool) -> ModelResult:
    views = found.figures[POOLED], found.figures[PAIR_WEIGHTED_MEAN], found.by_domain()
    if [run.label for run in runs] == [label]:
        return ModelResult(label, runs[0].settings, *views, trained=trained)
    each = tuple(_result(run.label, run.measured, [run], trained) for run in runs)
    return ModelResult(label, {"seeds": len(runs)}, *views, runs=each, trained=trained)
