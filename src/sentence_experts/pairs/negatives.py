"""Negatives of validation and test, drawn as the setting `negatives` says, as many as linked pairs.

No relation links the works of a negative. They are `matched` or `hard` (the works of the linked pairs paired
anew, at random or near texts first), or `cited` or `random` (works of the domain, cited often enough or any).

With matched negatives both classes have the same works, each equally often, so neither a work's frequency nor
one text alone tells the class. (Negatives of well-cited works can be told from positives by the number of
citations.) It is the configuration model of random graphs with rewiring: pair the ends at random, then
exchange ends between pairs until no pair is linked, of one text or there twice. Hard negatives start from
pairs of texts that are near each other by TF-IDF, so that common words alone tell little.

Source of `cited`: Hallee et al. 2025, Data compilation: not co-cited, and both cited at least 15 times, so
that they could have been.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np
from scipy.sparse import csr_array

from sentence_experts.pairs.splits import (
    SPLITS,
    TEST,
    VALIDATION,
    Assignment,
    PairArrays,
    TooFewPairsError,
    WorkArrays,
)

# Up to this number of works all their pairs are enumerated, above it pairs are sampled.
ENUMERATE_UP_TO = 1_500
ROUNDS = 12
NO_KEYS = np.empty(0, dtype=np.int64)
MAX_ROUNDS = 3_000
# Give up after this number of rounds, or of checked exchanges, that leave as many bad pairs as before.
IDLE_ROUNDS, LEAST_IDLE_ROUNDS, IDLE_EXCHANGES = 300, 20, 2_000_000
MAX_TRIES = 16  # exchanges that are checked for one bad pair in a round
NEAREST = 10  # a text's neighbours that count as near it, of those that can be a negative with it
LINKED_TOO = 8  # times as many candidates are checked, since near texts are often linked
NEAR_ROUNDS = 20
CELLS_AT_ONCE = 4_000_000  # similarities in memory
DIGITS = 6  # of a similarity: machines may round further ones differently

# (left, right) node numbers, each of shape (pairs,) -> a mask: of the linked ones, or of those that can be
# negatives.
Linked = Callable[[np.ndarray, np.ndarray], np.ndarray]
Allowed = Callable[[np.ndarray, np.ndarray], np.ndarray]
# Domain -> split -> counts.
Counts = dict[str, dict[str, dict[str, int]]]


@dataclass(frozen=True)
class DrawnNegatives:
    """The negatives of the evaluation sets, and the positives that they belong to.

    Attributes:
        splits: the linked pairs of each split, without those of validation and test that got no negative.
        negatives: set -> its negatives.
        shortfall: how many of the negatives are not fully matched: `nearest` have one end of a linked pair
            and a work near in frequency, `random` two unlinked works.
        near: how many hard negatives are `near` each other by TF-IDF, of `all`.
    """

    splits: list[PairArrays]
    negatives: Mapping[int, PairArrays]
    shortfall: Counts = field(default_factory=dict)
    near: Counts = field(default_factory=dict)


class LinkedWorks(Protocol):
    """The works and their links (a `LinkGraph`, or the texts of a table)."""

    @property
    def works(self) -> WorkArrays:
        """Their texts and frequencies."""

    def in_domain(self, domain: str) -> np.ndarray:
        """A mask of the works of a domain."""

    def links_among(self, works: np.ndarray) -> Linked:
        """Tells which two works are linked."""

    def texts(self, works: np.ndarray) -> list[str]:
        """The texts of works."""


@dataclass(frozen=True)
class Request:
    """Negatives that one set (a number) needs of one domain, from a pool of works (their node numbers)."""

    split: int
    domain: str
    needed: int
    pool: np.ndarray
    # A mask over the works: each negative has one end there, as does each positive of a split by year.
    one_end: np.ndarray | None = None


def draw_negatives(
    graph: LinkedWorks,
    splits: list[PairArrays],
    assignment: Assignment,
    negatives: str,
    min_cited: int,
    rng: np.random.Generator,
) -> DrawnNegatives:
    """Draw as many unlinked pairs as positives, per domain of each evaluation set.

    Raises:
        TooFewPairsError: there are too few.
    """
    requests = [
        Request(
            split,
            domain,
            needed=int((splits[split].domain == domain).sum()),
            pool=np.flatnonzero(graph.in_domain(domain) & assignment.pools[split]),
            one_end=assignment.one_end.get(split),
        )
        for split in (VALIDATION, TEST)
        for domain in np.unique(splits[split].domain)
    ]
    if not requests:
        return DrawnNegatives(splits, _by_split([], []))
    linked = graph.links_among(np.unique(np.concatenate([request.pool for request in requests])))
    if negatives in ("matched", "hard"):
        return _draw_matched(graph, splits, requests, linked, rng, negatives == "hard")
    least = min_cited if negatives == "cited" else 0
    return DrawnNegatives(splits, _by_split(requests, draw_cited(requests, graph.works, linked, least, rng)))


def _by_split(requests: list[Request], negatives_of: list[np.ndarray]) -> dict[int, PairArrays]:
    negatives = {}
    for split in (VALIDATION, TEST):
        mine = [pair for pair in zip(requests, negatives_of, strict=True) if pair[0].split == split]
        ends = np.concatenate([np.empty((0, 2), np.int64), *(drawn for _, drawn in mine)])
        domains = np.array([request.domain for request, drawn in mine for _ in drawn], dtype=object)
        negatives[split] = PairArrays(ends[:, 0], ends[:, 1], np.zeros(len(ends), dtype=np.int64), domains)
    return negatives


def _allowed(request: Request, works: WorkArrays, linked: Linked, used: np.ndarray) -> Allowed:
    """Tells which pairs can be a negative; `used` are the keys of those taken, sorted."""

    def allowed(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        mask: np.ndarray = (works.same_text[left] != works.same_text[right]) & ~linked(left, right)
        if request.one_end is not None:
            mask &= request.one_end[left] | request.one_end[right]
        mask &= ~find_among(keys_between(left, right), used)
        return mask

    return allowed


# ---- matched and hard ----------------------------------------------------------------------------


def _draw_matched(
    graph: LinkedWorks,
    splits: list[PairArrays],
    requests: list[Request],
    linked: Linked,
    rng: np.random.Generator,
    hard: bool,
) -> DrawnNegatives:
    splits, negatives_of_requests = list(splits), []
    shortfall: Counts = {}
    near: Counts = {}
    used = NO_KEYS  # of the negatives of other sets
    for request in requests:
        positives = np.flatnonzero(splits[request.split].domain == request.domain)
        pairs = splits[request.split].take(positives)
        ends = np.stack([pairs.left, pairs.right], axis=1)
        allowed = _allowed(request, graph.works, linked, used)
        start, near_keys = None, NO_KEYS
        if hard:
            start, near_keys = near_first(ends, graph.texts(np.unique(ends)), allowed, rng)
        matched = pair_anew(ends, allowed, rng, start)
        taken = np.sort(np.concatenate([used, keys_of(matched.ends)]))
        rest = replace(request, needed=request.needed - len(matched.ends))
        others = _sample(rest, request.pool, _allowed(request, graph.works, linked, taken), rng)
        negatives = np.concatenate([matched.ends, others])
        name = SPLITS[request.split]
        if len(negatives) == 0:
            raise TooFewPairsError(
                f"{request.domain} ({name}): all works of the linked pairs are linked with each "
                "other, so no negatives can be made"
            )
        missing = len(positives) - len(negatives)
        left_out = rng.permutation(positives)[:missing]
        kept = np.delete(np.arange(len(splits[request.split])), left_out)
        splits[request.split] = splits[request.split].take(kept)
        keys = keys_of(negatives)
        used = np.sort(np.concatenate([used, keys]))
        negatives_of_requests.append(negatives)
        if hard:
            counts = {"near": int(np.isin(keys, near_keys).sum()), "all": len(keys)}
            near.setdefault(request.domain, {})[name] = counts
        if matched.nearest or len(others) or missing:
            fully = len(matched.ends) - matched.nearest
            counts = {"matched": fully, "nearest": matched.nearest, "random": len(others)}
            shortfall.setdefault(request.domain, {})[name] = counts | {"left_out": missing}
    return DrawnNegatives(splits, _by_split(requests, negatives_of_requests), shortfall=shortfall, near=near)


# ---- cited and random ----------------------------------------------------------------------------


def draw_cited(
    requests: list[Request], works: WorkArrays, linked: Linked, min_cited: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Draw unlinked pairs of works that are cited at least `min_cited` times, none twice.

    Returns:
        Node numbers of shape (needed, 2) for each request.

    Raises:
        TooFewPairsError: a request cannot be met; the message gives the largest sufficient `min_cited`.
    """

    def draw(least: int) -> list[np.ndarray]:
        negatives, used = [], NO_KEYS
        for request in requests:
            pool = request.pool[works.times_cited[request.pool] >= least]
            negatives.append(_sample(request, pool, _allowed(request, works, linked, used), rng))
            used = np.sort(np.concatenate([used, keys_of(negatives[-1])]))
        return negatives

    def are_enough(negatives: list[np.ndarray]) -> bool:
        return all(len(made) == each.needed for each, made in zip(requests, negatives, strict=True))

    negatives = draw(min_cited)
    if are_enough(negatives):
        return negatives
    served, too_high = 0, min_cited
    if min_cited == 0 or not are_enough(draw(0)):
        raise TooFewPairsError(
            f"{_describe_lack(requests, negatives, min_cited)}, and no threshold gives enough; fewer linked "
            "pairs (`max_eval_per_domain`) need fewer negatives"
        )
    while too_high - served > 1:
        middle = (served + too_high) // 2
        served, too_high = (middle, too_high) if are_enough(draw(middle)) else (served, middle)
    raise TooFewPairsError(
        f"{_describe_lack(requests, negatives, min_cited)}; there are enough up to "
        f"`negatives_min_cited={served}`"
    )


def _describe_lack(requests: list[Request], negatives: list[np.ndarray], min_cited: int) -> str:
    request, made = next(
        (request, len(made))
        for request, made in zip(requests, negatives, strict=True)
        if len(made) < request.needed
    )
    return (
        f"{request.domain} ({SPLITS[request.split]}) needs {request.needed} negative pairs, but only {made} "
        f"can be made of unlinked papers that are both cited at least {min_cited} times"
    )


def _sample(request: Request, pool: np.ndarray, allowed: Allowed, rng: np.random.Generator) -> np.ndarray:
    """Sample up to the number of negatives that a request needs: shape (negatives, 2), left < right."""
    if request.needed == 0 or len(pool) < 2:
        return np.empty((0, 2), dtype=np.int64)
    if len(pool) <= ENUMERATE_UP_TO:
        every = pool[rng.permutation(np.stack(np.triu_indices(len(pool), k=1), axis=1))]
        return _allowed_among(np.sort(every, axis=1), request.needed, allowed)[: request.needed]
    first = pool if request.one_end is None else pool[request.one_end[pool]]
    pairs = np.empty((0, 2), dtype=np.int64)
    for _ in range(ROUNDS if len(first) else 0):
        ends = np.stack([rng.choice(each, 4 * request.needed) for each in (first, pool)], axis=1)
        pairs = np.concatenate([pairs, _allowed_among(np.sort(ends, axis=1), request.needed, allowed)])
        pairs = pairs[np.sort(np.unique(pairs, axis=0, return_index=True)[1])]
        if len(pairs) >= request.needed:
            break
    return pairs[: request.needed]


def _allowed_among(ends: np.ndarray, needed: int, allowed: Allowed) -> np.ndarray:
    """The first rows of `ends`, shape (n, 2), that can be negatives: at least `needed`, if there are."""
    clean = [ends[:0]]
    # Linked pairs are rare among all pairs, so a few times the number needed is nearly always enough.
    size = max(4 * needed, 1_000)
    for start in range(0, len(ends), size):
        some = ends[start : start + size]
        clean.append(some[allowed(some[:, 0], some[:, 1])])
        if sum(map(len, clean)) >= needed:
            break
    return np.concatenate(clean)


# ---- pairing anew --------------------------------------------------------------------------------


class Matched(NamedTuple):
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


# ---- near texts first ----------------------------------------------------------------------------


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
