"""Which pairs meet in a batch: a task is drawn, then one of its datasets or all of them.

Source: Romero 2025, section 3.2 and appendix D.2. A batch is always of one task. Homogeneous batches are of
one dataset, drawn in proportion to its pairs; heterogeneous ones are drawn from all datasets of the task
together. The static curriculum (note of Table 4) makes all batches heterogeneous; that word is about the
datasets of a task, so its batches are of one task as well.

With several processes each step takes one group of as many batches as there are processes: all of one task
(and dataset), and without the same text twice, because the negatives of all processes are put together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.random import Generator
from sentence_transformers.base.sampler import DefaultBatchSampler

from sentence_experts.errors import InputError
from sentence_experts.training.task_data import Numbers, TrainingTasks


class Pool:
    """Pairs that may meet in a batch: those of a dataset, or of a task."""

    def __init__(self, name: str, rows: Numbers, texts: Numbers, size: int) -> None:
        """Args:
            name: for messages.
            rows: (pairs,) their places in the table.
            texts: (rows of the table, 2) text numbers.
            size: pairs in a group.

        Raises:
            InputError: the pairs do not fill one group.
        """
        if len(rows) < size:
            raise InputError(
                f"{name}: {len(rows)} training pairs do not fill one batch of {size}; lower --batch-size, or "
                "draw from all datasets of the task with --batches heterogeneous"
            )
        self.name = name
        self._rows = rows
        self._texts = texts
        self._size = size
        self._waiting: deque[int] = deque()
        self._taken = True

    @property
    def groups_left(self) -> int:
        """How many more groups this pass may give; fewer, if texts stand in many pairs."""
        return len(self._waiting) // self._size

    def begin(self, random: Generator) -> None:
        """Begin a pass over all pairs, in a new order.

        Raises:
            InputError: the pass before gave no group at all.
        """
        if not self._taken:
            raise InputError(
                f"{self.name}: too few of its texts differ for batches of {self._size}; lower --batch-size"
            )
        self._waiting = deque(random.permutation(self._rows).tolist())
        self._taken = False

    def take(self) -> list[int] | None:
        """The next pairs in which no text occurs twice; None, and the pass is over, if there are too few.

        Pairs whose text is in the group already wait for the next one.
        """
        group: list[int] = []
        seen: set[int] = set()
        passed_over: list[int] = []
        while self._waiting and len(group) < self._size:
            row = self._waiting.popleft()
            texts = set(self._texts[row].tolist())
            if seen & texts:
                passed_over.append(row)
            else:
                seen |= texts
                group.append(row)
        if len(group) < self._size:
            return None
        self._waiting.extendleft(reversed(passed_over))
        self._taken = True
        return group


class TaskBatches(DefaultBatchSampler):
    """The batches of a whole run, one after the other: passes over the pairs until all steps have theirs.

    In proportion to their pairs: a task is drawn by what is left of it, so all tasks' pairs are used up
    together, and no pair comes twice before every other came once (but for those whose text stands in too
    many pairs to fill a batch). By weights: a task whose pairs are used up begins anew, the others go on.

    One stream for the run, so a run that goes on at a step skips as many batches and meets the same ones.
    """

    def __init__(
        self, tasks: TrainingTasks, batch_size: int, processes: int = 1, steps: int = 1, seed: int = 0
    ) -> None:
        """Args:
            tasks: the pairs, and how each task is drawn.
            batch_size: pairs in a batch of one process.
            processes: how many train together.
            steps: how many groups there are in all.
            seed: of every draw.

        Raises:
            InputError: a task (or, where its batches are homogeneous, one of its datasets) does not fill one
                group of batches.
        """
        super().__init__(tasks.rows, batch_size=batch_size, drop_last=True, seed=seed)
        self.tasks = tasks
        self.processes = processes
        self.steps = steps
        self._pools()

    def __len__(self) -> int:
        return self.steps * self.processes

    def __iter__(self) -> Iterator[list[int]]:
        groups = self._groups()
        for _ in range(self.steps):
            group = next(groups)
            for start in range(0, len(group), self.batch_size):
                yield group[start : start + self.batch_size]

    def groups_in_a_pass(self) -> int:
        """How many groups all pairs give once: the steps of an epoch.

        Raises:
            InputError: a pool gives none, because too few of its texts differ.
        """
        random = np.random.default_rng(self.seed)
        count = 0
        for pool in (pool for pools in self._pools() for pool in pools):
            pool.begin(random)
            while pool.take() is not None:
                count += 1
            pool.begin(random)  # says so where the pool gave nothing
        return count

    def _groups(self) -> Iterator[list[int]]:
        random = np.random.default_rng(self.seed)
        tasks = self._pools()
        weights = [task.weight for task in self.tasks.settings]
        for pool in (pool for pools in tasks for pool in pools):
            pool.begin(random)
        while True:
            left = [sum(pool.groups_left for pool in pools) for pools in tasks]
            chances = [weight or count for weight, count in zip(weights, left, strict=True)]
            if not any(chances):
                _begin_all(tasks, random)
                continue
            pools = tasks[_draw(chances, random)]
            if not any(pool.groups_left for pool in pools):
                _begin_all([pools], random)
            group = pools[_draw([pool.groups_left for pool in pools], random)].take()
            if group is not None:
                yield group

    def _pools(self) -> list[list[Pool]]:
        """The pools of each task."""
        places = self.tasks.places
        size = self.batch_size * self.processes
        pools = []
        first_dataset = 0
        for number, task in enumerate(self.tasks.settings):
            of_task = np.flatnonzero(places[:, 0] == number)
            parts = {f"task {task.name}": of_task}
            if task.batches == "homogeneous":
                numbers = range(first_dataset, first_dataset + len(task.datasets))
                parts = {
                    f"task {task.name}, dataset {name}": of_task[places[of_task, 1] == dataset]
                    for name, dataset in zip(task.datasets, numbers, strict=True)
                }
            first_dataset += len(task.datasets)
            # A dataset of a trained task may be there for its test split alone.
            pools.append(
                [Pool(name, rows, self.tasks.texts, size) for name, rows in parts.items() if len(rows)]
            )
        return pools


def _begin_all(tasks: Sequence[Sequence[Pool]], random: Generator) -> None:
    for pool in (pool for pools in tasks for pool in pools):
        pool.begin(random)


def _draw(chances: Sequence[float], random: Generator) -> int:
    shares = np.asarray(chances, dtype=float)
    return int(random.choice(len(shares), p=shares / shares.sum()))
