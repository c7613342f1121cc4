"""Models on a table of labelled pairs: cosine similarity, then metrics by domain, pooled, and as a mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.metrics import METRIC_NAMES, class_means, pair_metrics, pair_weighted_mean
from sentence_experts.evaluation.results import (
    PAIR_WEIGHTED_MEAN,
    POOLED,
    Difference,
    Evaluation,
    Figures,
    ModelResult,
)
from sentence_experts.evaluation.statistics import (
    Bootstrapped,
    Interval,
    ScoredPairs,
    bootstrap,
    interval,
)

PAIR_COLUMNS = ("anchor", "positive", "label", "domain", "anchor_id", "positive_id")
KEPT_COLUMNS = ("domain", "anchor_id", "positive_id", "label")


class PairScorer(Protocol):
    """A model as the evaluation sees it."""

    label: str

    def settings(self) -> dict[str, Any]:
        """What names the model in the results."""

    def score(self, anchors: Sequence[str], positives: Sequence[str], domain: str) -> NDArray[np.float64]:
        """The similarity of each pair of texts, shape (pairs,)."""


def checked_table(table: pa.Table, where: str = "the pairs") -> pa.Table:
    """The pairs with the columns an evaluation needs, every value present.

    Raises:
        InputError: a column is missing, a value is null, a label is not 0 or 1, or there are no pairs.
    """
    missing = [column for column in PAIR_COLUMNS if column not in table.column_names]
    if missing:
        raise InputError(f"{where}: no column {missing[0]!r}; columns are {', '.join(table.column_names)}")
    if table.num_rows == 0:
        raise InputError(f"{where}: no pairs to evaluate")
    table = table.select(PAIR_COLUMNS)
    for column in PAIR_COLUMNS:
        if table[column].null_count:
            row = table[column].to_pylist().index(None)
            raise InputError(f"{where}: row {row} has no {column}")
    if not set(table["label"].unique().to_pylist()) <= {0, 1}:
        raise InputError(f"{where}: labels must be 0 or 1, not {table['label'].unique().to_pylist()[:5]}")
    return table


def domains_of(table: pa.Table) -> list[str]:
    """The domains in the table, sorted."""
    return sorted(table["domain"].unique().to_pylist())


def score_pairs(scorer: PairScorer, table: pa.Table) -> NDArray[np.float64]:
    """The scorer's similarity for each row of a checked table, shape (pairs,), in the table's order."""
    scores = np.empty(table.num_rows, dtype=np.float64)
    for domain in domains_of(table):
        rows = _rows_of(table, domain)
        part = table.take(pa.array(rows))
        scores[rows] = scorer.score(part["anchor"].to_pylist(), part["positive"].to_pylist(), domain)
    return scores


def cosine_by_text(
    anchors: Sequence[str], positives: Sequence[str], encode: Callable[[list[str]], NDArray[np.float32]]
) -> NDArray[np.float64]:
    """Cosine of each pair, every distinct text encoded once.

    Texts are encoded in an order of their own (longest first), so a score depends neither on the order of
    the pairs nor on which side a text stands.
    """
    from sentence_experts.encoding.engine import cosines

    texts = sorted({*anchors, *positives}, key=lambda text: (-len(text), text))
    row = {text: index for index, text in enumerate(texts)}
    vectors = encode(texts)
    return cosines(vectors[[row[text] for text in anchors]], vectors[[row[text] for text in positives]])


def figures(
    scores: NDArray[np.float64], labels: NDArray[np.int64], threshold_min: float | None = None
) -> Figures:
    """The metrics of one set of pairs, without intervals."""
    metrics = pair_metrics(scores, labels, threshold_min) | class_means(scores, labels)
    return Figures(len(labels), int(labels.sum()), metrics)


def measure(
    table: pa.Table,
    scores: NDArray[np.float64],
    replicates: int = 1000,
    seed: int = 0,
    threshold_min: float | None = None,
) -> tuple[Figures, Figures, dict[str, Figures]]:
    """Figures of scored pairs: (pooled over domains, pair-weighted mean of the domains, by domain).

    `replicates` 0 leaves the intervals out.
    """
    sets = _by_domain(table, scores)
    pooled = figures(scores, table["label"].to_numpy().astype(np.int64), threshold_min)
    by_domain = {domain: figures(part.scores, part.labels, threshold_min) for domain, part in sets.items()}
    counts = {domain: found.pairs for domain, found in by_domain.items()}
    means = pair_weighted_mean({domain: found.metrics for domain, found in by_domain.items()}, counts)
    mean = Figures(pooled.pairs, pooled.positives, means)
    if replicates == 0:
        return pooled, mean, by_domain
    drawn, drawn_pooled, drawn_mean = bootstrap(sets, replicates, seed, threshold_min)
    return (
        _with_intervals(pooled, drawn_pooled),
        _with_intervals(mean, drawn_mean),
        {domain: _with_intervals(found, drawn[domain]) for domain, found in by_domain.items()},
    )


def evaluate(
    scorers: Sequence[PairScorer],
    table: pa.Table,
    replicates: int = 1000,
    seed: int = 0,
    threshold_min: float | None = None,
    settings: dict[str, Any] | None = None,
) -> Evaluation:
    """Score the pairs with every model and measure.

    Raises:
        InputError: the table lacks something, or a model gives a score that is not a finite number.
        UsageError: no models, or two with one label.
        RouteError: a model with experts lacks a route for a domain.
    """
    labels = [scorer.label for scorer in scorers]
    if not labels:
        raise UsageError("nothing to evaluate: name at least one model or baseline")
    for label in labels:
        if label in KEPT_COLUMNS:
            raise UsageError(f"a model cannot be called {label!r}: name it with --name LABEL=PATH")
        if labels.count(label) > 1:
            raise UsageError(f"two models are called {label!r}: name one with --name LABEL=PATH")
    table = checked_table(table)
    kept = table.select(KEPT_COLUMNS)
    models = []
    for scorer in scorers:
        scores = score_pairs(scorer, table)
        pooled, mean, by_domain = measure(table, scores, replicates, seed, threshold_min)
        models.append(ModelResult(scorer.label, scorer.settings(), pooled, mean, by_domain))
        kept = kept.append_column(scorer.label, pa.array(scores))
    used = {"replicates": replicates, "seed": seed, "threshold_min": threshold_min, "metrics": METRIC_NAMES}
    return Evaluation({**(settings or {}), **used}, tuple(models), kept)


def compare(
    found: Evaluation, first: str, second: str, replicates: int = 1000, seed: int = 0
) -> dict[str, dict[str, Interval | None]]:
    """How much `first` is above `second` in F1max and ROC-AUC: 95% intervals of the paired difference.

    Both meet the same draws of papers, so what makes pairs hard for both does not count.

    Returns:
        View (`pooled`, `pair_weighted_mean`, each domain) -> metric -> interval.

    Raises:
        UsageError: a label that is not among the models.
    """
    known = {model.label: model for model in found.models}
    missing = [label for label in (first, second) if label not in known]
    if missing:
        raise UsageError(f"no model {missing[0]!r}; there are {', '.join(known)}")
    upper, lower = (
        _by_view(
            *bootstrap(
                _by_domain(found.scores, found.scores[label].to_numpy()),
                replicates,
                seed,
                found.settings.get("threshold_min"),
            )
        )
        for label in (first, second)
    )
    return {
        view: {
            name: interval(drawn - lower[view][name], _gap(known[first], known[second], view, name))
            for name, drawn in metrics.items()
        }
        for view, metrics in upper.items()
    }


def differences(found: Evaluation, replicates: int = 1000, seed: int = 0) -> tuple[Difference, ...]:
    """The first model against each other one: F1max and ROC-AUC, pooled and in the mean of the domains."""
    first, *others = found.models
    gaps = []
    for other in others:
        intervals = compare(found, first.label, other.label, replicates, seed)
        for view in (POOLED, PAIR_WEIGHTED_MEAN):
            for metric, bounds in intervals[view].items():
                value = _gap(first, other, view, metric)
                gaps.append(Difference(first.label, other.label, view, metric, value, bounds))
    return tuple(gaps)


def _by_view(
    domains: dict[str, Bootstrapped], pooled: Bootstrapped, mean: Bootstrapped
) -> dict[str, Bootstrapped]:
    return {POOLED: pooled, PAIR_WEIGHTED_MEAN: mean, **domains}


def _gap(first: ModelResult, second: ModelResult, view: str, metric: str) -> float | None:
    values = [model.view(view).metrics[metric] for model in (first, second)]
    return None if values[0] is None or values[1] is None else values[0] - values[1]


def _by_domain(table: pa.Table, scores: NDArray[np.float64]) -> dict[str, ScoredPairs]:
    labels = table["label"].to_numpy().astype(np.int64)
    sets = {}
    for domain in domains_of(table):
        rows = _rows_of(table, domain)
        ids = [table[column].take(pa.array(rows)).to_pylist() for column in ("anchor_id", "positive_id")]
        sets[domain] = ScoredPairs(scores[rows], labels[rows], *ids)
    return sets


def _rows_of(table: pa.Table, domain: str) -> NDArray[np.int64]:
    return np.flatnonzero(pc.equal(table["domain"], domain).to_numpy(zero_copy_only=False))


def _with_intervals(found: Figures, drawn: Bootstrapped) -> Figures:
    intervals = {name: interval(values, found.metrics[name]) for name, values in drawn.items()}
    return Figures(found.pairs, found.positives, found.metrics, intervals)
