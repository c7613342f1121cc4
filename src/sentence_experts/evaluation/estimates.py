"""Estimates with confidence intervals that allow for pairs that share a paper, and for seeds.

**Papers.** The influence of a pair is how much the metric would move, to first order, if the pair counted
more; the variance is the sum of the products of the influences of all pairs that share a paper, each pair
with itself too (Fafchamps & Gubert, Journal of Development Economics 2007; Aronow, Samii & Assenova,
Political Analysis 2015). It is at least as for independent pairs, where two papers that are a pair under
several routes count as one pair. Pairs that an article links may count as related too. The numbers of pairs
of each class and domain were chosen and do not vary.

**Seeds.** A mean over k runs varies by s^2 / k, s being the standard deviation of the runs, which holds what
the papers do to each run by itself; what they do to all runs alike, the mean covariance of two runs, is
added. So runs are to papers as readers are to patients in studies of diagnostic images (Obuchowski &
Rockette, Communications in Statistics 1995), with quantiles of Student's t (Hillis, Statistics in Medicine
2007). Few seeds that happen to lie close together make their part look small, which gave 7 to 10% false
positives at 5%; so for the degrees of freedom alone that part is taken at the upper end of its one-sided 75%
interval. And no more than the upper end of the 95% interval is taken off for what papers do to each run,
which would leave nothing where all runs have the lowest F1max that is possible.

The same holds for means over datasets of tasks, each of which is one unit (`runs_of_datasets`).
`benchmarks/interval_coverage.py` measures on simulated worlds how often the intervals hold the true value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import expit, logit
from scipy.stats import chi2, t

Floats = NDArray[np.float64]

ROUNDING = 1e-12  # values below this are 0
SEED_QUANTILE, LEAST_QUANTILE = 0.25, 0.05  # quantiles of the chi-squared that bound the seeds' variance
MOST_STRETCHED = 4.0  # lower part of an area's interval, in halves of a symmetric one
MIN_DATASETS = 5  # fewer datasets are taken as fixed
CELLS_AT_ONCE = 4_000_000  # pairs x pairs, or x replicates, in memory: about 100 MB with intermediates
_UNLIMITED = 1e300  # degrees of freedom, in a number that JSON holds: t is the normal distribution


@dataclass(frozen=True)
class ScoredPairs:
    """Pairs of one domain (or any set): scores and labels, shape (pairs,), and the ids of the two papers.

    `articles` are the ids of the articles that link each pair, if pairs that share one are related.
    """

    scores: Floats
    labels: NDArray[np.int64]
    first: Sequence[str]
    second: Sequence[str]
    articles: Sequence[Sequence[str]] | None = None

    @classmethod
    def joined(cls, sets: Sequence[ScoredPairs]) -> ScoredPairs:
        """Return the pairs of several sets as one."""
        names = ("first", "second", *([] if sets[0].articles is None else ["articles"]))
        lists = [[each for pairs in sets for each in getattr(pairs, name)] for name in names]
        scores, labels = (
            np.concatenate([getattr(pairs, name) for pairs in sets]) for name in ("scores", "labels")
        )
        return cls(scores, labels, *lists)


@dataclass(frozen=True)
class Sharing:
    """Relations between pairs: numbers of the two papers, and of the unordered pair, each (pairs,).

    `clusters`, of shape (pairs, papers and articles), is above 0 where a pair has one, if articles relate
    pairs too. `freedom` is the variance's; for datasets, their number less one, or 0 if they are fixed.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    both: NDArray[np.int64]
    clusters: csr_array | None = None
    freedom: float = np.inf

    @classmethod
    def of(cls, pairs: ScoredPairs) -> Sharing:
        """Number the papers of these pairs in the order of their names."""
        papers = np.unique([*pairs.first, *pairs.second], return_inverse=True)[1]
        first, second = papers[: len(pairs.first)], papers[len(pairs.first) :]
        low, high = np.minimum(first, second), np.maximum(first, second)
        both = np.unique(low * len(papers) + high, return_inverse=True)[1]
        if pairs.articles is None:
            return cls(first, second, both)
        each = np.arange(len(first))
        pair_numbers = np.repeat(each, [len(ids) for ids in pairs.articles])
        names = np.array([name for ids in pairs.articles for name in ids], dtype=str)
        articles = len(papers) + np.unique(names, return_inverse=True)[1]
        rows, columns = np.concatenate([each, each, pair_numbers]), np.concatenate([first, second, articles])
        clusters = csr_array((np.ones(len(rows), dtype=np.float32), (rows, columns)))
        return cls(first, second, both, clusters)

    def variance(self, influence: Floats) -> float:
        """Return the variance of the sum of the pairs' influences, shape (pairs,)."""
        # Two papers may be a pair under several routes, and what they add to these may cancel out.
        pair_variance = float((np.bincount(self.both, influence) ** 2).sum())
        if self.clusters is not None:
            return max(_variance_in_clusters(self.clusters, influence), pair_variance)
        papers = np.concatenate([self.first, self.second])
        by_paper = np.bincount(papers, np.tile(influence, 2))
        return max(float((by_paper**2).sum()) - pair_variance, pair_variance)


@dataclass(frozen=True)
class Runs:
    """A metric in each run of a model on the same pairs; NaN if undefined.

    Attributes:
        values: values of the metric without the bias of a maximum, shape (runs,).
        influence: influence of each pair on the metric, shape (runs, pairs).
        averaged: influence in differences of models, where that on F1max is averaged over the thresholds
            of the replicates: how these vary, which makes F1max itself less certain, mostly cancels out.
        sharing: relations of the pairs that share a paper.
        unseen: variance that the pairs cannot show, since the runs make no error on them.
    """

    values: Floats
    influence: Floats
    averaged: Floats
    sharing: Sharing
    unseen: float = 0.0

    @classmethod
    def joined(cls, runs: Sequence[Runs]) -> Runs:
        """Return several runs as one model."""
        names = ("values", "influence", "averaged")
        values, influence, averaged = (np.concatenate([getattr(run, name) for run in runs]) for name in names)
        unseen = float(np.mean([run.unseen for run in runs]))
        return cls(values, influence, averaged, runs[0].sharing, unseen)

    def minus(self, other: Runs) -> tuple[Runs, ...]:
        """Return the difference of two models, as terms whose means add up to it.

        With equal numbers of runs these are paired in order, so that an effect of the seed on both cancels
        out.
        """
        opposite = Runs(-other.values, -other.averaged, -other.averaged, other.sharing, other.unseen)
        if len(other.values) != len(self.values):
            return Runs(self.values, self.averaged, self.averaged, self.sharing, self.unseen), opposite
        influence, unseen = self.averaged + opposite.averaged, self.unseen + other.unseen
        return (Runs(self.values + opposite.values, influence, influence, self.sharing, unseen),)


@dataclass(frozen=True)
class Interval:
    """A 95% interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """A metric or a difference of two, its standard error, and the degrees of freedom of that.

    `unseen` is the part of the variance, the square of the standard error, that the pairs cannot show.
    """

    value: float
    error: float
    freedom: float
    unseen: float = 0.0

    def interval(self, lowest: float = -1.0, highest: float = 1.0, level: float = 0.95) -> Interval:
        """Return the interval, within the range of possible values."""
        half = self.error * float(t.isf((1 - level) / 2, self.freedom))
        low, high = np.clip([self.value - half, self.value + half], lowest, highest)
        return Interval(float(low), float(high))

    def interval_of_area(self) -> Interval:
        """Return the interval of a ROC-AUC, symmetric around its logit: an area near 1 can err further down
        than up (Qin & Hotilovac, Statistical Methods in Medical Research 2008).

        The variance that the pairs cannot show is no matter of the logit, which would stretch it without
        bound: its interval is symmetric, and both are joined by the squares of their lengths (MOVER; Zou &
        Donner, Statistics in Medicine 2008). Few seeds near 1 would do the same, so no end is stretched more
        than four times.
        """
        if not (0.0 < self.value < 1.0) or self.error < ROUNDING:
            return self.interval(0.0)
        slope, seen = self.value * (1 - self.value), max(self.error**2 - self.unseen, 0.0) ** 0.5
        on_logits, *halves = (
            Estimate(value, error, self.freedom).interval(-np.inf, np.inf)
            for value, error in (
                (float(logit(self.value)), seen / slope),
                (0.0, seen),
                (0.0, self.unseen**0.5),
            )
        )
        linear, unseen = (half.high for half in halves)
        down, up = (
            np.hypot(min(abs(self.value - float(expit(end))), MOST_STRETCHED * linear), unseen)
            for end in (on_logits.low, on_logits.high)
        )
        return Interval(max(0.0, self.value - float(down)), min(1.0, self.value + float(up)))

    def p_value(self) -> float:
        """Return the two-sided p-value of a true value of 0: below 0.05 if the 95% interval leaves out 0."""
        if self.error < ROUNDING:
            return 1.0 if abs(self.value) < ROUNDING else 0.0
        return float(2 * t.sf(abs(self.value) / self.error, self.freedom))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values corrected for their number, in their order (Holm, Scand. J. Stat. 1979)."""
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    corrected = np.empty_like(values)
    stepped = values[order] * np.arange(len(values), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return [float(value) for value in corrected]


def estimate(*terms: Runs) -> Estimate | None:
    """Return the sum of the terms' means over runs; None if it is undefined, or nothing known varies."""
    value = sum(float(term.values.mean()) for term in terms)
    if np.isnan(value):
        return None
    sharing, seeded = terms[0].sharing, [term for term in terms if len(term.values) > 1]
    variance = sharing.variance(np.sum([term.influence.mean(0) for term in terms], axis=0))
    variance += sum(term.unseen for term in terms)
    of_seeds, parts = 0.0, list[tuple[float, float]]()  # as the degrees of freedom count them
    for term in seeded:
        seed_variance, freedom = float(np.var(term.values, ddof=1)) / len(term.values), len(term.values) - 1
        larger, largest = seed_variance * freedom / chi2.ppf([SEED_QUANTILE, LEAST_QUANTILE], freedom)
        # Without what papers do to each run by itself, as far as the runs vary: it is in their variance.
        variance -= min(_of_single_runs(term), float(largest))
        of_seeds += seed_variance
        parts.append((float(larger), freedom))
    variance = max(0.0, variance)
    if sharing.freedom:
        parts.append((variance, sharing.freedom))
    if not parts:
        return None
    uncertainty = sum(part**2 / freedom for part, freedom in parts)
    whole = sum(part for part, _ in parts)
    degrees = whole**2 / uncertainty if uncertainty else _UNLIMITED
    return Estimate(value, (variance + of_seeds) ** 0.5, degrees, sum(term.unseen for term in terms))


def _of_single_runs(term: Runs) -> float:
    """Return the variance over papers of the mean of what these do to each run by itself."""
    own = term.influence - term.influence.mean(0)
    count = len(own)
    return sum(term.sharing.variance(influence) for influence in own) / (count * (count - 1))


def runs_of_datasets(scores: Floats) -> Runs:
    """Return the mean over datasets of each run of a model; `scores` has the shape (runs, datasets).

    Datasets count as drawn at random if there are at least `MIN_DATASETS`; fewer are taken as they are, and
    what is found holds for these.
    """
    count = scores.shape[1]
    mean = scores.mean(axis=1)
    influence = np.zeros_like(scores)
    if count >= MIN_DATASETS:
        influence = (scores - mean[:, np.newaxis]) / np.sqrt(count * (count - 1))
    each = np.arange(count)
    freedom = count - 1 if count >= MIN_DATASETS else 0
    return Runs(mean, influence, influence, Sharing(each, count + each, each, freedom=freedom))


def _variance_in_clusters(clusters: csr_array, influence: Floats) -> float:
    """Return the sum of the products of the influences of all pairs that share a cluster."""
    counted = np.flatnonzero(influence)
    if not len(counted):
        return 0.0
    clusters, influence = clusters[counted], influence[counted]
    total, transposed = 0.0, clusters.T.tocsr()
    step = max(1, CELLS_AT_ONCE // len(influence))
    for start in range(0, len(influence), step):
        related = clusters[start : start + step] @ transposed
        related.data[:] = 1.0
        total += float(influence[start : start + step] @ (related @ influence))
    return total
