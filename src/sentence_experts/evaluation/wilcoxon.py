"""Wilcoxon's signed-rank test between all pairs of models, with Holm's correction.

The paired values must not depend on a model's scale of cosines, and must be independent of each other. So the
pairs are cut into blocks of papers, and a block's value is its area under the ROC curve: the chance that a
linked pair of the block scores above an unlinked one. The test asks whether one model orders pairs better.

Placements of single pairs (the share of the other class that scores lower) would not do: all linked pairs are
placed among the same unlinked ones, so the values are dependent, and in simulations two equal models differ
"significantly" in a third of the cases. What is left here is that a paper may stand in pairs of two blocks,
which makes p-values slightly too small; the bootstrap interval over papers is what to trust.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sentence_experts.evaluation.results import PAIR_WEIGHTED_MEAN, POOLED, RankTest
from sentence_experts.evaluation.statistics import ScoredPairs, joined
from sentence_experts.storage import sha256_text

PAIRS_OF_A_CLASS = 10  # about so many linked and so many unlinked pairs, or more, stand in a block
EXACT_UP_TO = 50  # blocks; scipy's p-value is then conservative where there are ties
DECIMALS = 12  # areas closer than this are equal: the rest is rounding

Areas = NDArray[np.float64]  # a value a block, NaN where a block has pairs of one class only


def areas_by_view(domains: Mapping[str, ScoredPairs]) -> dict[str, Areas]:
    """View -> the blocks' areas. Blocks lie within domains, but for the pooled view across them."""
    found = {domain: block_areas(pairs) for domain, pairs in domains.items()}
    mean = np.concatenate(list(found.values()))
    return {POOLED: block_areas(joined(list(domains.values()))), PAIR_WEIGHTED_MEAN: mean, **found}


def mean_areas(runs: Sequence[Mapping[str, Areas]]) -> dict[str, Areas]:
    """View -> the blocks' areas, averaged over the runs of one model."""
    return {view: np.mean([run[view] for run in runs], axis=0) for view in runs[0]}


def block_areas(pairs: ScoredPairs) -> Areas:
    """The area under the ROC curve of each block of papers, shape (blocks,)."""
    blocks = paper_blocks(pairs)
    areas = [
        _area(pairs.scores[blocks == block], pairs.labels[blocks == block]) for block in np.unique(blocks)
    ]
    return np.array(areas)


def paper_blocks(pairs: ScoredPairs) -> NDArray[np.int64]:
    """Each pair's block, shape (pairs,): the same for every model, in whatever order the pairs come.

    A pair belongs to that of its two papers that stands in more pairs (of equals the first by name), so the
    pairs of a paper with many stay together. Papers are dealt to blocks in the order of their names' hashes.
    """
    stands = Counter(pairs.first)
    stands.update(pairs.second)
    holders = [
        min(papers, key=lambda paper: (-stands[paper], paper))
        for papers in zip(pairs.first, pairs.second, strict=True)
    ]
    linked = int(pairs.labels.sum())
    count = max(1, min(linked, len(pairs.labels) - linked) // PAIRS_OF_A_CLASS)
    block = {paper: rank % count for rank, paper in enumerate(sorted(set(holders), key=sha256_text))}
    return np.array([block[paper] for paper in holders])


def rank_tests(areas: Mapping[str, Mapping[str, Areas]]) -> tuple[RankTest, ...]:
    """Every pair of models in every view; `areas` maps model label -> view -> areas of the same blocks.

    A view in which no block has both classes is left out.
    """
    tests: list[RankTest] = []
    for view in next(iter(areas.values())):
        found = [
            (first, second, *signed_rank(areas[first][view], areas[second][view]))
            for first, second in combinations(areas, 2)
            if np.isfinite(areas[first][view]).any()
        ]
        corrected = holm([p_value for *_, p_value in found])
        tests += [
            RankTest(first, second, view, blocks, p_value, p_holm)
            for (first, second, blocks, p_value), p_holm in zip(found, corrected, strict=True)
        ]
    return tuple(tests)


def signed_rank(first: Areas, second: Areas) -> tuple[int, float]:
    """(blocks in which the two differ, two-sided p-value); 1.0 where they differ nowhere."""
    from scipy.stats import wilcoxon

    gaps = np.round(first - second, DECIMALS)
    gaps = gaps[np.isfinite(gaps) & (gaps != 0)]
    if len(gaps) == 0:
        return 0, 1.0
    # Said, because scipy's own choice for few values with ties takes seconds a test.
    method = "exact" if len(gaps) <= EXACT_UP_TO else "asymptotic"
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
    linked, unlinked = scores[labels == 1], np.sort(scores[labels == 0])
    if len(linked) == 0 or len(unlinked) == 0:
        return np.nan
    below = np.searchsorted(unlinked, linked, "left") + np.searchsorted(unlinked, linked, "right")
    return float(below.sum() / (2 * len(linked) * len(unlinked)))  # ties count half
