"""Matched negatives: the ends of the linked pairs, paired again so that none are linked.

Both classes then have the same works, each equally often, so neither a work's frequency nor one text alone
tells the class. (Negatives of well-cited works can be told from positives by the number of citations.) It is
the configuration model of random graphs with rewiring: pair the ends at random, then exchange ends between
pairs until no pair is linked, of one text or there twice.

Hard negatives start from pairs of texts that are near each other by TF-IDF (`near_first`) instead of random
ones, so that common words alone tell little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

# Works of pairs, each of shape (pairs,) -> a mask of those that can be negatives.
Allowed = Callable[[np.ndarray, np.ndarray], np.ndarray]

MAX_ROUNDS = 3_000
# Give up after this number of rounds, or of checked exchanges, that leave as many bad pairs as before.
IDLE_ROUNDS, LEAST_IDLE_ROUNDS, IDLE_EXCHANGES = 300, 20, 2_000_000
MAX_TRIES = 16  # exchanges that are checked for one bad pair in a round
NEAREST = 10  # a text's neighbours that count as near it, of those that can be a negative with it
LINKED_TOO = 8  # times as many candidates are checked, since near texts are often linked
NEAR_ROUNDS = 20
CELLS_AT_ONCE = 4_000_000  # similarities in memory
DIGITS = 6  # of a similarity: machines may round further ones differently


@dataclass(frozen=True)
class Matched:
    """Negatives of shape (pairs, 2), and how many of the last are only nearly matched: `nearest`."""

    ends: np.ndarray
    nearest: int


def pair_anew(
    ends: np.ndarray, allowed: Allowed, rng: np.random.Generator, start: np.ndarray | None = None
) -> Matched:
    """Pair the ends of linked pairs again, so that none are linked.

    A pair that cannot be formed keeps one of its ends, which gets the allowed work whose frequency that
    changes least; if it has none, the pair is missing.

    Args:
        ends: works of the linked pairs, shape (pairs, 2).
        allowed: tells which two works may be a negative.
        start: all the ends in pairs to start from, which are kept where they can be; at random without.

    Returns:
        At most as many negatives, none twice.
    """
    if start is None:
        start = rng.permutation(ends.ravel()).reshape(ends.shape)
    pairs = _Pairs(start.copy(), allowed)
    idle = checked = 0
    for turn in range(MAX_ROUNDS):
        before = len(pairs.bad)
        if before == 0 or idle >= IDLE_ROUNDS or (idle >= LEAST_IDLE_ROUNDS and checked > IDLE_EXCHANGES):
            break
        exchanges = pairs.exchange_ends(rng, among_bad=turn % 2 == 0)
        improved = len(pairs.bad) < before
        idle, checked = (0, 0) if improved else (idle + 1, checked + exchanges)
    good = np.delete(pairs.ends, pairs.bad, axis=0)
    near = _nearly_matched(ends, good, pairs.ends[pairs.bad], allowed, rng)
    return Matched(np.sort(np.concatenate([good, near]), axis=1), len(near))


def keys_of(ends: np.ndarray) -> np.ndarray:
    """A number for each pair of shape (pairs, 2), whichever way round: shape (pairs,)."""
    return keys_between(ends[:, 0], ends[:, 1])


def keys_between(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The same for the two ends of pairs, each of shape (pairs,)."""
    keys: np.ndarray = (np.minimum(left, right).astype(np.int64) << 32) | np.maximum(left, right)
    return keys


def find_among(keys: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which `keys` are among the sorted `known`; for few of each, ten times as fast as `np.isin`."""
    if len(known) == 0:
        return np.zeros(len(keys), dtype=bool)
    places = np.searchsorted(known, keys)
    there: np.ndarray = known[np.minimum(places, len(known) - 1)] == keys
    return there


class _Pairs:
    """Pairs of ends, and which of them are bad: not allowed, or there already."""

    def __init__(self, ends: np.ndarray, allowed: Allowed) -> None:
        self.ends = ends
        self._allowed = allowed
        self._is_allowed = allowed(ends[:, 0], ends[:, 1])
        self._find_bad()

    def _find_bad(self) -> None:
        self._keys, first = np.unique(keys_of(self.ends), return_index=True)
        good = np.zeros(len(self.ends), dtype=bool)
        good[first] = self._is_allowed[first]
        self.bad = np.flatnonzero(~good)

    def exchange_ends(self, rng: np.random.Generator, among_bad: bool) -> int:
        """Let bad pairs exchange ends with others where that leaves no more bad pairs; count the trials.

        Exchanges that leave as many are accepted too, now and then: they lead out of dead ends.
        """
        one, other, tries = self._partners(rng, among_bad)
        if len(one) == 0:
            return 0
        # (a, b) and (c, d) become (a, d) and (c, b), or with the other pair the other way round.
        turned = np.where(rng.random((len(one), 1)) < 0.5, self.ends[other], self.ends[other][:, ::-1])
        first = np.stack([self.ends[one, 0], turned[:, 1]], axis=1)
        second = np.stack([turned[:, 0], self.ends[one, 1]], axis=1)
        swapped = np.stack([first, second], axis=1)  # (exchanges, pair, end)
        new = swapped.reshape(-1, 2)
        is_good = self._allowed(new[:, 0], new[:, 1]) & ~find_among(keys_of(new), self._keys)
        gain = is_good.reshape(-1, 2).sum(axis=1) - (0 if among_bad else 1)
        # The best exchange of each bad pair: rows of `tries` are of one.
        best = gain.reshape(-1, tries).argmax(axis=1) + np.arange(0, len(gain), tries)
        chosen = best[(gain[best] > 0) | ((gain[best] == 0) & (rng.random(len(best)) < 0.5))]
        rows = np.concatenate([one[chosen], other[chosen]])
        self.ends[rows] = np.concatenate([swapped[chosen, 0], swapped[chosen, 1]])
        self._is_allowed[rows] = self._allowed(self.ends[rows, 0], self.ends[rows, 1])
        self._find_bad()
        return len(one)

    def _partners(self, rng: np.random.Generator, among_bad: bool) -> tuple[np.ndarray, np.ndarray, int]:
        """Rows of bad pairs and of the pairs to exchange ends with, all distinct but for repeated bad ones:
        each `tries` times in a row."""
        bad = rng.permutation(self.bad)
        if among_bad:
            half = len(bad) // 2
            return bad[:half], bad[half : 2 * half], 1
        good = rng.permutation(np.delete(np.arange(len(self.ends)), self.bad))
        bad = bad[: len(good)]
        tries = min(MAX_TRIES, len(good) // max(len(bad), 1))
        return np.repeat(bad, tries), good[: tries * len(bad)], tries


def _nearly_matched(
    ends: np.ndarray, good: np.ndarray, bad: np.ndarray, allowed: Allowed, rng: np.random.Generator
) -> np.ndarray:
    """Negatives for `bad` pairs, of one end of each and the work whose frequency that changes least.

    Frequencies are compared with those in the linked pairs `ends`; all arrays are of shape (pairs, 2).
    """
    works, wanted = np.unique(ends, return_counts=True)
    times = np.bincount(np.searchsorted(works, good.ravel()), minlength=len(works))
    used, negatives = set(keys_of(good).tolist()), []
    partners: dict[int, np.ndarray] = {}
    for work in rng.permuted(bad, axis=1)[:, 0].tolist():
        if work not in partners:
            partners[work] = np.flatnonzero(allowed(np.full(len(works), work), works))
        places = partners[work]
        # Equal changes are decided at random, by less than the next larger change differs.
        change = (times[places] + 1) / wanted[places] + 1e-9 * rng.random(len(places))
        for place in places[np.argsort(change)].tolist():
            pair = np.array([[work, works[place]]])
            key = int(keys_of(pair)[0])
            if key not in used:
                used.add(key)
                negatives.append(pair)
                times[np.searchsorted(works, pair[0])] += 1
                break
    return np.concatenate(negatives) if negatives else np.empty((0, 2), dtype=ends.dtype)


def near_first(
    ends: np.ndarray, texts: Sequence[str], allowed: Allowed, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Pair the ends of linked pairs so that texts near each other meet, where they may be a negative.

    The most similar of all near pairs comes first, and so on; works whose neighbours have no free end left
    get new neighbours among those that have one. What is then left is paired at random.

    Args:
        ends: works of the linked pairs, shape (pairs, 2).
        texts: of `np.unique(ends)`.
        allowed: tells which two works may be a negative.

    Returns:
        All ends in new pairs, of shape (pairs, 2), and the keys (`keys_of`) of those that are near.
    """
    works, free = np.unique(ends, return_counts=True)
    vectors = _vectors(texts)
    near = [np.empty((0, 2), dtype=np.int64)]
    for _ in range(NEAR_ROUNDS):
        some, used = np.flatnonzero(free), keys_of(works[np.concatenate(near)])
        candidates = some[_near_pairs(vectors[some], works[some], allowed, used)]
        if not len(chosen := _taken_in_order(candidates, free)):
            break
        near.append(chosen)
    pairs = works[np.concatenate(near)]
    rest = rng.permutation(np.repeat(works, free)).reshape(-1, 2)
    return np.concatenate([pairs, rest]), keys_of(pairs)


def _vectors(texts: Sequence[str]) -> csr_array:
    """TF-IDF vectors of length one, shape (texts, words); words of one text alone make nothing similar."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    try:
        return csr_array(TfidfVectorizer(min_df=min(2, len(texts))).fit_transform(texts))
    except ValueError:  # no word at all
        return csr_array((len(texts), 1))


def _near_pairs(vectors: csr_array, works: np.ndarray, allowed: Allowed, used: np.ndarray) -> np.ndarray:
    """Indices, (pairs, 2), of similar texts that may be a negative, the most similar pair first.

    Pairs with a key in `used` are left out.
    """
    places, similarities = [np.empty((0, 2), dtype=np.int64)], [np.empty(0)]
    transposed = vectors.T.tocsr()
    step = max(1, CELLS_AT_ONCE // max(1, len(works)))
    for start in range(0, len(works), step):
        products = csr_array(vectors[start : start + step] @ transposed)
        rows, columns, values = _largest(products, LINKED_TOO * NEAREST + 1)
        rows += start
        fits = allowed(works[rows], works[columns])
        fits &= ~np.isin(keys_of(np.stack([works[rows], works[columns]], axis=1)), used)
        rows, columns, values = rows[fits], columns[fits], values[fits]
        # Sorted by row, the most similar first: the number of each within its row.
        rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
        nearest = rank < NEAREST
        places.append(np.sort(np.stack([rows, columns], axis=1)[nearest], axis=1))
        similarities.append(values[nearest])
    pairs, first = np.unique(np.concatenate(places), axis=0, return_index=True)
    order = np.lexsort((pairs[:, 1], pairs[:, 0], -np.concatenate(similarities)[first]))
    ordered: np.ndarray = pairs[order]
    return ordered


def _largest(products: csr_array, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row, column, value) of the `count` largest values of each row, by row, the largest first."""
    rows, columns, values = [], [], []
    for row in range(products.shape[0]):
        inside = slice(products.indptr[row], products.indptr[row + 1])
        own, at = np.round(products.data[inside], DIGITS), products.indices[inside]
        order = np.lexsort((at, -own))[:count]
        rows.append(np.full(len(order), row))
        columns.append(at[order])
        values.append(own[order])
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(values)


def _taken_in_order(pairs: np.ndarray, free: np.ndarray) -> np.ndarray:
    """The pairs, in their order, whose works both have a free end yet; `free` is lowered by theirs."""
    chosen = []
    for number, (left, right) in enumerate(pairs.tolist()):
        if free[left] and free[right]:
            free[left] -= 1
            free[right] -= 1
            chosen.append(number)
    return pairs[chosen]
