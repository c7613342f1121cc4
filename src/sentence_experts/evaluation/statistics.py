"""Confidence intervals of metrics, by bootstraps that resample papers instead of pairs.

Pairs that share a paper are not independent, so papers are resampled. In a replicate the n papers of the
evaluated pairs are drawn n times with replacement; a pair (a, b) then counts w_a * w_b times, w being the
number of times that a paper was drawn: the bootstrap of dyadic arrays (Davezies, D'Haultfoeuille &
Guyonvarch, Annals of Statistics 2021; Owen, "The pigeonhole bootstrap", Annals of Applied Statistics 2007).

Alone, it counts the noise of a single pair three times (the variance of the weight is 3, that of pairs
sharing one paper 1), so its intervals are up to sqrt(3) times too wide. A bootstrap of pairs measures the
surplus, which is subtracted as in multiway clustering (Cameron, Gelbach & Miller, JBES 2011): the variance is
that over papers minus twice that over pairs, and at least that over pairs. The percentiles are moved towards
the metric by the root of that share.

A mean over k training runs varies with their seeds too. Drawing k seeds with replacement would show only
(k - 1)/k of that variance, two thirds for three seeds, and treat it as known. Instead it is added: variance +
s^2/k, s being the standard deviation of the runs, and the ends are moved outwards by Student's t with the
degrees of freedom of Welch and Satterthwaite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from sentence_experts.evaluation.metrics import checked_pairs

BOOTSTRAPPED = ("f1_max", "roc_auc")
ROUNDING = 1e-24  # variances below this are 0
CELLS_AT_ONCE = 4_000_000  # replicates x pairs in memory: about 100 MB with intermediates

WEIGHT = "weight"  # stands with the metrics of a replicate: the sum of its pairs' weights

_Values = dict[str, NDArray[np.float64]]  # metric (or `WEIGHT`) -> (replicates,)
Draws = NDArray[np.uint16]  # number of times each item is sampled, shape (replicates, items)


@dataclass(frozen=True)
class Replicates:
    """The bootstrap replicates of a metric, shape (replicates,), NaN if undefined.

    Attributes:
        by_papers, by_pairs: with papers resampled, and with pairs resampled.
        runs: the metric of each training run: one tuple per mean over independent runs; empty for a model of
            a single run.
    """

    by_papers: NDArray[np.float64]
    by_pairs: NDArray[np.float64]
    runs: tuple[tuple[float, ...], ...] = ()

    def __sub__(self, other: Replicates) -> Replicates:
        """The replicates of the difference of two models with the same draws.

        If both have the same number of runs, these are paired in order, so that an effect of the seed on
        both cancels out.
        """
        runs = self.runs + other.runs
        if len(self.runs) == len(other.runs) == 1 and len(self.runs[0]) == len(other.runs[0]):
            runs = (tuple(a - b for a, b in zip(self.runs[0], other.runs[0], strict=True)),)
        return Replicates(self.by_papers - other.by_papers, self.by_pairs - other.by_pairs, runs)


Bootstrapped = dict[str, Replicates]  # metric -> replicates


@dataclass(frozen=True)
class Interval:
    """A 95% interval; `replicates` is the number of those in which the metric was defined."""

    low: float
    high: float
    replicates: int


@dataclass(frozen=True)
class ScoredPairs:
    """Pairs of one domain (or any set): scores and labels, shape (pairs,), and the ids of the two papers."""

    scores: NDArray[np.float64]
    labels: NDArray[np.int64]
    first: Sequence[str]
    second: Sequence[str]


def bootstrap(
    domains: Mapping[str, ScoredPairs],
    replicates: int = 1000,
    seed: int = 0,
    threshold_min: float | None = None,
) -> tuple[dict[str, Bootstrapped], Bootstrapped, Bootstrapped]:
    """Replicates of F1max and ROC-AUC: each domain, the pooled pairs, the pair-weighted mean of the domains.

    The papers (and pairs) of all domains are resampled together, and the draws depend only on the paper ids,
    the number of pairs, `replicates` and `seed`: two models scored on the same pairs have the same draws, so
    their replicates can be subtracted. Every replicate has its own best threshold (at least `threshold_min`).
    The mean weights domains by their resampled pairs.

    Returns:
        (domain -> replicates, pooled, pair-weighted mean).
    """
    everything = joined(list(domains.values()))
    papers = sorted({*everything.first, *everything.second})
    position = {paper: index for index, paper in enumerate(papers)}
    # Draws refer to pairs by name, so that the order in which pairs are given does not matter.
    ranks = _ranks(domains)
    starts = np.cumsum([0, *(len(pairs.labels) for pairs in domains.values())])
    sets = [
        _Sorted(pairs, position, ranks[start : start + len(pairs.labels)], threshold_min)
        for start, pairs in zip(starts, domains.values(), strict=False)
    ]
    pooled = _Sorted(everything, position, ranks, threshold_min)
    paper_draws, pair_draws = _draws(len(papers), len(ranks), replicates, seed)

    # Per set: its metrics and weights with papers resampled, and with pairs resampled.
    values = [each.replicates(paper_draws, pair_draws) for each in sets]
    by_domain = {domain: _of_sides(sides) for domain, sides in zip(domains, values, strict=True)}
    of_papers, of_pairs = zip(*values, strict=True)
    mean = {name: Replicates(_weighted(of_papers, name), _weighted(of_pairs, name)) for name in BOOTSTRAPPED}
    return by_domain, _of_sides(pooled.replicates(paper_draws, pair_draws)), mean


def resampled(items: int, replicates: int, generator: np.random.Generator) -> Draws:
    """The number of times each item is drawn in each replicate; each row sums to `items`."""
    shares = np.full(items, 1 / items)
    rows = [generator.multinomial(items, shares).astype(np.uint16) for _ in range(replicates)]
    return np.stack(rows)


def interval(replicates: Replicates, value: float | None, level: float = 0.95) -> Interval | None:
    """The interval of a metric; None if the metric or all its replicates are undefined."""
    defined = replicates.by_papers[~np.isnan(replicates.by_papers)]
    if value is None or defined.size == 0:
        return None
    by_papers, by_pairs = float(np.var(defined)), float(np.nanvar(replicates.by_pairs))
    of_papers = min(max(by_papers - 2 * by_pairs, by_pairs), by_papers)
    of_seeds, factor = _seeds(replicates.runs, of_papers, level)
    ends = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2]) - value
    if by_papers > ROUNDING:
        low, high = value + factor * np.sqrt((of_papers + of_seeds) / by_papers) * ends
    else:  # the percentiles are all the same, but the runs may still differ
        half = factor * norm.isf((1 - level) / 2) * np.sqrt(of_seeds)
        low, high = value + ends + (-half, half)
    return Interval(float(low), float(high), int(defined.size))


def _seeds(runs: Sequence[Sequence[float]], of_papers: float, level: float) -> tuple[float, float]:
    """The variance that seeds add to the mean of runs, and the ratio of the quantiles of t and the normal."""
    added = [(float(np.var(values, ddof=1)) / len(values), len(values) - 1) for values in runs]
    of_seeds = sum(variance for variance, _ in added)
    if of_seeds == 0:
        return 0.0, 1.0
    freedom = (of_papers + of_seeds) ** 2 / sum(variance**2 / degrees for variance, degrees in added)
    return of_seeds, float(t.isf((1 - level) / 2, freedom) / norm.isf((1 - level) / 2))


@lru_cache(maxsize=1)  # shared by the models of an evaluation
def _draws(papers: int, pairs: int, replicates: int, seed: int) -> tuple[Draws, Draws]:
    generator = np.random.default_rng(seed)
    return resampled(papers, replicates, generator), resampled(pairs, replicates, generator)


def _ranks(domains: Mapping[str, ScoredPairs]) -> NDArray[np.int64]:
    """The rank of each pair by name, shape (pairs,), so that a draw refers to the same pairs for all models.

    Scores come last: they only order pairs with the same name, such as one that is given twice.
    """
    keys = [
        (first, second, label, domain, score)
        for domain, pairs in domains.items()
        for first, second, label, score in zip(
            pairs.first, pairs.second, pairs.labels.tolist(), pairs.scores.tolist(), strict=True
        )
    ]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    ranks = np.empty(len(keys), dtype=np.int64)
    ranks[order] = np.arange(len(keys))
    return ranks


def joined(sets: Sequence[ScoredPairs]) -> ScoredPairs:
    """The pairs of several sets as one."""
    return ScoredPairs(
        np.concatenate([pairs.scores for pairs in sets]),
        np.concatenate([pairs.labels for pairs in sets]),
        [paper for pairs in sets for paper in pairs.first],
        [paper for pairs in sets for paper in pairs.second],
    )


def _of_sides(sides: tuple[_Values, _Values]) -> Bootstrapped:
    by_papers, by_pairs = sides
    return {name: Replicates(by_papers[name], by_pairs[name]) for name in BOOTSTRAPPED}


def _weighted(sets: Sequence[_Values], name: str) -> NDArray[np.float64]:
    """Mean over domains; a domain without resampled pairs has weight 0 and may be undefined."""
    stacked, weight = (np.stack([values[each] for values in sets]) for each in (name, WEIGHT))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: NDArray[np.float64] = np.where(weight > 0, stacked * weight, 0).sum(0) / weight.sum(0)
    return mean


class _Sorted:
    """Pairs sorted once in descending order of score, so that a replicate costs two cumulative sums."""

    def __init__(
        self,
        pairs: ScoredPairs,
        position: Mapping[str, int],
        ranks: NDArray[np.int64],
        threshold_min: float | None,
    ) -> None:
        scores, labels = checked_pairs(pairs.scores, pairs.labels)
        order = np.argsort(-scores, kind="stable")
        self.labels = labels[order]
        self.first = np.array([position[paper] for paper in pairs.first])[order]
        self.second = np.array([position[paper] for paper in pairs.second])[order]
        self.ranks = ranks[order]
        self.last_of_value = np.flatnonzero(np.diff(scores[order], append=-np.inf))
        lowest = -np.inf if threshold_min is None else threshold_min
        self.candidates = int((scores[order][self.last_of_value] >= lowest).sum())

    def replicates(self, paper_draws: Draws, pair_draws: Draws) -> tuple[_Values, _Values]:
        """With papers resampled, and with pairs resampled: both metrics and the sum of the pairs' weights.

        A metric is NaN if a replicate lacks pairs of a class that it needs.
        """
        weigh = lambda rows: rows[:, self.first].astype(np.float64) * rows[:, self.second]  # noqa: E731
        by_papers = self._in_batches(paper_draws, weigh)
        return by_papers, self._in_batches(pair_draws, lambda rows: rows[:, self.ranks].astype(np.float64))

    def _in_batches(self, draws: Draws, weigh: Callable[[Draws], NDArray[np.float64]]) -> _Values:
        step = max(1, CELLS_AT_ONCE // self.labels.size)
        parts = [self._metrics(weigh(draws[start : start + step])) for start in range(0, len(draws), step)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _metrics(self, weights: NDArray[np.float64]) -> _Values:
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
        return {"f1_max": f1_max, "roc_auc": roc_auc, WEIGHT: weights.sum(1)}
