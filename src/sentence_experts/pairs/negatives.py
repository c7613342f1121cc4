"""Clean negatives: pairs of one domain that no relation links, of papers that are cited enough.

Source: Hallee et al. 2025, Data compilation: not co-cited, and both cited at least 15 times, so that they
had the chance to be. Here no relation at all may link them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sentence_experts.errors import InputError
from sentence_experts.pairs.splits import WorkArrays

# Below this many works all their pairs are looked at, above it pairs are drawn.
ENUMERATE_UP_TO = 1_500
ROUNDS = 12

# (left, right) node numbers, each of shape (pairs,), left < right -> a mask of the linked ones.
Linked = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Request:
    """So many negatives of one domain, for one set, out of these works (positions in `WorkArrays`)."""

    split: str
    domain: str
    needed: int
    pool: np.ndarray
    # One end of every negative comes from here, as it does for the positives of a split by year.
    one_of: np.ndarray | None = None


class NegativeSampler:
    """Draws negatives, never the same pair twice, and knows how far citation counts would have to drop."""

    def __init__(self, works: WorkArrays, linked: Linked, rng: np.random.Generator) -> None:
        self._works = works
        self._linked = linked
        self._rng = rng
        self._taken: set[tuple[int, int]] = set()

    def draw(self, requests: list[Request], min_cited: int) -> list[np.ndarray]:
        """Node numbers of shape (needed, 2) for each request.

        Raises:
            InputError: a request cannot be met; the message gives the largest `min_cited` that would do.
        """
        drawn, failed = [], []
        for request in requests:
            found = self._draw_one(request, min_cited)
            if len(found) < request.needed:
                failed.append((request, len(found)))
            drawn.append(found)
            self._taken.update(map(tuple, found.tolist()))
        if failed:
            raise InputError(self._explain(failed, min_cited))
        return drawn

    def _draw_one(self, request: Request, min_cited: int) -> np.ndarray:
        pool = request.pool[self._works.times_cited[request.pool] >= min_cited]
        if request.needed == 0 or len(pool) < 2:
            return np.empty((0, 2), dtype=np.int64)
        if len(pool) <= ENUMERATE_UP_TO:
            every = np.stack(np.triu_indices(len(pool), k=1), axis=1)
            return self._clean(pool[self._rng.permutation(every)], request)[: request.needed]
        first = pool if request.one_of is None else np.intersect1d(pool, request.one_of)
        found = np.empty((0, 2), dtype=np.int64)
        for _ in range(ROUNDS if len(first) else 0):
            ends = np.stack(
                [self._rng.choice(first, 4 * request.needed), self._rng.choice(pool, 4 * request.needed)],
                axis=1,
            )
            fresh = self._clean(ends, request)
            found = np.concatenate([found, fresh])
            found = found[np.sort(np.unique(found, axis=0, return_index=True)[1])]
            if len(found) >= request.needed:
                break
        return found[: request.needed]

    def _clean(self, positions: np.ndarray, request: Request) -> np.ndarray:
        """Node numbers (n, 2), left < right, of the rows of `positions` that may serve as negatives."""
        positions = positions[
            self._works.same_text[positions[:, 0]] != self._works.same_text[positions[:, 1]]
        ]
        if request.one_of is not None:
            positions = positions[np.isin(positions, request.one_of).any(axis=1)]
        ends = np.sort(self._works.work[positions], axis=1)
        untaken = np.array([tuple(pair) not in self._taken for pair in ends.tolist()], dtype=bool)
        ends = ends[untaken] if len(ends) else ends
        # Linked pairs are rare among all pairs: looking at a few times the need is nearly always enough.
        clean: list[np.ndarray] = []
        for start in range(0, len(ends), max(4 * request.needed, 1_000)):
            batch = ends[start : start + max(4 * request.needed, 1_000)]
            clean.append(batch[~self._linked(batch[:, 0], batch[:, 1])])
            if sum(map(len, clean)) >= request.needed:
                break
        return np.concatenate(clean) if clean else ends

    def _largest_min_cited(self, request: Request, below: int) -> int | None:
        """The largest threshold under `below` that gives enough; fewer citations only add papers."""
        if len(self._draw_one(request, 0)) < request.needed:
            return None
        enough, too_many = 0, below
        while too_many - enough > 1:
            middle = (enough + too_many) // 2
            if len(self._draw_one(request, middle)) >= request.needed:
                enough = middle
            else:
                too_many = middle
        return enough

    def _explain(self, failed: list[tuple[Request, int]], min_cited: int) -> str:
        request, found = failed[0]
        what = (
            f"{request.domain} ({request.split}) needs {request.needed} negative pairs, only {found} can be "
            f"made of unlinked papers that are both cited at least {min_cited} times"
        )
        if len(failed) > 1:
            what += f" (and {len(failed) - 1} more sets fall short)"
        largest = [self._largest_min_cited(each, min_cited) for each, _ in failed]
        if any(value is None for value in largest):
            return f"{what}; no threshold gives enough: lower the positives with --max-eval-per-domain"
        would_do = min(value for value in largest if value is not None)
        return f"{what}; the largest that would do is --negatives-min-cited {would_do}"
