"""F1max and ROC-AUC of pairs as estimates with intervals: values, and each pair's influence on them.

**F1max** is the maximum of a noisy curve, so on a sample it is too high, and the percentiles of a bootstrap
lie higher still. The interval is symmetric around the F1 that these pairs give, on average, at the best
thresholds of bootstrap replicates. These draw the n papers n times with replacement; a pair (a, b) counts
w_a * w_b times (Davezies, D'Haultfoeuille & Guyonvarch, Annals of Statistics 2021). A replicate's threshold
is too well adapted to the pairs, of which it is made, and not well enough, because the replicate adds noise:
three times the noise of one pair (the variance of its weight), and then both errors cancel out, exactly so in
the limit, where the curve is a parabola and its noise a Brownian motion.

**No errors.** Where all linked pairs score higher than all others, no influence shows how other pairs would
score. The variance is then, for ROC-AUC, that of one pair of each class whose place could be any: (1/a^2 +
1/b^2) / 4, for a and b pairs, and for F1max twice that. On simulated pairs such intervals are rather too wide
than too narrow. Linked pairs alone of which none is found, an F1max of 0, show as little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from sentence_experts.evaluation.estimates import CELLS_AT_ONCE, Floats, Runs, ScoredPairs, Sharing
from sentence_experts.evaluation.metrics import check_pairs, lowest_threshold

Draws = NDArray[np.uint16]  # number of times each paper is sampled, shape (replicates, papers)

METRICS_WITH_INTERVAL = ("f1_max", "roc_auc")
MAX_RELATED = 0.5  # share of related pairs in a set that is allowed for
# Thresholds adapt to the pairs. In differences this is left out, which made errors of two equally good models
# up to a sixth too small on simulated pairs (benchmarks/interval_coverage.py).
ADAPTED = 1.15
UNSEEN = {"roc_auc": 0.25, "f1_max": 0.5}  # variance of a model without errors, for one pair of a class
# F1 of linked pairs alone is 2r / (1 + r) of the share r that is found: four times as steep at 0 as at 1.
NONE_FOUND = 4.0**2


def runs_of(
    domains: Mapping[str, ScoredPairs],
    replicates: int = 1000,
    seed: int = 0,
    threshold_min: float | None = None,
) -> tuple[dict[str, dict[str, Runs]], dict[str, Runs], dict[str, Runs]]:
    """Estimate F1max and ROC-AUC of a single run: in each domain, on the pooled pairs, and their mean.

    `domains` have their pairs in the same order for all models. Returns (domain -> metric -> run, metric ->
    run on the pooled pairs, metric -> mean over the domains).
    """
    bootstrap = replicates, seed, threshold_min
    by_domain = {name: _runs([pairs], *bootstrap) for name, pairs in domains.items()}
    if len(domains) == 1:
        only = next(iter(by_domain.values()))
        return by_domain, only, only
    pooled = _runs(list(domains.values()), *bootstrap)
    sizes = np.array([len(pairs.labels) for pairs in domains.values()])
    mean = {}
    for metric, run in pooled.items():
        shares = list(zip(sizes / sizes.sum(), [each[metric] for each in by_domain.values()], strict=True))
        values = np.sum([share * each.values for share, each in shares], axis=0)
        influence, averaged = (
            np.hstack([share * getattr(each, name) for share, each in shares])
            for name in ("influence", "averaged")
        )
        unseen = float(sum(share**2 * each.unseen for share, each in shares))
        mean[metric] = Runs(values, influence, averaged, run.sharing, unseen)
    return by_domain, pooled, mean


class _Pairs(NamedTuple):
    """Pairs of one set or several: scores, labels, and the number of the set, each of shape (pairs,)."""

    scores: Floats
    labels: NDArray[np.int64]
    sets: NDArray[np.int64]
    sharing: Sharing


def _runs(
    sets: Sequence[ScoredPairs], replicates: int, seed: int, threshold_min: float | None
) -> dict[str, Runs]:
    """Return both metrics of one run on the pairs of some sets."""
    everything = ScoredPairs.joined(sets)
    number = np.repeat(np.arange(len(sets)), [len(each.labels) for each in sets])
    scored = check_pairs(everything.scores, everything.labels)
    threshold_min = lowest_threshold(everything.labels, threshold_min)
    pairs = _Pairs(*scored, number, Sharing.of(everything))
    f1_max, at_best, averaged = _f1_max(pairs, replicates, seed, threshold_min)
    roc_auc, influence = _roc_auc(pairs)
    runs = {
        "f1_max": Runs(np.array([f1_max]), at_best[np.newaxis], averaged[np.newaxis], pairs.sharing),
        "roc_auc": Runs(np.array([roc_auc]), influence[np.newaxis], influence[np.newaxis], pairs.sharing),
    }
    classes = np.unique(pairs.labels)
    # Linked pairs alone, all above the lowest threshold or all below it.
    is_all_or_none = len(classes) == 1 and f1_max in (0.0, 1.0)
    if not is_all_or_none and roc_auc not in (0.0, 1.0):
        return runs
    unseen = sum(1 / _effective_size(pairs, int(label)) ** 2 for label in classes)
    unseen *= NONE_FOUND if is_all_or_none and f1_max == 0.0 else 1.0
    return {name: replace(run, unseen=UNSEEN[name] * unseen) for name, run in runs.items()}


def _effective_size(pairs: _Pairs, label: int) -> float:
    """Return the number of pairs of a class, less as they are related."""
    own = (pairs.labels == label).astype(np.float64)
    related = pairs.sharing.variance(own) / own.sum() ** 2
    return float(own.sum() * (1 - min(related, MAX_RELATED)) ** 0.5)


def _roc_auc(pairs: _Pairs) -> tuple[float, Floats]:
    """Return the area and each pair's influence on it (DeLong, DeLong & Clarke-Pearson, Biometrics 1988)."""
    placements = np.full(len(pairs.labels), np.nan)
    if not 0 < pairs.labels.sum() < len(pairs.labels):
        return np.nan, placements
    ranks = rankdata(pairs.scores)
    for label in (0, 1):
        own = pairs.labels == label
        # The share of the other class that scores lower (for unlinked pairs: higher); ties count half.
        lower = (ranks[own] - rankdata(pairs.scores[own])) / (~own).sum()
        placements[own] = lower if label else 1 - lower
    return float(placements[pairs.labels == 1].mean()), _centre(placements, pairs)


def _f1_max(
    pairs: _Pairs, replicates: int, seed: int, threshold_min: float | None
) -> tuple[float, Floats, Floats]:
    """Return F1 at the best thresholds of replicates; influences at the best of the pairs, and at those."""
    scores, labels = pairs.scores, pairs.labels
    order = np.argsort(-scores, kind="stable")
    lowest = -np.inf if threshold_min is None else threshold_min
    # The last pair of each candidate threshold; pairs[order] up to it are called linked.
    last = np.flatnonzero((np.diff(scores[order], append=-np.inf) < 0) & (scores[order] >= lowest))
    positives = int(labels.sum())
    if not positives:
        return np.nan, (undefined := np.full(len(labels), np.nan)), undefined
    # With each threshold, and (last) with no pair called linked.
    true = np.append(labels[order].cumsum()[last], 0)
    false = np.append(last + 1, 0) - true
    curve = 2 * true / (true + false + positives)
    best = np.zeros(len(curve))
    best[len(last) - int(curve[::-1].argmax())] = 1  # the lowest of equally good thresholds
    papers = pairs.sharing.first[order], pairs.sharing.second[order]
    adapted = _best_in_replicates(*papers, labels[order], last, replicates, seed)
    slopes = np.stack([-true * (len(labels) - positives), (false + positives) * positives])
    slopes = 2 * slopes / (true + false + positives) ** 2

    def influence(thresholds: Floats) -> Floats:
        """Return each pair's influence on the mean F1 of weighted thresholds, where it is called linked."""
        sums = (slopes * thresholds)[:, :-1][:, ::-1].cumsum(1)[:, ::-1]
        called = np.zeros(len(labels))
        within = np.searchsorted(last, np.arange(len(labels)))
        called[order] = np.pad(sums, ((0, 0), (0, 1)))[labels[order], within]
        return _centre(called, pairs)

    value, at_best, averaged = float(curve @ adapted), influence(best), influence(adapted)
    if threshold_min is None:  # calling every pair linked gives an F1 that does not vary, and no less
        value = max(value, float(curve[-2]))
    # Calling (nearly) every pair linked gives an F1 that does not vary, and is not known to be the best.
    return value, max(at_best, averaged, key=pairs.sharing.variance), averaged * ADAPTED


def _best_in_replicates(
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    linked: NDArray[np.int64],
    last: NDArray[np.int64],
    replicates: int,
    seed: int,
) -> Floats:
    """Return the number of replicates in which each threshold, or none, is the best: (thresholds + 1,).

    `first` and `second` are the numbers of the papers of each pair, the highest score first, `linked` its
    label, each (pairs,); `last` is the last pair above each threshold.
    """
    draws = _draw_papers(int(max(first.max(), second.max())) + 1, replicates, seed)
    counts = np.zeros(len(last) + 1)
    step = max(1, CELLS_AT_ONCE // len(linked))
    for start in range(0, replicates, step):
        rows = draws[start : start + step]
        weights = rows[:, first].astype(np.float64) * rows[:, second]
        classes = []
        for own in (linked, 1 - linked):
            sums = (weights * own).cumsum(1)
            # The weights of a class add up to its number of pairs: that was chosen, not sampled.
            with np.errstate(invalid="ignore", divide="ignore"):
                classes.append(sums[:, last] * (own.sum() / sums[:, -1:] if own.any() else 1.0))
        true, false = classes
        curves = np.pad(2 * true / (true + false + linked.sum()), ((0, 0), (0, 1)))
        # A replicate without pairs of a class is left out; of equal values the lowest threshold is the best.
        lowest_first = curves[~np.isnan(curves).any(1), ::-1]
        counts += np.bincount(len(last) - lowest_first.argmax(1), minlength=len(counts))
    return counts / counts.sum() if counts.any() else np.full(len(counts), np.nan)


@lru_cache(maxsize=16)  # shared by the models of an evaluation
def _draw_papers(papers: int, replicates: int, seed: int) -> Draws:
    generator, shares = np.random.default_rng(seed), np.full(papers, 1 / papers)
    return np.stack([generator.multinomial(papers, shares).astype(np.uint16) for _ in range(replicates)])


def _centre(values: Floats, pairs: _Pairs) -> Floats:
    """Return the part of each pair in the error of its class's mean, (pairs,): its deviation in its set.

    Deviations from a mean are smaller than errors, the more so the more of the pairs are related.
    """
    centred = np.zeros(len(values))
    for label in (0, 1):
        size = int((pairs.labels == label).sum())
        for number in np.unique(pairs.sets):
            own = (pairs.labels == label) & (pairs.sets == number)
            if count := int(own.sum()):
                related = pairs.sharing.variance(own.astype(np.float64)) / count**2
                correction = 1 / np.sqrt(1 - min(related, MAX_RELATED))
                centred[own] = (values[own] - values[own].mean()) * correction / size
    return centred
