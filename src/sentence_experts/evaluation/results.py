"""What an evaluation found: frozen, and the same JSON for the same findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from sentence_experts.evaluation.routing import RouterAccuracy
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
        intervals: 95% bootstrap intervals over papers (and seeds), of those metrics that have one.
        spread: the metrics' standard deviation over seeds; empty for a model of a single run.
    """

    pairs: int
    positives: int
    metrics: Mapping[str, float | None]
    intervals: Mapping[str, Interval | None] = field(default_factory=dict)
    spread: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelResult:
    """One model's figures. `settings` names the model (hash, routes, baseline's options).

    A model that was trained with several seeds has the mean over its `runs`, in the order they were given;
    a model of a single run has no `runs`. `trained` is False for what is taken as it comes: a baseline.
    """

    label: str
    settings: Mapping[str, Any]
    pooled: Figures
    pair_weighted_mean: Figures
    domains: Mapping[str, Figures]
    runs: tuple[ModelResult, ...] = ()
    trained: bool = True

    def view(self, key: str) -> Figures:
        """The figures of a view: `pooled`, `pair_weighted_mean` or a domain."""
        return {POOLED: self.pooled, PAIR_WEIGHTED_MEAN: self.pair_weighted_mean, **self.domains}[key]

    @property
    def first_run(self) -> ModelResult:
        """The run that drawings show: its label names a column of the scores."""
        return self.runs[0] if self.runs else self

    @property
    def seeds(self) -> int:
        """How many runs of training the figures come from."""
        return max(1, len(self.runs))


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
class RankTest:
    """Whether one of two models orders the pairs of a view better (`evaluation.wilcoxon`).

    Attributes:
        blocks: blocks of papers in which the two differ.
        p_value: of Wilcoxon's signed-rank test, two-sided, on the blocks' areas under the ROC curve.
        p_holm: corrected for all pairs of models of the view.
    """

    first: str
    second: str
    view: str
    blocks: int
    p_value: float
    p_holm: float


@dataclass(frozen=True)
class Evaluation:
    """Several models on the same pairs.

    Attributes:
        settings: pairs, split, seed, versions: what one needs to repeat it.
        models: in the order they were given.
        scores: one row a pair: domain, anchor_id, positive_id, label, and a column a run with its cosine,
            called like the model or, of several runs, like the run. Not part of the JSON.
        differences: of each model to each later one, in every view.
        tests: of the same pairs of models.
        routers: label of each run whose model has learned routers -> how often they were right.
    """

    settings: Mapping[str, Any]
    models: tuple[ModelResult, ...]
    scores: pa.Table
    differences: tuple[Difference, ...] = ()
    tests: tuple[RankTest, ...] = ()
    routers: Mapping[str, RouterAccuracy] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready for `storage.write_json`."""
        return {
            "settings": dict(self.settings),
            "views": VIEWS,
            "models": [asdict(model) for model in self.models],
            "differences": [asdict(difference) for difference in self.differences],
            "tests": [asdict(test) for test in self.tests],
            "routers": {label: asdict(accuracy) for label, accuracy in self.routers.items()},
        }
