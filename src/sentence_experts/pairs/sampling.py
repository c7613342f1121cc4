"""How often a pair is trained on: frequent pairs weigh more, and no domain takes more than its share."""

from __future__ import annotations

import numpy as np

from sentence_experts.pairs.splits import PairArrays

FREQUENCIES = ("sampling", "duplication", "none")


def draw_per_domain(
    pairs: PairArrays, most: int | None, by_count: bool, rng: np.random.Generator
) -> PairArrays:
    """At most `most` pairs of each domain, drawn without replacement, in the order of `pairs`.

    With `by_count`, a pair's chance is proportional to its count, the preferential sampling of Hallee et
    al. 2025 (Data compilation). The largest of the keys u^(1/count), u uniform, are such a sample
    (Efraimidis and Spirakis 2006, Weighted random sampling with a reservoir).
    """
    if most is None:
        return pairs
    weight = pairs.count if by_count else np.ones(len(pairs))
    keys = np.log(1.0 - rng.random(len(pairs))) / weight
    kept = []
    for domain in np.unique(pairs.domain):
        rows = np.flatnonzero(pairs.domain == domain)
        kept.append(rows[np.argsort(-keys[rows], kind="stable")[:most]])
    return pairs.take(np.sort(np.concatenate(kept))) if kept else pairs


def duplicated_by_count(pairs: PairArrays) -> PairArrays:
    """Each pair as often as it was linked. Source: Hallee et al. 2024 (preprint), 3.1."""
    return pairs.take(np.repeat(np.arange(len(pairs)), pairs.count))


def shuffled(pairs: PairArrays, rng: np.random.Generator) -> PairArrays:
    """The pairs in random order, each with its two ends in random order."""
    pairs = pairs.take(rng.permutation(len(pairs)))
    swap = rng.random(len(pairs)) < 0.5
    left, right = np.where(swap, pairs.right, pairs.left), np.where(swap, pairs.left, pairs.right)
    return PairArrays(left, right, pairs.count, pairs.domain)
