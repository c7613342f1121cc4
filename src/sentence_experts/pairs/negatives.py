"""Negatives of validation and test: `matched`, `cited` or `random`, as many as linked pairs.

No relation links the works of a negative. With matched negatives both classes have the same works, each
equally often, so neither a work's frequency nor one text alone tells the class. (Negatives of well-cited
works can be told from positives by the number of citations.) It is the configuration model of random graphs
with rewiring: pair the ends at random, then exchange ends between pairs until no pair is linked, of one text
or there twice.

Source of `cited`: Hallee et al. 2025, Data compilation: not co-cited, and both cited at least 15 times, so
that they could have been.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from sentence_experts.pairs.config import SPLITS
from sentence_experts.pairs.splits import (
    TEST,
    VALIDATION,
    Assignment,
    PairArrays,
    TooFewPairsError,
    WorkArrays,
)

ENUMERATE_UP_TO = 1_500  # maximum number of works for enumerating all pairs; of more works, pairs are sampled
SAMPLING_ROUNDS = 12
MAX_ROUNDS = 3_000
# Give up after this number of rounds, or of checked exchanges, that leave as many bad pairs as before.
IDLE_ROUNDS, LEAST_IDLE_ROUNDS, IDLE_EXCHANGES = 300, 20, 2_000_000
MAX_TRIES = 16  # maximum number of exchanges that are checked for a bad pair in a round
NO_KEYS = np.empty(0, dtype=np.int64)
NO_PAIRS = np.empty((0, 2), dtype=np.int64)

# (left, right) work numbers, both of shape (pairs,) -> a mask of the pairs that are linked, or of the pairs
# that can be negatives.
PairTest = Callable[[np.ndarray, np.ndarray], np.ndarray]
# Domain -> split -> counts.
Counts = dict[str, dict[str, dict[str, int]]]


class DrawnNegatives(NamedTuple):
    """The negatives of the evaluation sets, and the positives that they belong to.

    Attributes:
        splits: linked pairs of each split, without validation and test pairs that got no negative.
        negatives: negatives of each split, none for training.
        shortfall: numbers of negatives that are not fully matched: `nearest` have one end of a linked pair
            and a work near in frequency, `random` two unlinked works.
    """

    splits: list[PairArrays]
    negatives: list[PairArrays]
    shortfall: Counts


class LinkedWorks(Protocol):
    """The works and their links (a `LinkGraph`, or the texts of a table)."""

    @property
    def works(self) -> WorkArrays:
        """Texts and frequencies of the works."""

    def in_domain(self, domain: str) -> np.ndarray:
        """Return a mask of the works of a domain."""

    def links_among(self, works: np.ndarray) -> PairTest:
        """Make a test of which two works are linked."""


class Request(NamedTuple):
    """A request for the negatives of one domain in one set, from a pool of works.

    With `one_end`, a mask over the works, each negative has one end there, as each positive has.
    """

    split: int
    domain: str
    needed: int
    pool: np.ndarray
    one_end: np.ndarray | None = None

    @property
    def name(self) -> str:
        """The domain and the set, for messages."""
        return f"{self.domain} ({SPLITS[self.split]})"


def draw_negatives(
    graph: LinkedWorks,
    splits: Sequence[PairArrays],
    assignment: Assignment,
    negatives: str,
    min_cited: int,
    rng: np.random.Generator,
) -> DrawnNegatives:
    """Draw as many unlinked pairs as positives, per domain of each evaluation set.

    Raises:
        TooFewPairsError: there are too few unlinked pairs.
    """
    requests = [
        Request(
            split, domain, int((splits[split].domain == domain).sum()),
            np.flatnonzero(graph.in_domain(domain) & assignment.pools[split]), assignment.one_end.get(split),
        )
        for split in (VALIDATION, TEST)
        for domain in np.unique(splits[split].domain)
    ]  # fmt: skip
    kept, drawn = list(splits), list[np.ndarray]()
    shortfall: Counts = {}
    if requests:
        linked = graph.links_among(np.unique(np.concatenate([request.pool for request in requests])))
        if negatives == "matched":
            drawn, shortfall = _draw_matched(requests, kept, graph.works, linked, rng)
        else:
            least = min_cited if negatives == "cited" else 0
            drawn = draw_cited(requests, graph.works, linked, least, rng)
    of_split = []
    for split in range(len(SPLITS)):
        mine = [pair for pair in zip(requests, drawn, strict=True) if pair[0].split == split]
        ends = np.concatenate([NO_PAIRS, *(pairs for _, pairs in mine)])
        domains = np.array([request.domain for request, pairs in mine for _ in pairs], dtype=object)
        of_split.append(PairArrays(ends[:, 0], ends[:, 1], np.zeros(len(ends), dtype=np.int64), domains))
    return DrawnNegatives(kept, of_split, shortfall)


def _allow(request: Request, works: WorkArrays, linked: PairTest, used: np.ndarray) -> PairTest:
    """Make a test of which pairs can be a negative; `used` are the keys of those taken, sorted."""

    def allowed(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        mask: np.ndarray = (works.same_text[left] != works.same_text[right]) & ~linked(left, right)
        if request.one_end is not None:
            mask &= request.one_end[left] | request.one_end[right]
        mask &= ~find_among(keys_of(left, right), used)
        return mask

    return allowed


def keys_of(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Number the pairs, the same whichever way round: shape (pairs,)."""
    keys: np.ndarray = (np.minimum(left, right).astype(np.int64) << 32) | np.maximum(left, right)
    return keys


def find_among(keys: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return whether `keys` are among the sorted `known`; for few keys ten times as fast as `np.isin`."""
    if len(known) == 0:
        return np.zeros(len(keys), dtype=bool)
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    there: np.ndarray = known[places] == keys
    return there


# ---- cited and random ----------------------------------------------------------------------------


def draw_cited(
    requests: Sequence[Request], works: WorkArrays, linked: PairTest, min_cited: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Draw unlinked pairs of works that are cited at least `min_cited` times, none twice.

    Returns:
        Work numbers of shape (needed, 2) for each request.

    Raises:
        TooFewPairsError: a request cannot be met.
    """
    drawn, used = [], NO_KEYS
    for request in requests:
        pool = request.pool[works.times_cited[request.pool] >= min_cited]
        pairs = _sample(request, request.needed, pool, _allow(request, works, linked, used), rng)
        used = np.sort(np.concatenate([used, keys_of(*pairs.T)]))
        drawn.append(pairs)
        if len(pairs) < request.needed:
            cited = (
                f" cited at least {min_cited} times: lower `negatives_min_cited`, or" if min_cited else ":"
            )
            raise TooFewPairsError(
                f"{request.name} needs {request.needed} negative pairs, but only {len(pairs)} can be made of "
                f"unlinked papers{cited} take fewer linked pairs (`max_eval_per_domain`)"
            )
    return drawn


def _sample(
    request: Request, needed: int, pool: np.ndarray, allowed: PairTest, rng: np.random.Generator
) -> np.ndarray:
    """Sample up to `needed` negatives of works of a pool: shape (negatives, 2), left < right."""
    if needed == 0 or len(pool) < 2:
        return NO_PAIRS
    if len(pool) <= ENUMERATE_UP_TO:
        every = pool[rng.permutation(np.stack(np.triu_indices(len(pool), k=1), axis=1))]
        return _take_allowed(np.sort(every, axis=1), needed, allowed)[:needed]
    first = pool if request.one_end is None else pool[request.one_end[pool]]
    pairs = NO_PAIRS
    for _ in range(SAMPLING_ROUNDS if len(first) else 0):
        ends = np.stack([rng.choice(each, 4 * needed) for each in (first, pool)], axis=1)
        pairs = np.concatenate([pairs, _take_allowed(np.sort(ends, axis=1), needed, allowed)])
        pairs = pairs[np.sort(np.unique(pairs, axis=0, return_index=True)[1])]
        if len(pairs) >= needed:
            break
    return pairs[:needed]


def _take_allowed(ends: np.ndarray, needed: int, allowed: PairTest) -> np.ndarray:
    """Return the first rows of `ends`, shape (n, 2), that can be negatives: at least `needed` if possible."""
    clean = [ends[:0]]
    # Linked pairs are rare among all pairs, so a few times the number needed is nearly always enough.
    size = max(4 * needed, 1_000)
    for start in range(0, len(ends), size):
        some = ends[start : start + size]
        clean.append(some[allowed(*some.T)])
        if sum(map(len, clean)) >= needed:
            break
    return np.concatenate(clean)


# ---- matched -------------------------------------------------------------------------------------


def _draw_matched(
    requests: Sequence[Request],
    splits: list[PairArrays],
    works: WorkArrays,
    linked: PairTest,
    rng: np.random.Generator,
) -> tuple[list[np.ndarray], Counts]:
    """Draw the negatives of each request, and count the shortfall; pairs without one leave `splits`."""
    drawn: list[np.ndarray] = []
    shortfall: Counts = {}
    used = NO_KEYS  # keys of the negatives of other sets
    for request in requests:
        pairs = splits[request.split]
        rows = np.flatnonzero(pairs.domain == request.domain)
        ends = np.stack([pairs.left[rows], pairs.right[rows]], axis=1)
        matched, nearest = pair_anew(ends, _allow(request, works, linked, used), rng)
        used = np.sort(np.concatenate([used, keys_of(*matched.T)]))
        missing = request.needed - len(matched)
        others = _sample(request, missing, request.pool, _allow(request, works, linked, used), rng)
        used = np.sort(np.concatenate([used, keys_of(*others.T)]))
        drawn.append(np.concatenate([matched, others]))
        if len(drawn[-1]) == 0:
            raise TooFewPairsError(
                f"{request.name}: all works of the linked pairs are linked with each other, so no negatives "
                "can be made"
            )
        missing -= len(others)
        left_out = rng.permutation(rows)[:missing]
        splits[request.split] = pairs.take(np.delete(np.arange(len(pairs)), left_out))
        if nearest or len(others) or missing:
            shortfall.setdefault(request.domain, {})[SPLITS[request.split]] = {
                "matched": len(matched) - nearest, "nearest": nearest, "random": len(others),
                "left_out": missing,
            }  # fmt: skip
    return drawn, shortfall


def pair_anew(ends: np.ndarray, allowed: PairTest, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Pair the ends of linked pairs, shape (pairs, 2), again, so that none are linked.

    A pair that cannot be formed keeps one of its ends, which gets the allowed work whose frequency that
    changes least; if it has none, the pair is missing.

    Returns:
        At most as many negatives, none twice, and how many of the last are only nearly matched.
    """
    pairs = _Pairs(rng.permutation(ends.ravel()).reshape(ends.shape), allowed)
    idle = checked = 0
    for turn in range(MAX_ROUNDS):
        before = len(pairs.bad)
        if before == 0 or idle >= IDLE_ROUNDS or (idle >= LEAST_IDLE_ROUNDS and checked > IDLE_EXCHANGES):
            break
        exchanges = pairs.exchange_ends(rng, among_bad=turn % 2 == 0)
        idle, checked = (0, 0) if len(pairs.bad) < before else (idle + 1, checked + exchanges)
    good = np.delete(pairs.ends, pairs.bad, axis=0)
    near = _match_nearly(ends, good, pairs.ends[pairs.bad], allowed, rng)
    return np.sort(np.concatenate([good, near]), axis=1), len(near)


class _Pairs:
    """Pairs of ends, with a mask of the bad ones: not allowed, or there already."""

    def __init__(self, ends: np.ndarray, allowed: PairTest) -> None:
        self.ends = ends
        self._allowed = allowed
        self._is_allowed = allowed(*ends.T)
        self._find_bad()

    def _find_bad(self) -> None:
        self._keys, first = np.unique(keys_of(*self.ends.T), return_index=True)
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
        left, right = swapped.reshape(-1, 2).T
        is_good = self._allowed(left, right) & ~find_among(keys_of(left, right), self._keys)
        gain = is_good.reshape(-1, 2).sum(axis=1) - (0 if among_bad else 1)
        # The best exchange of each bad pair: `tries` rows in succession belong to one.
        best = gain.reshape(-1, tries).argmax(axis=1) + np.arange(0, len(gain), tries)
        chosen = best[(gain[best] > 0) | ((gain[best] == 0) & (rng.random(len(best)) < 0.5))]
        rows = np.concatenate([one[chosen], other[chosen]])
        self.ends[rows] = np.concatenate([swapped[chosen, 0], swapped[chosen, 1]])
        self._is_allowed[rows] = self._allowed(*self.ends[rows].T)
        self._find_bad()
        return len(one)

    def _partners(self, rng: np.random.Generator, among_bad: bool) -> tuple[np.ndarray, np.ndarray, int]:
        """Draw rows of bad pairs and of the pairs to exchange ends with, all distinct, but a bad pair
        `tries` times in succession."""
        bad = rng.permutation(self.bad)
        if among_bad:
            half = len(bad) // 2
            return bad[:half], bad[half : 2 * half], 1
        good = rng.permutation(np.delete(np.arange(len(self.ends)), self.bad))
        bad = bad[: len(good)]
        tries = min(MAX_TRIES, len(good) // max(len(bad), 1))
        return np.repeat(bad, tries), good[: tries * len(bad)], tries


def _match_nearly(
    ends: np.ndarray, good: np.ndarray, bad: np.ndarray, allowed: PairTest, rng: np.random.Generator
) -> np.ndarray:
    """Make negatives for `bad` pairs, of one end of each and the work whose frequency that changes least.

    Frequencies are compared with those in the linked pairs `ends`; all arrays are of shape (pairs, 2).
    """
    works, wanted = np.unique(ends, return_counts=True)
    times = np.bincount(np.searchsorted(works, good.ravel()), minlength=len(works))
    used, negatives = set(keys_of(*good.T).tolist()), [ends[:0]]
    partners: dict[int, np.ndarray] = {}
    for work in rng.permuted(bad, axis=1)[:, 0].tolist():
        if work not in partners:
            partners[work] = np.flatnonzero(allowed(np.full(len(works), work), works))
        places = partners[work]
        # Equal changes are decided at random, by less than the next larger change differs.
        change = (times[places] + 1) / wanted[places] + 1e-9 * rng.random(len(places))
        for place in places[np.argsort(change)].tolist():
            pair = np.array([[work, works[place]]])
            key = int(keys_of(*pair.T)[0])
            if key not in used:
                used.add(key)
                negatives.append(pair)
                times[np.searchsorted(works, pair[0])] += 1
                break
    return np.concatenate(negatives)
