"""Random negatives: pairs of one domain that no relation links, of papers that are cited enough.

Source: Hallee et al. 2025, Data compilation: not co-cited, and both cited at least 15 times, so that they
could have been. Here no relation may link them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from sentence_experts.pairs.matched import keys_of
from sentence_experts.pairs.splits import TooFewPairsError, WorkArrays

# Up to this number of works all their pairs are enumerated, above it pairs are sampled.
ENUMERATE_UP_TO = 1_500
ROUNDS = 12

# (left, right) node numbers, each of shape (pairs,) -> a mask of the linked ones.
Linked = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Request:
    """Negatives that one set needs of one domain, from a pool of works (their node numbers)."""

    split: str
    domain: str
    needed: int
    pool: np.ndarray
    # A mask over the works: each negative has one end there, as does each positive of a split by year.
    one_end: np.ndarray | None = None


class NegativeSampler:
    """Samples negatives, never the same pair twice, and finds the threshold that gives enough of them."""

    def __init__(self, works: WorkArrays, linked: Linked, rng: np.random.Generator) -> None:
        self._works = works
        self._linked = linked
        self._rng = rng
        self._taken: set[tuple[int, int]] = set()

    def draw(self, requests: list[Request], min_cited: int) -> list[np.ndarray]:
        """Node numbers of shape (needed, 2) for each request.

        Raises:
            TooFewPairsError: a request cannot be met; the message gives the largest sufficient `min_cited`.
        """
        negatives = self._try(requests, min_cited)
        short = [
            (request, len(made))
            for request, made in zip(requests, negatives, strict=True)
            if len(made) < request.needed
        ]
        if short:
            raise TooFewPairsError(self._explain(requests, short, min_cited))
        return negatives

    def more(self, request: Request, known_pairs: np.ndarray, excluded: np.ndarray) -> np.ndarray:
        """Up to the number of negatives that a request still needs.

        None of them is in `known_pairs`, shape (pairs, 2), or among the `excluded` (`keys_of`).
        """
        needed = request.needed - len(known_pairs)
        if needed == 0:
            return known_pairs[:0]
        known = np.concatenate([excluded, keys_of(known_pairs)])
        self._taken = set(zip((known >> 32).tolist(), (known & 0xFFFFFFFF).tolist(), strict=True))
        return self._draw_one(replace(request, needed=needed), min_cited=0)

    def _try(self, requests: list[Request], min_cited: int) -> list[np.ndarray]:
        """Sample as many negatives as possible per request, none of them twice."""
        self._taken = set()
        negatives = []
        for request in requests:
            negatives.append(self._draw_one(request, min_cited))
            self._taken.update(map(tuple, negatives[-1].tolist()))
        return negatives

    def _draw_one(self, request: Request, min_cited: int) -> np.ndarray:
        pool = request.pool[self._works.times_cited[request.pool] >= min_cited]
        if request.needed == 0 or len(pool) < 2:
            return np.empty((0, 2), dtype=np.int64)
        if len(pool) <= ENUMERATE_UP_TO:
            every = np.stack(np.triu_indices(len(pool), k=1), axis=1)
            return self._clean(pool[self._rng.permutation(every)], request)[: request.needed]
        first = pool if request.one_end is None else pool[request.one_end[pool]]
        pairs = np.empty((0, 2), dtype=np.int64)
        for _ in range(ROUNDS if len(first) else 0):
            ends = np.stack([self._rng.choice(each, 4 * request.needed) for each in (first, pool)], axis=1)
            pairs = np.concatenate([pairs, self._clean(ends, request)])
            pairs = pairs[np.sort(np.unique(pairs, axis=0, return_index=True)[1])]
            if len(pairs) >= request.needed:
                break
        return pairs[: request.needed]

    def _clean(self, ends: np.ndarray, request: Request) -> np.ndarray:
        """The rows of `ends`, shape (n, 2), that are valid negatives, left < right."""
        texts = self._works.same_text[ends]
        ends = ends[texts[:, 0] != texts[:, 1]]
        if request.one_end is not None:
            ends = ends[request.one_end[ends].any(axis=1)]
        ends = np.sort(ends, axis=1)
        ends = ends[np.array([tuple(pair) not in self._taken for pair in ends.tolist()], dtype=bool)]
        # Linked pairs are rare among all pairs, so a few times the number needed is nearly always enough.
        clean: list[np.ndarray] = []
        size = max(4 * request.needed, 1_000)
        for start in range(0, len(ends), size):
            batch = ends[start : start + size]
            clean.append(batch[~self._linked(batch[:, 0], batch[:, 1])])
            if sum(map(len, clean)) >= request.needed:
                break
        return np.concatenate(clean) if clean else ends

    def _largest_min_cited(self, requests: list[Request], below: int) -> int | None:
        """The largest threshold under `below` that meets all requests; a lower one only adds papers."""

        def enough(min_cited: int) -> bool:
            negatives = self._try(requests, min_cited)
            return all(len(made) >= each.needed for each, made in zip(requests, negatives, strict=True))

        if below == 0 or not enough(0):
            return None
        served, too_high = 0, below
        while too_high - served > 1:
            middle = (served + too_high) // 2
            if enough(middle):
                served = middle
            else:
                too_high = middle
        return served

    def _explain(self, requests: list[Request], short: list[tuple[Request, int]], min_cited: int) -> str:
        request, made = short[0]
        what = (
            f"{request.domain} ({request.split}) needs {request.needed} negative pairs, but only {made} can "
            f"be made of unlinked papers that are both cited at least {min_cited} times"
        )
        if (others := len(short) - 1) > 0:
            what += f" (and {others} more set{' falls' if others == 1 else 's fall'} short)"
        would_do = self._largest_min_cited(requests, min_cited)
        if would_do is None:
            return (
                f"{what}; no threshold gives enough: lower the positives with `max_eval_per_domain`"
                * (made > 0)
                or f"{what}, and no threshold gives any"
            )
        return f"{what}; there are enough up to `negatives_min_cited={would_do}`"
