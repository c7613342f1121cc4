"""What differs between kinds of training data: linked pairs of domains, pairs of tasks, pairs of a table.

An objective gives the rest of the training what it needs to know of its data: the routes and their defaults,
which texts are positives of each other, and the validation figure. Everything else is the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from sentence_experts.errors import InputError, RouteError
from sentence_experts.models.architectures.routed_model import RoutedModel
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.tasks.dataset import Tasks
from sentence_experts.tasks.task_file import Task
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.validation import PairValidation, SearchSet, SearchValidation, Validation

Numbers = NDArray[np.int64]
NONE = -1  # the number of a text that is not there


class SourceRows(NamedTuple):
    """The training pairs of one source: a domain, or one dataset of a task.

    Attributes:
        route: the route that they train.
        source: the dataset's name; the domain's.
        table: string columns anchor, positive and negative (null where there is none).
        numbers: (rows, 3) for each text a number; texts of equal or linked numbers are positives of each
            other.
    """

    route: str
    source: str
    table: pa.Table
    numbers: Numbers


@dataclass(frozen=True)
class ObjectiveRows:
    """All training pairs of an objective.

    Attributes:
        sources: its pairs.
        count: how many numbers they use, from 0.
        links: (2, links) numbers that are linked.
    """

    sources: list[SourceRows]
    count: int
    links: Numbers


class Defaults(NamedTuple):
    """How a route is trained if the config says nothing else."""

    batches: str
    temperature: float
    weight: float | None = None


class Objective(ABC):
    """One kind of training data.

    Attributes:
        kind: what one of its routes is called.
        symmetric: whether anchor and positive may change places.
    """

    kind: ClassVar[str]
    symmetric: ClassVar[bool] = False

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The names of its routes."""

    @abstractmethod
    def sources(self, name: str) -> tuple[str, ...]:
        """The names of a route's datasets."""

    @abstractmethod
    def defaults(self, name: str) -> Defaults:
        """How a route is trained by default."""

    def sides(self, name: str) -> tuple[str, str]:
        """The model's routes for the anchors and for the positives."""
        return name, name

    @abstractmethod
    def prompts(self, name: str, model: SentenceTransformer, config: TrainConfig) -> tuple[str, str]:
        """What stands in front of anchors, and of positives and negatives.

        Raises:
            RouteError: the model cannot tell the route's texts apart.
        """

    @abstractmethod
    def rows(self, names: Sequence[str]) -> ObjectiveRows:
        """The training pairs of these routes.

        Raises:
            InputError: a route has none.
        """

    @abstractmethod
    def validation(
        self, names: Sequence[str], prompts: Mapping[str, tuple[str, str]], config: TrainConfig
    ) -> Validation:
        """How the validation split of these routes is measured.

        Raises:
            InputError: there is nothing to measure.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash that changes when the data does."""

    @abstractmethod
    def describe(self) -> str:
        """What the pairs are, for the model card."""

    def new_prompts(self, name: str) -> Mapping[str, str]:
        """The prompts that a model without routes gets when it is trained on this route."""
        return {}


@dataclass(frozen=True)
class LinkedPairs(Objective):
    """Domains with pairs of linked papers (`sentence-experts pairs`)."""

    kind: ClassVar[str] = "domain"
    symmetric: ClassVar[bool] = True
    pairs: Pairs

    @property
    def names(self) -> list[str]:
        """The domains."""
        return list(self.pairs.domains)

    def sources(self, name: str) -> tuple[str, ...]:
        """The domain itself."""
        return (name,)

    def defaults(self, name: str) -> Defaults:
        """Batches of all domains, temperature 0.05."""
        return Defaults("mixed", 0.05)

    def prompts(self, name: str, model: SentenceTransformer, config: TrainConfig) -> tuple[str, str]:
        """The model's prompt of the domain; none for a model without prompts."""
        return (prompt_of(model, name, "domain"),) * 2

    def rows(self, names: Sequence[str]) -> ObjectiveRows:
        """The pairs of the train split; a number stands for a paper."""
        train = of_domains(self.pairs.split("train"), names)
        train = train.filter(pc.equal(train["label"], 1))
        if not train.num_rows:
            raise InputError("the train split holds no pairs")
        ids = pa.chunked_array(
            [chunk.cast(pa.string()) for name in _ID_COLUMNS for chunk in train[name].chunks], pa.string()
        )
        papers = pc.unique(ids)
        papers = papers.take(pc.sort_indices(papers))
        numbers = np.stack([_numbers(train[name], papers) for name in _ID_COLUMNS], axis=1)
        sources = []
        for name in names:
            mine = pc.equal(train["domain"], name)
            rows = np.flatnonzero(mine.to_numpy(zero_copy_only=False))
            table = train.filter(mine).select(["anchor", "positive"])
            table = table.append_column("negative", pa.nulls(len(rows), pa.string()))
            with_negative = np.column_stack([numbers[rows], np.full(len(rows), NONE)])
            sources.append(SourceRows(name, name, table, with_negative))
        return ObjectiveRows(sources, len(papers), self._links(papers))

    def _links(self, papers: pa.Array) -> Numbers:
        """The known links between these papers."""
        table = self.pairs.known_links()
        links = np.stack([_numbers(table[column], papers) for column in ("left_id", "right_id")])
        return links[:, (links != NONE).all(axis=0)]

    def validation(
        self, names: Sequence[str], prompts: Mapping[str, tuple[str, str]], config: TrainConfig
    ) -> Validation:
        """F1max or ROC-AUC on the labelled pairs of the validation split."""
        table = of_domains(self.pairs.split("validation"), names)
        return PairValidation(table, metric=config.pair_metric)

    def fingerprint(self) -> str:
        """That of the pairs."""
        return self.pairs.fingerprint()

    def describe(self) -> str:
        """The settings that the pairs were compiled with."""
        settings = self.pairs.settings
        how = (
            f"pairs of {settings['unit']}s linked by {settings['relation']}, split by {settings['split']}"
            if settings
            else "linked pairs"
        )
        return f"{how} (pairs dataset {self.fingerprint()[:12]})"


class GroupedPairs(Objective):
    """Routes whose pairs have groups: texts of one group are positives of each other."""

    @abstractmethod
    def table(self, name: str, source: str, split: str) -> pa.Table:
        """The pairs of a dataset: columns anchor, positive, negative (null if there is none), group."""

    @property
    @abstractmethod
    def where(self) -> str:
        """What the data is called in messages."""

    def rows(self, names: Sequence[str]) -> ObjectiveRows:
        """The pairs of the train splits; a number stands for a group of a dataset."""
        sources: list[SourceRows] = []
        count = 0
        for name in names:
            tables = {source: self.table(name, source, "train") for source in self.sources(name)}
            if not sum(table.num_rows for table in tables.values()):
                raise InputError(f"{self.where}: {self.kind} {name} has no training pairs")
            for source, table in tables.items():
                numbers, count = numbers_of_groups(table, count)
                sources.append(SourceRows(name, source, table, numbers))
        return ObjectiveRows(sources, count, np.zeros((2, 0), dtype=np.int64))

    def validation(
        self, names: Sequence[str], prompts: Mapping[str, tuple[str, str]], config: TrainConfig
    ) -> Validation:
        """nDCG@10 of the anchors among the positives of the validation split, per dataset."""
        searches: dict[str, list[SearchSet]] = {}
        for name in names:
            tables = [self.table(name, source, "validation") for source in self.sources(name)]
            searches[name] = [SearchSet.of(table, prompts[name]) for table in tables if table.num_rows]
            if not any(search.has_findable for search in searches[name]):
                raise InputError(
                    f"{self.where}: the validation split of {self.kind} {name} has no pair to find, and it "
                    "chooses the best step: give it one"
                )
        return SearchValidation(searches)


@dataclass(frozen=True)
class TaskPairs(GroupedPairs):
    """Tasks with pairs of their own kind (`sentence-experts tasks`); texts of one group are positives."""

    kind: ClassVar[str] = "task"
    tasks: Tasks

    @cached_property
    def _tasks(self) -> dict[str, Task]:
        return {task.name: task for task in self.tasks.task_file.trainable()}

    @property
    def names(self) -> list[str]:
        """The tasks that models are trained on."""
        return list(self._tasks)

    def sources(self, name: str) -> tuple[str, ...]:
        """The task's datasets."""
        return tuple(self._tasks[name].datasets)

    def defaults(self, name: str) -> Defaults:
        """What the task file says, or else what suits the kind of task."""
        task = self._tasks[name]
        return Defaults(task.batches or task.of.batches, task.temperature or task.of.temperature, task.weight)

    def sides(self, name: str) -> tuple[str, str]:
        """Such as query and document."""
        task = self._tasks[name]
        return task.anchor_route, task.positive_route

    def prompts(self, name: str, model: SentenceTransformer, config: TrainConfig) -> tuple[str, str]:
        """The task's instructions, or nothing without `instructions`."""
        task = self._tasks[name]
        routed = routed_model(model)
        if routed is not None and routed.config.routes:
            _check_instructions(task, {route.name: route.text for route in routed.routes}, config)
        if not config.instructions:
            return "", ""
        return task.instructions[task.anchor_route], task.instructions[task.positive_route]

    def new_prompts(self, name: str) -> Mapping[str, str]:
        """The task's instructions."""
        return self._tasks[name].instructions

    def table(self, name: str, source: str, split: str) -> pa.Table:
        """As the folder has it."""
        return self.tasks.pairs(name, source, split)

    @property
    def where(self) -> str:
        """The folder."""
        return self.tasks.name

    def fingerprint(self) -> str:
        """That of the tasks."""
        return self.tasks.fingerprint()

    def describe(self) -> str:
        """Which tasks they are."""
        return f"pairs of tasks (tasks folder {self.fingerprint()[:12]})"


_ID_COLUMNS = ("anchor_id", "positive_id")


def routed_model(model: Any) -> RoutedModel | None:
    """The transformer with experts inside `model`, however it is wrapped; None if there is none."""
    return next((module for module in model.modules() if isinstance(module, RoutedModel)), None)


def experts_of(model: SentenceTransformer, names: Sequence[str]) -> dict[str, int]:
    """Route -> the index of its expert; 0 for a model without experts.

    Raises:
        RouteError: the model has experts, but none for a route.
    """
    routed = routed_model(model)
    if routed is None:
        return dict.fromkeys(names, 0)
    known = {name: index for index, name in enumerate(routed.config.experts)}
    known |= {route.name: route.expert for route in routed.routes}
    missing = [name for name in names if name not in known]
    if missing:
        raise RouteError(
            f"the model has no expert for {', '.join(missing)}; it has {', '.join(sorted(known))}"
        )
    return {name: known[name] for name in names}


def prompt_of(model: SentenceTransformer, name: str, kind: str) -> str:
    """The model's prompt of a route; "" for a model without prompts.

    Raises:
        RouteError: the model has prompts, but not for this route.
    """
    prompts = {route: prompt for route, prompt in model.prompts.items() if prompt}
    if prompts and name not in prompts:
        raise RouteError(f"the model has no route for {kind} {name}; it has {', '.join(sorted(prompts))}")
    return prompts.get(name, "")


def of_domains(table: pa.Table, domains: Sequence[str]) -> pa.Table:
    """The rows of these domains."""
    return table.filter(pc.is_in(table["domain"], value_set=pa.array(domains, table["domain"].type)))


def numbers_of_groups(table: pa.Table, first: int) -> tuple[Numbers, int]:
    """Numbers of anchor, positive and negative of each row, from `first`, and the number after the last.

    A negative whose text occurs elsewhere in the table has the number of that text's group; any other has one
    of its own.
    """
    rows = table.num_rows
    groups = codes(table["group"]) + first
    negatives = np.full(rows, NONE)
    own = first + rows + np.arange(rows)
    for column in ("anchor", "positive"):
        places = pc.index_in(table["negative"], value_set=table[column].combine_chunks(), skip_nulls=True)
        places = places.fill_null(NONE).to_numpy()
        negatives = np.where(places == NONE, negatives, groups[places])
    negatives = np.where(negatives == NONE, own, negatives)
    same = pc.equal(table["negative"], table["positive"]).fill_null(False)
    negatives = np.where(same.to_numpy(), groups, negatives)
    given = pc.is_valid(table["negative"]).to_numpy()
    negatives = np.where(given, negatives, NONE)
    return np.stack([groups, groups, negatives], axis=1).astype(np.int64), first + 2 * rows


def codes(texts: pa.ChunkedArray) -> Numbers:
    """A number per value, the same for equal values."""
    encoded = texts.combine_chunks().dictionary_encode()
    found: Numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _numbers(ids: pa.ChunkedArray, known: pa.Array) -> Numbers:
    places = pc.index_in(ids.cast(pa.string()), value_set=known).fill_null(NONE)
    found: Numbers = places.to_numpy().astype(np.int64)
    return found


def _check_instructions(task: Task, known: Mapping[str, str], config: TrainConfig) -> None:
    if not config.instructions:
        raise RouteError(
            "`instructions=False`: this model finds its expert by the instruction; use a dense model"
        )
    for route, instruction in task.instructions.items():
        if known.get(route) != instruction:
            has = f"has {known[route]!r} for it" if route in known else f"has {', '.join(known)}"
            raise RouteError(
                f"task {task.name}: the model has no route {route!r} with instruction {instruction!r}, it "
                f"{has}; extend the base with these tasks, or change the task file"
            )
