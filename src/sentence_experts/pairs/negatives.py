"""Negatives of validation and test, drawn as `PairsConfig.negatives` says, as many as linked pairs.

No relation links the works of a negative. They are `matched` or `hard` (the works of the linked pairs paired
anew, at random or near texts first), `cited` or `random` (works of the domain, cited often enough or any), or
of the `same-article` (the anchor of a linked pair, and a work that an article mentions far from it).

Source of `cited`: Hallee et al. 2025, Data compilation: not co-cited, and both cited at least 15 times, so
that they could have been.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.graph import LinkGraph
from sentence_experts.pairs.matched import Allowed, find_among, keys_between, keys_of, near_first, pair_anew
from sentence_experts.pairs.proximity import LEVELS
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

# (left, right) node numbers, each of shape (pairs,) -> a mask of the linked ones.
Linked = Callable[[np.ndarray, np.ndarray], np.ndarray]
# Domain -> split -> counts.
Counts = dict[str, dict[str, dict[str, int]]]


@dataclass(frozen=True)
class DrawnNegatives:
    """The negatives of the evaluation sets, and the positives that they belong to.

    Attributes:
        splits: the linked pairs of each split, without those of validation and test that got no negative.
        negatives: set -> its negatives.
        anchored: whether a positive and its negative have the same left end.
        shortfall: how many of the negatives are not fully matched: `nearest` have one end of a linked pair
            and a work near in frequency, `random` two unlinked works.
        near: how many hard negatives are `near` each other by TF-IDF, of `all`.
    """

    splits: list[PairArrays]
    negatives: Mapping[int, PairArrays]
    anchored: bool = False
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
    graph: LinkGraph,
    splits: list[PairArrays],
    assignment: Assignment,
    settings: PairsConfig,
    rng: np.random.Generator,
) -> DrawnNegatives:
    """Draw as many negatives as positives, per domain of each evaluation set.

    Raises:
        TooFewPairsError: there are too few.
    """
    if settings.negatives == "same-article":
        return _draw_same_article(graph, splits, assignment, rng)
    least = settings.negatives_min_cited if settings.negatives == "cited" else 0
    return draw_unlinked(graph, splits, assignment, settings.negatives, least, rng)


def draw_unlinked(
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
    return DrawnNegatives(
        splits, _by_split(requests, draw_cited(requests, graph.works, linked, min_cited, rng))
    )


def _by_split(requests: list[Request], negatives_of: list[np.ndarray]) -> dict[int, PairArrays]:
    negatives = {}
    for split in (VALIDATION, TEST):
        mine = [number for number, request in enumerate(requests) if request.split == split]
        ends = np.concatenate([np.empty((0, 2), np.int64), *(negatives_of[number] for number in mine)])
        domains = np.array(
            [requests[number].domain for number in mine for _ in negatives_of[number]], dtype=object
        )
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


# ---- of the same article -------------------------------------------------------------------------


def _draw_same_article(
    graph: LinkGraph, splits: list[PairArrays], assignment: Assignment, rng: np.random.Generator
) -> DrawnNegatives:
    """One negative for each positive of validation and test, none twice.

    Each positive, two works that an article mentions in one paragraph or closer, is compared with its anchor
    and another work that the same article mentions; no article mentions those two in one paragraph. Row by
    row, a positive and its negative have the same left end, the anchor.

    Raises:
        TooFewPairsError: no positive of a set has one.
    """
    positives, negatives = list(splits), {}
    for split in (VALIDATION, TEST):
        positives[split], negatives[split] = _far_pairs(graph, splits[split], split, assignment, rng)
    return DrawnNegatives(positives, negatives, anchored=True)


def _far_pairs(
    graph: LinkGraph, positives: PairArrays, split: int, assignment: Assignment, rng: np.random.Generator
) -> tuple[PairArrays, PairArrays]:
    size = len(positives)
    # Each end can be the anchor: pair number `size + n` is pair n the other way round.
    anchor = np.concatenate([positives.left, positives.right])
    near = np.concatenate([positives.right, positives.left])
    pair, other = graph.far_in_one_article(anchor, near)
    fits = assignment.pools[split][other]
    for domain in np.unique(positives.domain):
        fits &= (positives.domain[pair % size] != domain) | graph.in_domain(domain)[other]
    if (one_end := assignment.one_end.get(split)) is not None:
        fits &= one_end[anchor[pair]] | one_end[other]
    rows, others = _choose_others(anchor, pair[fits], other[fits], size, rng)
    if len(rows) == 0:
        raise TooFewPairsError(
            f"{SPLITS[split]}: no linked pair has a paper that the same article mentions in other "
            "paragraphs and that is in the same set and domain; add articles with their text"
        )
    paired = positives.take(rows % size)
    far = np.full(len(rows), LEVELS.index("article"))
    return (
        PairArrays(anchor[rows], near[rows], paired.count, paired.domain, paired.level, paired.weight),
        PairArrays(anchor[rows], others, np.zeros(len(rows), dtype=np.int64), paired.domain, far),
    )


def _choose_others(
    anchor: np.ndarray, pair: np.ndarray, other: np.ndarray, size: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The directed pairs that got a negative, ascending by positive, and their negatives' other ends.

    `other[n]` is a candidate for the directed pair `pair[n]` (ascending).
    """
    bounds = np.searchsorted(pair, np.arange(2 * size + 1))
    used: set[int] = set()
    rows, others = np.full(size, -1), np.full(size, -1)
    reverse = rng.random(size) < 0.5
    for positive in rng.permutation(size):
        for row in (positive + size * reverse[positive], positive + size * (not reverse[positive])):
            candidates = rng.permutation(other[bounds[row] : bounds[row + 1]])
            keys = keys_between(np.full_like(candidates, anchor[row]), candidates).tolist()
            free = next((number for number, key in enumerate(keys) if key not in used), None)
            if free is not None:
                used.add(keys[free])
                rows[positive], others[positive] = row, candidates[free]
                break
    has_negative = rows >= 0
    return rows[has_negative], others[has_negative]
