"""Pairs of texts that two routes judge in opposite ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sentence_experts.pairs.labels import MIN_PAIRS, Labels, Rows

Bools = NDArray[np.bool_]

_MAX_TEXTS = 4000  # number of texts to draw pairs from: memory grows with its square
_MAX_RECTANGLES = 4  # maximum number of rectangles that a text is a corner of
_DRAWS = 40  # number of draws per rectangle that is wanted


class Conflicts(NamedTuple):
    """Pairs that two routes judge in opposite ways: those alike by `one` are unlike by `other`.

    `by_one` are the pairs alike by `one`, `by_other` as many the other way around: shape (pairs, 2).
    """

    one: str
    other: str
    by_one: Rows
    by_other: Rows


def find_conflicts(
    labels: Sequence[Labels], groups: Rows, number: int = 400, seed: int = 0
) -> list[Conflicts]:
    """Find conflicting pairs for every two routes, as many one way as the other, if there are at least 8.

    The pairs are sides of rectangles a, b, c, d: a and b, and c and d, are alike by one route alone, the
    other two sides by the other route alone. So a text is in as many pairs of one kind as of the other, and
    no score of single texts tells the kinds apart. A model that is blind to the route scores a pair alike
    under both, so that the mean of its two values of ROC-AUC is exactly 0.5.

    Pairs within one of the `groups` (texts,) are left out; there are at most `number` each way.
    """
    found = []
    for place, (one, other) in enumerate(combinations(labels, 2)):
        rng = np.random.default_rng([seed, place])
        rows = np.flatnonzero(one.labelled & other.labelled)
        rows = np.sort(rng.permutation(rows)[:_MAX_TEXTS])
        apart = groups[rows][:, None] != groups[rows]
        alike = [each.sharing(rows, rows) & apart for each in (one, other)]
        conflicting = alike[0] != alike[1]
        ways = _draw_sides([each & conflicting for each in alike], number, rng)
        if len(ways[0]) >= MIN_PAIRS:
            found.append(Conflicts(one.route, other.route, *(rows[np.array(each)] for each in ways)))
    return found


def _draw_sides(
    only: Sequence[Bools], number: int, rng: np.random.Generator
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Draw sides of rectangles, at most `number` by each route; `only` has what it alone has alike."""
    one, other = only
    times: Counter[int] = Counter()
    kept: set[tuple[int, int]] = set()
    sides: tuple[list[tuple[int, int]], list[tuple[int, int]]] = [], []
    begins = np.flatnonzero(one.any(axis=1) & other.any(axis=1))
    for a in rng.choice(begins, _DRAWS * number) if len(begins) else ():
        corners = [int(a)]
        for near in (one, other):
            corners += rng.permutation(np.flatnonzero(near[corners[-1]]))[:1].tolist()
        closing = one[corners[-1]] & other[a]
        closing[corners] = False
        corners += rng.permutation(np.flatnonzero(closing))[:1].tolist()
        ends = [(min(pair), max(pair)) for pair in zip(corners, [*corners[1:], corners[0]], strict=True)]
        if len(corners) < 4 or kept & {*ends} or any(times[each] >= _MAX_RECTANGLES for each in corners):
            continue
        kept.update(ends)
        times.update(corners)
        sides[0].extend(ends[::2])
        sides[1].extend(ends[1::2])
        if len(sides[0]) + 2 > number:
            break
    return sides
