"""Scored pairs to metrics: by domain, pooled over all pairs, and as the mean of the domains.

The runs of a model that was trained with several seeds are measured as one: a gap between two single runs may
come from their seeds alone. Metrics are then means over runs, shown with their standard deviation, and
intervals cover the papers and the seeds (`evaluation.statistics`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sentence_experts.evaluation.metrics import class_means, pair_metrics, pair_weighted_mean
from sentence_experts.evaluation.pairs import scored_by_domain
from sentence_experts.evaluation.results import PAIR_WEIGHTED_MEAN, POOLED, PairMetrics
from sentence_experts.evaluation.statistics import Bootstrapped, Replicates, bootstrap, interval, joined


@dataclass(frozen=True)
class Measured:
    """The metrics of one model in each view (`pooled`, `pair_weighted_mean`, each domain).

    Attributes:
        figures: view -> metrics, with intervals.
        replicates: view -> metric -> bootstrap replicates; two models on the same pairs have the same draws.
            Empty without a bootstrap.
    """

    figures: Mapping[str, PairMetrics]
    replicates: Mapping[str, Bootstrapped] = field(default_factory=dict)

    def by_domain(self) -> dict[str, PairMetrics]:
        """The metrics of the views that are domains."""
        means = (POOLED, PAIR_WEIGHTED_MEAN)
        return {view: metrics for view, metrics in self.figures.items() if view not in means}


def measure(
    table: pa.Table,
    scores: NDArray[np.float64],
    replicates: int = 1000,
    seed: int = 0,
    threshold_min: float | None = None,
) -> Measured:
    """Metrics of the scored pairs of a checked table; `replicates` 0 leaves out the intervals."""
    sets = scored_by_domain(table, scores)
    domains = {
        domain: metrics_of(pairs.scores, pairs.labels, threshold_min) for domain, pairs in sets.items()
    }
    everything = joined(list(sets.values()))
    pooled = metrics_of(everything.scores, everything.labels, threshold_min)
    counts = {domain: found.pairs for domain, found in domains.items()}
    means = pair_weighted_mean({domain: found.metrics for domain, found in domains.items()}, counts)
    mean = PairMetrics(pooled.pairs, pooled.positives, means)
    views = {POOLED: pooled, PAIR_WEIGHTED_MEAN: mean, **domains}
    if replicates == 0:
        return Measured(views)
    by_domain, of_pooled, of_mean = bootstrap(sets, replicates, seed, threshold_min)
    drawn = {POOLED: of_pooled, PAIR_WEIGHTED_MEAN: of_mean, **by_domain}
    return Measured({view: with_intervals(each, drawn[view]) for view, each in views.items()}, drawn)


def metrics_of(
    scores: NDArray[np.float64], labels: NDArray[np.int64], threshold_min: float | None = None
) -> PairMetrics:
    """The metrics of one set of pairs, without intervals."""
    metrics = pair_metrics(scores, labels, threshold_min) | class_means(scores, labels)
    return PairMetrics(len(labels), int(labels.sum()), metrics)


def with_intervals(found: PairMetrics, replicates: Bootstrapped) -> PairMetrics:
    """The metrics with the intervals that their replicates give."""
    intervals = {name: interval(values, found.metrics[name]) for name, values in replicates.items()}
    return replace(found, intervals=intervals)


def mean_over_runs(runs: Sequence[Measured]) -> Measured:
    """The mean of several runs measured on the same pairs and draws; a single run stays as it is."""
    if len(runs) == 1:
        return runs[0]
    means, drawn = {}, {}
    for view in runs[0].figures:
        of_runs = [run.figures[view] for run in runs]
        means[view] = _mean_metrics(of_runs)
        if runs[0].replicates:
            drawn[view] = _mean_replicates([run.replicates[view] for run in runs], of_runs)
            means[view] = with_intervals(means[view], drawn[view])
    return Measured(means, drawn)


def _mean_metrics(runs: Sequence[PairMetrics]) -> PairMetrics:
    means: dict[str, float | None] = {}
    spread: dict[str, float | None] = {}
    for name in runs[0].metrics:
        values = _defined(runs, name)
        means[name] = float(np.mean(values)) if values else None
        spread[name] = float(np.std(values, ddof=1)) if values else None
    return PairMetrics(runs[0].pairs, runs[0].positives, means, spread=spread)


def _mean_replicates(drawn: Sequence[Bootstrapped], runs: Sequence[PairMetrics]) -> Bootstrapped:
    means = {}
    for name in drawn[0]:
        values = _defined(runs, name)
        means[name] = Replicates(
            np.mean([each[name].by_papers for each in drawn], axis=0),
            np.mean([each[name].by_pairs for each in drawn], axis=0),
            (tuple(values),) if values else (),
        )
    return means


def _defined(runs: Sequence[PairMetrics], name: str) -> list[float]:
    """A metric of every run; empty if it is undefined for one of them."""
    values = [value for run in runs if (value := run.metrics[name]) is not None]
    return values if len(values) == len(runs) else []
