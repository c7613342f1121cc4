"""How sure the figures are: bootstrap intervals that resample papers, not pairs.

Pairs that share a paper are not independent, so papers are drawn. In a replicate the n papers of the
evaluated pairs are drawn n times with replacement; a pair (a, b) then counts w_a * w_b times, w being how
often a paper was drawn. This is the bootstrap of exchangeable (dyadic) arrays (Davezies, D'Haultfoeuille &
Guyonvarch, Annals of Statistics 2021; Owen, "The pigeonhole bootstrap", Annals of Applied Statistics 2007).
Where the noise is a pair's own rather than its papers', it errs on the wide side (by up to a factor of
sqrt(3)).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sentence_experts.evaluation.metrics import checked_pairs

BOOTSTRAPPED = ("f1_max", "roc_auc")
CELLS_AT_ONCE = 4_000_000  # replicates x pairs held in memory: some 100 MB with its intermediates

Replicates = dict[str, NDArray[np.float64]]  # metric -> shape (replicates,), NaN where undefined


@dataclass(frozen=True)
class Interval:
    """The middle 95% of the replicates; `replicates` counts those in which the metric was defined."""

    low: float
    high: float
    replicates: int


@dataclass(frozen=True)
class ScoredPairs:
    """Pairs of one domain (or any set): scores and labels of shape (pairs,), and the two papers' ids."""

    scores: NDArray[np.float64]
    labels: NDArray[np.int64]
    first: Sequence[str]
    second: Sequence[str]


def paper_draws(papers: int, replicates: int, seed: int) -> NDArray[np.int64]:
    """How often each paper is drawn: shape (replicates, papers), each row sums to `papers`."""
    generator = np.random.default_rng(seed)
    return generator.multinomial(papers, np.full(papers, 1 / papers), size=replicates)


def bootstrap(
    domains: Mapping[str, ScoredPairs],
    replicates: int = 1000,
    seed: int = 0,
    threshold_min: float | None = None,
) -> tuple[dict[str, Replicates], Replicates, Replicates]:
    """Replicates of F1max and ROC-AUC for each domain, the pooled pairs, and the domains' pair-weighted mean.

    The papers of all domains are drawn together, and the draws depend only on the set of paper ids,
    `replicates` and `seed`: two models scored on the same pairs meet the same draws, so their replicates can
    be subtracted (`difference`). Every replicate finds its own best threshold (of at least `threshold_min`).
    The mean weighs domains by their drawn pairs.

    Returns:
        (domain -> replicates, pooled, pair-weighted mean).
    """
    everything = _joined(list(domains.values()))
    papers = sorted({*everything.first, *everything.second})
    position = {paper: index for index, paper in enumerate(papers)}
    draws = paper_draws(len(papers), replicates, seed)
    sets = [_Sorted(pairs, position, threshold_min) for pairs in domains.values()]

    per_domain = [found.replicates(draws) for found in sets]
    drawn_pairs = np.stack([found.drawn_pairs(draws) for found in sets])
    mean = {
        name: _weighted(np.stack([found[name] for found in per_domain]), drawn_pairs) for name in BOOTSTRAPPED
    }
    pooled = _Sorted(everything, position, threshold_min).replicates(draws)
    return dict(zip(domains, per_domain, strict=True)), pooled, mean


def interval(values: NDArray[np.float64], level: float = 0.95) -> Interval | None:
    """The percentile interval of replicates; None when the metric was defined in none."""
    defined = values[~np.isnan(values)]
    if defined.size == 0:
        return None
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), int(defined.size))


def difference(first: Replicates, second: Replicates, level: float = 0.95) -> dict[str, Interval | None]:
    """The interval of each metric's paired difference first - second, both from the same draws."""
    return {name: interval(first[name] - second[name], level) for name in first}


def _joined(sets: Sequence[ScoredPairs]) -> ScoredPairs:
    return ScoredPairs(
        np.concatenate([pairs.scores for pairs in sets]),
        np.concatenate([pairs.labels for pairs in sets]),
        [paper for pairs in sets for paper in pairs.first],
        [paper for pairs in sets for paper in pairs.second],
    )


def _weighted(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over axis 0; a domain of which nothing was drawn has weight 0 and may be undefined."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: NDArray[np.float64] = np.where(weights > 0, values * weights, 0).sum(0) / weights.sum(0)
    return mean


class _Sorted:
    """Pairs in descending order of score, once, so that a replicate costs two cumulative sums."""

    def __init__(
        self, pairs: ScoredPairs, position: Mapping[str, int], threshold_min: float | None = None
    ) -> None:
        scores, labels = checked_pairs(pairs.scores, pairs.labels)
        order = np.argsort(-scores, kind="stable")
        self.labels = labels[order]
        self.first = np.array([position[paper] for paper in pairs.first])[order]
        self.second = np.array([position[paper] for paper in pairs.second])[order]
        self.last_of_value = np.flatnonzero(np.diff(scores[order], append=-np.inf))
        lowest = -np.inf if threshold_min is None else threshold_min
        self.candidates = int((scores[order][self.last_of_value] >= lowest).sum())

    def _batches(self, draws: NDArray[np.int64]) -> Iterator[NDArray[np.float64]]:
        step = max(1, CELLS_AT_ONCE // self.labels.size)
        for start in range(0, len(draws), step):
            rows = draws[start : start + step]
            yield (rows[:, self.first] * rows[:, self.second]).astype(np.float64)

    def drawn_pairs(self, draws: NDArray[np.int64]) -> NDArray[np.float64]:
        """The sum of the pairs' weights in each replicate: shape (replicates,)."""
        return np.concatenate([weights.sum(1) for weights in self._batches(draws)])

    def replicates(self, draws: NDArray[np.int64]) -> Replicates:
        """F1max and ROC-AUC of each replicate; NaN where a replicate has no pair of a class that it needs."""
        found = [self._measure(weights) for weights in self._batches(draws)]
        return {name: np.concatenate([part[name] for part in found]) for name in BOOTSTRAPPED}

    def _measure(self, weights: NDArray[np.float64]) -> Replicates:
        called = weights.cumsum(1)[:, self.last_of_value]
        true = (weights * self.labels).cumsum(1)[:, self.last_of_value]
        positives = true[:, -1:]
        false = called - true
        negatives = false[:, -1]
        with np.errstate(invalid="ignore", divide="ignore"):
            f1 = (2 * true / (called + positives))[:, : self.candidates]
            f1_max = np.where(positives[:, 0] > 0, f1.max(1, initial=0), np.nan)
            # Pairs of a positive and a negative, ties counted as half: the area under the ROC's lines.
            true_before = np.hstack([np.zeros_like(positives), true[:, :-1]])
            area = np.diff(false, axis=1, prepend=0) * (true + true_before)
            roc_auc = area.sum(1) / (2 * positives[:, 0] * negatives)
        return {"f1_max": f1_max, "roc_auc": roc_auc}
