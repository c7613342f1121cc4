"""Wilcoxon's signed-rank test between all pairs of models of a single run, with Holm's correction.

The paired values must not depend on a model's scale of cosines, and must be independent of each other. So the
pairs are divided into blocks of papers, and the value of a block is its area under the ROC curve: the
probability that a linked pair of the block scores above an unlinked one. The test asks whether one model
orders pairs better.

The placement of each single pair (the share of the other class that scores lower) is not independent: all
linked pairs are compared with the same unlinked ones, and in simulations two equal models then differ
"significantly" in a third of the cases. With blocks, a paper may still occur in pairs of two blocks, which
makes p-values slightly too small.

The test is for two fixed models. It knows nothing of seeds: with areas averaged over their runs, two equal
ways of training differ "significantly" in far more than 5% of the cases (`benchmarks/interval_coverage.py`).
So models with several runs are compared by the interval of their difference (`evaluation.statistics`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, wilcoxon

from sentence_experts.evaluation.results import PAIR_WEIGHTED_MEAN, POOLED, RankTest, View, view_of_domain
from sentence_experts.evaluation.statistics import ScoredPairs, joined
from sentence_experts.storage import sha256_text

PAIRS_PER_CLASS = 10  # approximate minimum number of linked, and of unlinked, pairs in a block
MAX_BLOCKS_EXACT = 50  # for the exact p-value, which is conservative if there are ties
DECIMALS = 12  # areas closer than this are equal: the rest is rounding

Areas = NDArray[np.float64]  # a value per block, NaN if all pairs of the block are of one class


def areas_by_view(domains: Mapping[str, ScoredPairs]) -> dict[View, Areas]:
    """View -> the blocks' areas. Blocks are within domains, except in the pooled view."""
    of_domain = {domain: block_areas(pairs) for domain, pairs in domains.items()}
    mean = np.concatenate(list(of_domain.values()))
    means = {POOLED: block_areas(joined(list(domains.values()))), PAIR_WEIGHTED_MEAN: mean}
    return means | {view_of_domain(domain): areas for domain, areas in of_domain.items()}


def block_areas(pairs: ScoredPairs) -> Areas:
    """The area under the ROC curve of each block of papers, shape (blocks,)."""
    blocks = paper_blocks(pairs)
    areas = [
        _area(pairs.scores[blocks == block], pairs.labels[blocks == block]) for block in np.unique(blocks)
    ]
    return np.array(areas)


def paper_blocks(pairs: ScoredPairs) -> NDArray[np.int64]:
    """Each pair's block, shape (pairs,): the same for every model and every order of the pairs.

    A pair belongs to that one of its two papers that occurs in more pairs (the first by name if equal), so
    the pairs of a frequent paper stay together. Papers are dealt to blocks in the order of their hashed
    names.
    """
    occurrences = Counter([*pairs.first, *pairs.second])
    holders = [
        min(papers, key=lambda paper: (-occurrences[paper], paper))
        for papers in zip(pairs.first, pairs.second, strict=True)
    ]
    linked = int(pairs.labels.sum())
    count = max(1, min(linked, len(pairs.labels) - linked) // PAIRS_PER_CLASS)
    block = {paper: rank % count for rank, paper in enumerate(sorted(set(holders), key=sha256_text))}
    return np.array([block[paper] for paper in holders])


def rank_tests(areas: Mapping[str, Mapping[View, Areas]]) -> tuple[RankTest, ...]:
    """Every pair of models in every view; `areas` maps model label -> view -> areas of the same blocks.

    A view in which no block has both classes is left out.
    """
    tests: list[RankTest] = []
    for view in next(iter(areas.values()), {}):
        compared = [
            (first, second, *signed_rank(areas[first][view], areas[second][view]))
            for first, second in combinations(areas, 2)
            if np.isfinite(areas[first][view]).any()
        ]
        corrected = holm([p_value for *_, p_value in compared])
        tests += [
            RankTest(first, second, view, blocks, p_value, p_holm)
            for (first, second, blocks, p_value), p_holm in zip(compared, corrected, strict=True)
        ]
    return tuple(tests)


def signed_rank(first: Areas, second: Areas) -> tuple[int, float]:
    """(number of blocks in which the two differ, two-sided p-value); 1.0 if they differ nowhere."""
    gaps = np.round(first - second, DECIMALS)
    gaps = gaps[np.isfinite(gaps) & (gaps != 0)]
    if len(gaps) == 0:
        return 0, 1.0
    # Given explicitly: scipy's own choice for few values with ties takes seconds per test.
    method = "exact" if len(gaps) <= MAX_BLOCKS_EXACT else "asymptotic"
    return len(gaps), float(wilcoxon(gaps, method=method).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for their number, in their order (Holm, Scand. J. Stat. 1979)."""
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    stepped = values[order] * np.arange(len(values), 0, -1)
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return [float(value) for value in corrected]


def _area(scores: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """The area under the ROC curve from the ranks (Mann and Whitney); ties count half."""
    linked, pairs = int(labels.sum()), len(labels)
    if linked in (0, pairs):
        return np.nan
    ranks = rankdata(scores)[labels == 1].sum()
    return float((ranks - linked * (linked + 1) / 2) / (linked * (pairs - linked)))
