"""Matched negatives: the ends of the linked pairs, paired again so that none are linked.

Both classes then have the same works, each equally often, so neither a work's frequency nor one text alone
tells the class. (Negatives of well-cited works can be told from positives by the number of citations.) It is
the configuration model of random graphs with rewiring: pair the ends at random, then exchange ends between
pairs until no pair is linked, of one text or there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

# Works of pairs, each of shape (pairs,) -> a mask of those that can be negatives.
Allowed = Callable[[np.ndarray, np.ndarray], np.ndarray]

MAX_ROUNDS = 3_000
# Give up after this number of rounds, or of checked exchanges, that leave as many bad pairs as before.
IDLE_ROUNDS, LEAST_IDLE_ROUNDS, IDLE_EXCHANGES = 300, 20, 2_000_000
MAX_NAMED = 3  # sets in a message
MAX_TRIES = 16  # exchanges that are checked for one bad pair in a round


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


def describe_shortfall(shortfall: Mapping[str, Mapping[str, Mapping[str, int]]]) -> str | None:
    """How many negatives are not fully matched and what was taken instead; None if all are."""
    if not shortfall:
        return None
    sets = [
        f"{domain} ({split}) {sum(counts.values()) - counts['matched']:,} of {sum(counts.values()):,}"
        for domain, by_split in shortfall.items()
        for split, counts in by_split.items()
    ]
    named = ", ".join(sets[:MAX_NAMED]) + f" and {len(sets) - MAX_NAMED} more" * (len(sets) > MAX_NAMED)
    every = [counts for by_split in shortfall.values() for counts in by_split.values()]
    nearest, others, left_out = (
        sum(each[kind] for each in every) for kind in ("nearest", "random", "left_out")
    )
    instead = [
        f"{nearest:,} keep one work and get an unlinked one that is nearly as frequent",
        f"{others:,} are two other unlinked works of the domain",
        f"{left_out:,} linked pairs were left out",
    ]
    replaced_by = "; ".join(
        text for text, count in zip(instead, (nearest, others, left_out), strict=True) if count
    )
    return (
        f"too few unlinked pairs can be made of the works of the linked pairs: {named}. Instead, "
        f"{replaced_by}. More articles, fewer domains or a lower `max_eval_per_domain` leave more to choose "
        "from"
    )
