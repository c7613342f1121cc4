"""The batches of a run: a route is sampled, then a pool of its pairs.

Source: Romero 2025, section 3.2 and appendix D.2. A homogeneous batch is of one dataset (of one domain), a
heterogeneous one of all datasets of a task, and a mixed one of all routes. The static curriculum (note of
Table 4) makes all batches heterogeneous; that word is about the datasets of a task, so its batches are of one
task as well.

With several processes each step takes one group of as many batches as there are processes: all of one pool,
and without the same text twice, because the negatives of all processes are put together.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.random import Generator
from sentence_transformers.base.sampler import DefaultBatchSampler

from sentence_experts.errors import InputError
from sentence_experts.training.data import Numbers
from sentence_experts.training.training_set import TrainingSet

logger = logging.getLogger(__name__)

# With few distinct texts an unlucky order fills no batch; another one may.
MAX_EMPTY_PASSES = 20
ADVICE = "lower `batch_size`, raise `fraction`, or let more pairs meet (`batches`: heterogeneous, mixed)"


class Pool:
    """Pairs that may meet in a batch.

    Args:
        name: name of the pool, for messages.
        rows: the pairs' places in the table.
        texts: the numbers of the table's texts, (rows, 2).
        size: pairs per group.

    Raises:
        InputError: the pairs do not fill one group.
    """

    def __init__(self, name: str, rows: Numbers, texts: Numbers, size: int) -> None:
        if len(rows) < size:
            raise InputError(f"{name}: {len(rows)} training pairs do not fill one batch of {size}; {ADVICE}")
        self.name, self.rows, self.texts, self.size = name, rows, texts, size
        self.waiting: deque[int] = deque()
        self.empty_passes = 0

    @property
    def groups_left(self) -> int:
        """The maximum number of groups left in this pass; fewer if texts occur in many pairs."""
        return len(self.waiting) // self.size

    def begin(self, random: Generator) -> None:
        """Begin a pass over all pairs, in a new order.

        Raises:
            InputError: the last passes gave no group at all.
        """
        if self.empty_passes == MAX_EMPTY_PASSES:
            raise InputError(f"{self.name}: too few of its texts differ for batches of {self.size}; {ADVICE}")
        self.waiting = deque(random.permutation(self.rows).tolist())
        self.empty_passes += 1

    def take(self) -> list[int] | None:
        """Return the next pairs in which no text occurs twice; None at the end of the pass.

        Pairs whose text is in the group already wait for the next one.
        """
        group: list[int] = []
        seen: set[int] = set()
        postponed: list[int] = []
        while self.waiting and len(group) < self.size:
            row = self.waiting.popleft()
            texts = self.texts[row].tolist()
            if seen.isdisjoint(texts):
                seen.update(texts)
                group.append(row)
            else:
                postponed.append(row)
        if len(group) < self.size:
            return None
        self.waiting.extendleft(reversed(postponed))
        self.empty_passes = 0
        return group


class RouteBatches(DefaultBatchSampler):
    """The batches of a whole run: passes over the pairs until all steps have theirs.

    In proportion to their pairs: a route is sampled by what is left of it, so that all routes' pairs are used
    up together, and no pair comes twice before every other came once (except pairs whose text occurs in too
    many pairs to fill a batch). By weights: a route whose pairs are used up starts over.

    It is one stream for the run, so a resumed run skips the batches of the finished steps and gets the same
    ones as an uninterrupted run.

    A number i + len(training) stands for pair i with anchor and positive swapped, as in
    `TrainingSet.dataset`. Symmetric pairs are swapped half of the time, so that the order carries no signal
    (Hallee 2025, Training strategy).
    """

    def __init__(
        self,
        training: TrainingSet,
        batch_size: int,
        processes: int = 1,
        steps: int = 1,
        seed: int = 0,
        swap: bool = False,
    ) -> None:
        """Make the batches of a whole run.

        Args:
            training: the pairs, and how each route is sampled.
            batch_size: pairs per batch of one process.
            processes: number of processes that train together.
            steps: number of groups in all.
            seed: random seed of all sampling.
            swap: whether to swap symmetric pairs.

        Raises:
            InputError: a pool does not fill one group of batches, or too few of its texts differ.
        """
        super().__init__(training.columns[0], batch_size=batch_size, drop_last=True, seed=seed)
        self.training, self.processes, self.steps = training, processes, steps
        self._swaps = training.symmetric if swap else np.zeros(len(training), dtype=bool)
        random = np.random.default_rng(seed)
        for pool in (pool for pools in self._pools().values() for pool in pools):
            pool.begin(random)
            while pool.take() is None:
                pool.begin(random)

    def __len__(self) -> int:
        return self.steps * self.processes

    def __iter__(self) -> Iterator[list[int]]:
        groups = self._groups()
        for _ in range(self.steps):
            group = next(groups)
            for start in range(0, len(group), self.batch_size):
                yield group[start : start + self.batch_size]

    def groups_in_a_pass(self) -> int:
        """Return the number of groups that all pairs give once: the steps of an epoch."""
        random = np.random.default_rng(self.seed)
        count = 0
        for pool in (pool for pools in self._pools().values() for pool in pools):
            before = count
            while count == before:
                pool.begin(random)
                while pool.take() is not None:
                    count += 1
        used, total = count * self.batch_size * self.processes, len(self.training)
        # The last, unfilled batch of each pool is no loss to speak of.
        if total - used > total / 10 + self.batch_size * self.processes * len(self.training.pools):
            logger.warning(
                f"{used:,} of {total:,} training pairs fit into a pass, as some texts are in many pairs, and "
                "no text comes twice in a batch: a lower `batch_size` uses more"
            )
        return count

    def list_idle(self) -> list[str]:
        """Return the names of the routes of which no batch of the run has a pair."""
        left = {*range(len(self.training.routes))}
        for group in islice(self._groups(), self.steps):
            left -= {*self.training.places[np.array(group) % len(self.training), 0].tolist()}
            if not left:
                break
        return [self.training.routes[number].name for number in sorted(left)]

    def _groups(self) -> Iterator[list[int]]:
        random = np.random.default_rng(self.seed)
        pools_of = self._pools()
        units = list(pools_of.values())
        # 0 where units are sampled in proportion to their pairs.
        weights = [sum(self.training.routes[number].weight or 0 for number in unit) for unit in pools_of]
        everything = [pool for pools in units for pool in pools]
        _begin(everything, random)
        while True:
            left = [sum(pool.groups_left for pool in pools) for pools in units]
            chances = [weight or count for weight, count in zip(weights, left, strict=True)]
            if not any(chances):
                _begin(everything, random)
                continue
            unit = units[_sample(chances, random)]
            if not any(pool.groups_left for pool in unit):
                _begin(unit, random)
            group = unit[_sample([pool.groups_left for pool in unit], random)].take()
            if group is not None:
                rows = np.array(group)
                if self._swaps[rows].any():
                    rows += len(self.training) * (self._swaps[rows] & (random.random(len(rows)) < 0.5))
                yield rows.tolist()

    def _pools(self) -> dict[tuple[int, ...], list[Pool]]:
        """Return the pools of each unit, which is one route, or all routes that share a mixed pool."""
        size = self.batch_size * self.processes
        pools: dict[tuple[int, ...], list[Pool]] = {}
        for number, (name, routes) in enumerate(self.training.pools):
            rows = np.flatnonzero(self.training.places[:, 2] == number)
            pools.setdefault(routes, []).append(Pool(name, rows, self.training.texts, size))
        return pools


def _begin(pools: Sequence[Pool], random: Generator) -> None:
    for pool in pools:
        pool.begin(random)


def _sample(chances: Sequence[float], random: Generator) -> int:
    shares = np.asarray(chances, dtype=float)
    return int(random.choice(len(shares), p=shares / shares.sum()))
