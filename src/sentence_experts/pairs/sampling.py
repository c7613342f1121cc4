"""Sampling of training pairs: frequent pairs weigh more, and each domain has a maximum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sentence_experts.pairs.proximity import LEVELS, Level
from sentence_experts.pairs.splits import PairArrays


def nearest_enough(
    pairs: PairArrays, levels: Sequence[Level], enough: int
) -> tuple[np.ndarray, dict[str, dict[str, Any]]]:
    """The pairs of each domain at the first of `levels` that has enough of them, else all: a mask.

    Returns:
        The mask, and domain -> the level ("" for all), the number of its pairs, and `of` how many.
    """
    chosen, counts = np.ones(len(pairs), dtype=bool), {}
    closest = np.zeros(len(pairs), dtype=np.int64) if pairs.level is None else pairs.level
    for domain in np.unique(pairs.domain):
        rows = pairs.domain == domain
        counts[str(domain)] = {"level": "", "pairs": int(rows.sum()), "of": int(rows.sum())}
        for level in levels:
            near = rows & (closest >= LEVELS.index(level))
            if near.sum() >= enough:
                chosen &= near | ~rows
                counts[str(domain)] |= {"level": level, "pairs": int(near.sum())}
                break
    return chosen, counts


def draw_per_domain(
    pairs: PairArrays,
    maximum: int | None,
    by_count: bool,
    rng: np.random.Generator,
    among: np.ndarray | None = None,
) -> PairArrays:
    """Sample at most `maximum` pairs per domain without replacement, in the order of `pairs`.

    `among` is a mask of the pairs that may be sampled; the state of `rng` afterwards does not depend on it.

    With `by_count`, a pair's probability is proportional to its count, or its weight if it has one: the
    preferential sampling of Hallee et al. 2025 (Data compilation). The largest of the keys u^(1/count), u
    uniform, are such a sample (Efraimidis and Spirakis 2006, Weighted random sampling with a reservoir).
    """
    among = np.ones(len(pairs), dtype=bool) if among is None else among
    if maximum is None:
        return pairs.take(among)
    counted = pairs.count if pairs.weight is None else pairs.weight
    weight = counted if by_count else np.ones(len(pairs))
    keys = np.log(1.0 - rng.random(len(pairs))) / weight
    sampled = []
    for domain in np.unique(pairs.domain):
        rows = np.flatnonzero((pairs.domain == domain) & among)
        sampled.append(rows[np.argsort(-keys[rows], kind="stable")[:maximum]])
    return pairs.take(np.sort(np.concatenate(sampled))) if sampled else pairs


def duplicated_by_count(pairs: PairArrays) -> PairArrays:
    """Repeat each pair as often as it was linked. Source: Hallee et al. 2024 (preprint), 3.1."""
    return pairs.take(np.repeat(np.arange(len(pairs)), pairs.count))
