"""Scored pairs to figures: by domain, pooled over all pairs, and as the mean of the domains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sentence_experts.evaluation.metrics import class_means, pair_metrics, pair_weighted_mean
from sentence_experts.evaluation.pairs import scored_by_domain
from sentence_experts.evaluation.results import PAIR_WEIGHTED_MEAN, POOLED, PairMetrics
from sentence_experts.evaluation.statistics import Bootstrapped, bootstrap, interval, joined


@dataclass(frozen=True)
class Measured:
    """What one model's scores give in each view (`pooled`, `pair_weighted_mean`, each domain).

    Attributes:
        figures: view -> figures, intervals included.
        drawn: view -> metric -> replicates; two models on the same pairs met the same draws. Empty without
            a bootstrap.
    """

    figures: Mapping[str, PairMetrics]
    drawn: Mapping[str, Bootstrapped] = field(default_factory=dict)

    def by_domain(self) -> dict[str, PairMetrics]:
        """The figures of the views that are domains."""
        return {
            view: found for view, found in self.figures.items() if view not in (POOLED, PAIR_WEIGHTED_MEAN)
        }


def measure(
    table: pa.Table,
    scores: NDArray[np.float64],
    replicates: int = 1000,
    seed: int = 0,
    threshold_min: float | None = None,
) -> Measured:
    """Metrics of the scored pairs of a checked table; `replicates` 0 leaves the intervals out."""
    sets = scored_by_domain(table, scores)
    domains = {domain: figures(pairs.scores, pairs.labels, threshold_min) for domain, pairs in sets.items()}
    everything = joined(list(sets.values()))
    pooled = figures(everything.scores, everything.labels, threshold_min)
    counts = {domain: found.pairs for domain, found in domains.items()}
    means = pair_weighted_mean({domain: found.metrics for domain, found in domains.items()}, counts)
    found = {
        POOLED: pooled,
        PAIR_WEIGHTED_MEAN: PairMetrics(pooled.pairs, pooled.positives, means),
        **domains,
    }
    if replicates == 0:
        return Measured(found)
    drawn_domains, drawn_pooled, drawn_mean = bootstrap(sets, replicates, seed, threshold_min)
    drawn = {POOLED: drawn_pooled, PAIR_WEIGHTED_MEAN: drawn_mean, **drawn_domains}
    return Measured({view: with_intervals(each, drawn[view]) for view, each in found.items()}, drawn)


def figures(
    scores: NDArray[np.float64], labels: NDArray[np.int64], threshold_min: float | None = None
) -> PairMetrics:
    """The metrics of one set of pairs, without intervals."""
    metrics = pair_metrics(scores, labels, threshold_min) | class_means(scores, labels)
    return PairMetrics(len(labels), int(labels.sum()), metrics)


def with_intervals(found: PairMetrics, drawn: Bootstrapped) -> PairMetrics:
    """The figures with the intervals that their replicates give."""
    return replace(
        found, intervals={name: interval(values, found.metrics[name]) for name, values in drawn.items()}
    )
