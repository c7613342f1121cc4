"""Sampling of training pairs: frequent pairs weigh more, and each domain has a maximum."""

from __future__ import annotations

import numpy as np

from sentence_experts.pairs.splits import PairArrays


def draw_per_domain(
    pairs: PairArrays, maximum: int | None, by_count: bool, rng: np.random.Generator
) -> PairArrays:
    """Sample at most `maximum` pairs per domain without replacement, in the order of `pairs`.

    With `by_count`, a pair's probability is proportional to its count, or its weight if it has one: the
    preferential sampling of Hallee et al. 2025 (Data compilation). The largest of the keys u^(1/count), u
    uniform, are such a sample (Efraimidis and Spirakis 2006, Weighted random sampling with a reservoir).
    """
    if maximum is None:
        return pairs
    counted = pairs.count if pairs.weight is None else pairs.weight
    weight = counted if by_count else np.ones(len(pairs))
    keys = np.log(1.0 - rng.random(len(pairs))) / weight
    sampled = []
    for domain in np.unique(pairs.domain):
        rows = np.flatnonzero(pairs.domain == domain)
        sampled.append(rows[np.argsort(-keys[rows], kind="stable")[:maximum]])
    return pairs.take(np.sort(np.concatenate(sampled))) if sampled else pairs


def duplicated_by_count(pairs: PairArrays) -> PairArrays:
    """Repeat each pair as often as it was linked. Source: Hallee et al. 2024 (preprint), 3.1."""
    return pairs.take(np.repeat(np.arange(len(pairs)), pairs.count))
