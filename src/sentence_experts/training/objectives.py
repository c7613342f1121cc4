"""What differs between kinds of training data: linked pairs of domains, and pairs of tasks.

An objective gives the rest of the training what it needs to know of its data: the routes and their defaults,
which texts are positives of each other, and the validation figure. Everything else is the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from sentence_experts.errors import InputError, RouteError
from sentence_experts.pairs.dataset import NEGATIVE, Pairs, describe_domain
from sentence_experts.tasks.dataset import Tasks
from sentence_experts.tasks.split import linked
from sentence_experts.tasks.task_file import Task
from sentence_experts.training.config import AUTO_BATCHES, TrainConfig
from sentence_experts.training.routes import TrainedRoute, routed_model
from sentence_experts.training.validation import (
    PairValidation,
    SearchValidation,
    Validation,
    distinct,
)

Numbers = NDArray[np.int64]
NONE = -1  # the number of a text that is not there
PAIR_COLUMNS = ("route", "source", "anchor", "positive", "negative")
NUMBER_COLUMNS = ("anchor_number", "positive_number", "negative_number")


class TrainingRows(NamedTuple):
    """The training pairs of an objective.

    Attributes:
        table: string columns `PAIR_COLUMNS` (negative is null if there is none), and for each text a number
            (`NUMBER_COLUMNS`); texts of equal or linked numbers are positives of each other.
        numbers: the number of different numbers, which start at 0.
        links: (2, links) numbers that are linked.
    """

    table: pa.Table
    numbers: int
    links: Numbers


class Objective(ABC):
    """One kind of training data."""

    @property
    @abstractmethod
    def routes(self) -> list[TrainedRoute]:
        """Its routes, with the defaults of their kind."""

    def own(self, routes: Sequence[TrainedRoute]) -> list[TrainedRoute]:
        """Those of `routes` that are its own; names are unique among the objectives of a run."""
        names = {route.name for route in self.routes}
        return [route for route in routes if route.name in names]

    @abstractmethod
    def prompts(
        self, route: TrainedRoute, model: SentenceTransformer, config: TrainConfig
    ) -> tuple[str, str]:
        """What stands in front of anchors, and of positives and negatives.

        Raises:
            RouteError: the model cannot tell the route's texts apart.
        """

    @abstractmethod
    def rows(self, routes: Sequence[TrainedRoute]) -> TrainingRows:
        """The training pairs of these routes.

        Raises:
            InputError: a route has none.
        """

    @abstractmethod
    def validation(self, routes: Sequence[TrainedRoute], config: TrainConfig) -> Validation:
        """How the validation split of these routes is measured.

        Raises:
            InputError: there is nothing to measure.
        """

    @property
    def unit(self) -> str | None:
        """The text of papers that its pairs are of, if it is known."""
        return None

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash that changes when the data does."""

    @abstractmethod
    def describe(self) -> str:
        """What the pairs are, for the model card."""


@dataclass(frozen=True)
class LinkedPairs(Objective):
    """Domains with pairs of linked papers (`compile_pairs`), or any pairs with links."""

    pairs: Pairs

    @property
    def routes(self) -> list[TrainedRoute]:
        """The domains."""
        return [
            TrainedRoute("domain", name, (name,), (name, name), AUTO_BATCHES, 0.05, symmetric=True)
            for name in self.pairs.domains
        ]

    def prompts(
        self, route: TrainedRoute, model: SentenceTransformer, config: TrainConfig
    ) -> tuple[str, str]:
        """The model's prompt of the domain; none for a model without prompts."""
        prompts = {name: prompt for name, prompt in model.prompts.items() if prompt}
        if prompts and route.name not in prompts:
            known = ", ".join(sorted(prompts))
            raise RouteError(f"the model has no route for {describe_domain(route.name)}; it has {known}")
        return (prompts.get(route.name, ""),) * 2

    def rows(self, routes: Sequence[TrainedRoute]) -> TrainingRows:
        """The linked pairs of the train split; a number stands for a paper, or for another negative text."""
        train = _of_routes(self.pairs.split("train"), routes)
        train = train.filter(pc.equal(train["label"], 1))
        if not train.num_rows:
            raise InputError("the train split holds no pairs")
        ids = [chunk.cast(pa.string()) for name in _ID_COLUMNS for chunk in train[name].chunks]
        papers = pc.unique(pa.chunked_array(ids, pa.string()))
        papers = papers.take(pc.sort_indices(papers))
        columns = [train["domain"], train["domain"], train["anchor"], train["positive"]]
        anchors, positives = (_numbers(train[name], papers) for name in _ID_COLUMNS)
        if NEGATIVE not in train.column_names:
            train = train.append_column(NEGATIVE, pa.nulls(train.num_rows, pa.string()))
        negatives = _numbers_of_negatives(train, anchors, positives, len(papers))
        columns += [train[NEGATIVE], anchors, positives, negatives]
        table = pa.table(columns, names=[*PAIR_COLUMNS, *NUMBER_COLUMNS])
        return TrainingRows(table.sort_by("route"), len(papers) + train.num_rows, self._links(papers))

    def _links(self, papers: pa.Array) -> Numbers:
        """The known links between these papers."""
        table = self.pairs.known_links()
        links = np.stack([_numbers(table[column], papers) for column in ("left_id", "right_id")])
        return links[:, (links != NONE).all(axis=0)]

    def validation(self, routes: Sequence[TrainedRoute], config: TrainConfig) -> Validation:
        """ROC-AUC or F1max on the labelled pairs of the validation split; nDCG@10 if all are linked."""
        table = _of_routes(self.pairs.split("validation"), routes)
        if not table.num_rows:
            if config.keep == "last":
                return SearchValidation({}, has_figure=False)
            raise InputError(
                f"{self.pairs.name}: no validation pairs to choose the best step by: give some, or "
                "`keep=last`"
            )
        if not pc.all(pc.equal(table["label"], 1)).as_py():
            return PairValidation(table, metric=config.pair_metric)
        parts = {route.name: _of_routes(table, [route]) for route in routes}
        grouped = {
            name: [part.append_column("group", pa.array(groups_of(part)))] for name, part in parts.items()
        }
        return SearchValidation.of(grouped, routes)

    @property
    def unit(self) -> str | None:
        """That which the pairs were compiled of."""
        return self.pairs.settings.get("unit")

    def fingerprint(self) -> str:
        """That of the pairs."""
        return self.pairs.fingerprint()

    def describe(self) -> str:
        """The settings that the pairs were compiled with."""
        settings = self.pairs.settings
        how = f"s linked by {settings['relation']}, split by {settings['split']}" if settings else ""
        what = f"pairs of {settings['unit']}" if settings else "linked pairs"
        return f"{what}{how} (pairs dataset {self.fingerprint()[:12]})"


@dataclass(frozen=True)
class TaskPairs(Objective):
    """Tasks with pairs of their own kind (`compile_tasks`); texts of one group are positives."""

    tasks: Tasks

    @cached_property
    def _tasks(self) -> dict[str, Task]:
        return {task.name: task for task in self.tasks.task_file.trainable()}

    @property
    def routes(self) -> list[TrainedRoute]:
        """The tasks that models are trained on, as the task file says or as suits their kind."""
        return [
            TrainedRoute(
                "task",
                task.name,
                tuple(task.datasets),
                (task.anchor_route, task.positive_route),
                task.batches or task.of.batches,
                task.temperature or task.of.temperature,
                task.weight,
                instructions=task.instructions,
            )
            for task in self._tasks.values()
        ]

    def prompts(
        self, route: TrainedRoute, model: SentenceTransformer, config: TrainConfig
    ) -> tuple[str, str]:
        """The task's instructions, or nothing without `instructions`."""
        routed = routed_model(model)
        if routed is not None and routed.config.routes:
            _check_instructions(route, {known.name: known.text for known in routed.routes}, config)
        if not config.instructions:
            return "", ""
        return route.instructions[route.sides[0]], route.instructions[route.sides[1]]

    def rows(self, routes: Sequence[TrainedRoute]) -> TrainingRows:
        """The pairs of the train splits; a number stands for a group of a dataset."""
        tables: list[pa.Table] = []
        count = 0
        for route in routes:
            parts = {source: self.tasks.pairs(route.name, source, "train") for source in route.sources}
            if not sum(part.num_rows for part in parts.values()):
                raise InputError(f"{self.tasks.name}: task {route.name} has no training pairs")
            for source, part in parts.items():
                texts = [part[name] for name in ("anchor", "positive", "negative")]
                names = [pa.array([name] * part.num_rows, pa.string()) for name in (route.name, source)]
                numbers, count = _numbers_of_groups(part, count)
                columns = [*names, *texts, *numbers]
                tables.append(pa.table(columns, names=[*PAIR_COLUMNS, *NUMBER_COLUMNS]))
        return TrainingRows(pa.concat_tables(tables), count, np.zeros((2, 0), dtype=np.int64))

    def validation(self, routes: Sequence[TrainedRoute], config: TrainConfig) -> Validation:
        """nDCG@10 of the anchors among the positives of the validation split, per dataset."""
        tables = {
            route.name: [self.tasks.pairs(route.name, source, "validation") for source in route.sources]
            for route in routes
        }
        return SearchValidation.of(tables, routes)

    def fingerprint(self) -> str:
        """That of the tasks."""
        return self.tasks.fingerprint()

    def describe(self) -> str:
        """Which tasks they are."""
        return f"pairs of tasks (tasks folder {self.fingerprint()[:12]})"


_ID_COLUMNS = ("anchor_id", "positive_id")


def groups_of(pairs: pa.Table) -> Numbers:
    """The group of each pair: pairs that share a text, directly or through other pairs, are of one group."""
    ends = zip(pairs["anchor"].to_pylist(), pairs["positive"].to_pylist(), strict=True)
    return np.array(linked(list(ends)), dtype=np.int64)


def _of_routes(table: pa.Table, routes: Sequence[TrainedRoute]) -> pa.Table:
    names = pa.array([route.name for route in routes], table["domain"].type)
    return table.filter(pc.is_in(table["domain"], value_set=names))


def _numbers_of_groups(table: pa.Table, first: int) -> tuple[list[Numbers], int]:
    """Numbers of anchors, positives and negatives, from `first`, and the number after the last."""
    rows = table.num_rows
    groups = distinct(table["group"])[1] + first
    return [groups, groups, _numbers_of_negatives(table, groups, groups, first + rows)], first + 2 * rows


def _numbers_of_negatives(table: pa.Table, anchors: Numbers, positives: Numbers, first: int) -> Numbers:
    """The number of each row's negative, given those of its anchor and positive.

    A negative whose text occurs elsewhere in the table has that text's number; any other has one of its own,
    from `first`.
    """
    negatives = first + np.arange(table.num_rows)
    for column, numbers in (("anchor", anchors), ("positive", positives)):
        places = pc.index_in(table["negative"], value_set=table[column].combine_chunks(), skip_nulls=True)
        places = places.fill_null(NONE).to_numpy()
        negatives = np.where(places == NONE, negatives, numbers[places])
    same = pc.equal(table["negative"], table["positive"]).fill_null(False)
    negatives = np.where(same.to_numpy(), positives, negatives)
    return np.where(pc.is_valid(table["negative"]).to_numpy(), negatives, NONE).astype(np.int64)


def _numbers(ids: pa.ChunkedArray, known: pa.Array) -> Numbers:
    places = pc.index_in(ids.cast(pa.string()), value_set=known).fill_null(NONE)
    numbers: Numbers = places.to_numpy().astype(np.int64)
    return numbers


def _check_instructions(route: TrainedRoute, known: Mapping[str, str], config: TrainConfig) -> None:
    if not config.instructions:
        raise RouteError(
            "`instructions=False`: this model finds its expert by the instruction; use a dense model"
        )
    for name, instruction in route.instructions.items():
        if known.get(name) != instruction:
            has = f"has {known[name]!r} for it" if name in known else f"has {', '.join(known)}"
            raise RouteError(
                f"task {route.name}: the model has no route {name!r} with instruction {instruction!r}, it "
                f"{has}; extend the base with these tasks, or change the task file"
            )
