"""What an evaluation found: frozen, and the same JSON for the same findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from sentence_experts.evaluation.statistics import Interval

# The three ways to look at a model. The 2025 paper's Table 3 mixes the last two.
POOLED = "pooled"
PAIR_WEIGHTED_MEAN = "pair_weighted_mean"
VIEWS = {
    POOLED: "All pairs together, one threshold for all domains",
    PAIR_WEIGHTED_MEAN: "Mean of the domains' figures, weighted by their pairs; a threshold per domain",
}


@dataclass(frozen=True)
class Figures:
    """The metrics of one model on one set of pairs (a domain, all pairs), or a mean of such metrics.

    Attributes:
        pairs, positives: counts.
        metrics: the eight of `metrics.METRIC_NAMES`, `mean_positive` and `mean_negative`; None if undefined.
        intervals: 95% bootstrap intervals over papers, of those metrics that have one.
    """

    pairs: int
    positives: int
    metrics: Mapping[str, float | None]
    intervals: Mapping[str, Interval | None] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelResult:
    """One model's figures. `settings` names the model (hash, routes, baseline's options)."""

    label: str
    settings: Mapping[str, Any]
    pooled: Figures
    pair_weighted_mean: Figures
    domains: Mapping[str, Figures]

    def view(self, key: str) -> Figures:
        """The figures of a view: `pooled`, `pair_weighted_mean` or a domain."""
        return {POOLED: self.pooled, PAIR_WEIGHTED_MEAN: self.pair_weighted_mean, **self.domains}[key]


@dataclass(frozen=True)
class Difference:
    """How much `first` is above `second` in a metric of a view, on the same pairs, with a paired interval."""

    first: str
    second: str
    view: str
    metric: str
    value: float | None
    interval: Interval | None


@dataclass(frozen=True)
class Evaluation:
    """Several models on the same pairs.

    Attributes:
        settings: pairs, split, seed, versions: what one needs to repeat it.
        models: in the order they were given.
        scores: one row a pair: domain, anchor_id, positive_id, label, and a column a model label with its
            cosine. Not part of the JSON.
        differences: of the first model to each other one, pooled and in the mean of the domains.
    """

    settings: Mapping[str, Any]
    models: tuple[ModelResult, ...]
    scores: pa.Table
    differences: tuple[Difference, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready for `storage.write_json`."""
        return {
            "settings": dict(self.settings),
            "views": VIEWS,
            "models": [asdict(model) for model in self.models],
            "differences": [asdict(difference) for difference in self.differences],
        }
