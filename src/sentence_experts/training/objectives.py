"""The two kinds of training data: linked pairs of domains, and pairs of tasks.

An objective gives the rest of the training what it needs to know of its data: the routes and their defaults,
which texts are positives of each other, and the validation figure. Everything else is the same for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.pairs.dataset import NEGATIVE, Pairs, describe_domain
from sentence_experts.pairs.table_folder import parquet_hash
from sentence_experts.storage import sha256_text
from sentence_experts.tasks.dataset import Tasks, open_dataset
from sentence_experts.tasks.split import linked
from sentence_experts.training.config import AUTO_BATCHES, TrainConfig
from sentence_experts.training.routes import TrainedRoute, routed_model
from sentence_experts.training.validation import PairValidation, SearchValidation, distinct

Numbers = NDArray[np.int64]
NONE = -1  # the number of a text that is not there
PAIR_COLUMNS = ("route", "source", "anchor", "positive", "negative")
NUMBER_COLUMNS = ("anchor_number", "positive_number", "negative_number")
ID_COLUMNS = ("anchor_id", "positive_id")
# Of a table without a validation split, so much is held out.
HELD_OUT_SHARE = 0.1
MAX_HELD_OUT = 1000


class TrainingRows(NamedTuple):
    """The training pairs of an objective.

    Attributes:
        table: string columns `PAIR_COLUMNS` (negative is null if there is none), and for each text a number
            (`NUMBER_COLUMNS`); texts of equal or linked numbers are positives of each other.
        end: the number after the last.
        links: (2, links) numbers that are linked.
        labels: (2, entries) numbers, and a label that each has; those that share one are linked.
    """

    table: pa.Table
    end: int
    links: Numbers
    labels: Numbers = np.zeros((2, 0), dtype=np.int64)


@dataclass(frozen=True)
class LinkedPairs:
    """Domains with pairs of linked papers (`compile_pairs`), or any pairs with links.

    Attributes:
        pairs: the pairs.
        labels: columns `id` (of a text) and `label`: texts that share a label are linked too.
    """

    pairs: Pairs
    labels: pa.Table | None = None

    @property
    def routes(self) -> list[TrainedRoute]:
        """The domains."""
        return [
            TrainedRoute("domain", name, (name,), (name, name), AUTO_BATCHES, 0.05, symmetric=True)
            for name in self.pairs.domains
        ]

    @property
    def unit(self) -> str | None:
        """The text of papers that the pairs were compiled of, if it is known."""
        return self.pairs.settings.get("unit")

    def prompts(
        self, route: TrainedRoute, model: SentenceTransformer, config: TrainConfig
    ) -> tuple[str, str]:
        """Return the model's prompt of the domain, for both sides; "" for a model without prompts.

        Raises:
            RouteError: the model has prompts, but none for the domain.
        """
        prompts = {name: prompt for name, prompt in model.prompts.items() if prompt}
        if prompts and route.name not in prompts:
            known = ", ".join(sorted(prompts))
            raise RouteError(f"the model has no route for {describe_domain(route.name)}; it has {known}")
        return (prompts.get(route.name, ""),) * 2

    def rows(self, routes: Sequence[TrainedRoute], first: int = 0) -> TrainingRows:
        """Return the linked pairs of the train split; numbers, from `first`, stand for papers and negatives.

        Raises:
            InputError: there are none.
        """
        train = _of_routes(self.pairs.split("train"), routes)
        train = train.filter(pc.equal(train["label"], 1))
        if not train.num_rows:
            raise InputError("the train split holds no pairs")
        ids = [chunk.cast(pa.string()) for name in ID_COLUMNS for chunk in train[name].chunks]
        papers = pc.unique(pa.chunked_array(ids, pa.string()))
        papers = papers.take(pc.sort_indices(papers))
        anchors, positives = (_places(train[name], papers) + first for name in ID_COLUMNS)
        if NEGATIVE not in train.column_names:
            train = train.append_column(NEGATIVE, pa.nulls(train.num_rows, pa.string()))
        negatives = _numbers_of_negatives(train, anchors, positives, first + len(papers))
        texts = [train[name] for name in ("domain", "domain", "anchor", "positive", NEGATIVE)]
        columns = [*texts, anchors, positives, negatives]
        table = pa.table(columns, names=[*PAIR_COLUMNS, *NUMBER_COLUMNS])
        known = self.pairs.known_links()
        links = np.stack([_places(known[column], papers) for column in ("left_id", "right_id")])
        links = links[:, (links != NONE).all(axis=0)] + first
        end = first + len(papers) + train.num_rows
        return TrainingRows(table.sort_by("route"), end, links, self._labels(papers, first))

    def _labels(self, papers: pa.Array, first: int) -> Numbers:
        if self.labels is None:
            return np.zeros((2, 0), dtype=np.int64)
        numbers = _places(self.labels["id"], papers)
        labels = self.labels["label"].combine_chunks().dictionary_encode().indices.to_numpy()
        return np.stack([numbers + first, labels])[:, numbers != NONE]

    def validation(
        self, routes: Sequence[TrainedRoute], config: TrainConfig
    ) -> PairValidation | SearchValidation | None:
        """Return ROC-AUC or F1max on the labelled pairs of the validation split; nDCG@10 if all are linked.

        Raises:
            InputError: there are no validation pairs, and the best step is to be kept.
        """
        table = _of_routes(self.pairs.split("validation"), routes)
        if not table.num_rows:
            if config.keep == "last":
                return None
            raise InputError(
                f"{self.pairs.name}: no validation pairs to choose the best step by: give some, or "
                "`keep=last`"
            )
        if not pc.all(pc.equal(table["label"], 1)).as_py():
            return PairValidation(table, metric=config.pair_metric)
        grouped = {}
        for route in routes:
            own = _of_routes(table, [route])
            grouped[route.name] = [own.append_column("group", pa.array(_groups(own)))]
        return SearchValidation.of(grouped, routes)

    def fingerprint(self) -> str:
        """Return a hash that changes when the data does."""
        own = self.pairs.fingerprint()
        return own if self.labels is None else sha256_text(own, parquet_hash(self.labels))

    def describe(self) -> str:
        """Return the settings that the pairs were compiled with, for the model card."""
        settings = self.pairs.settings
        how = f"s linked by {settings['relation']}, split by {settings['split']}" if settings else ""
        what = f"pairs of {settings['unit']}" if settings else "linked pairs"
        return f"{what}{how} (pairs dataset {self.fingerprint()[:12]})"


@dataclass(frozen=True)
class TaskPairs:
    """Tasks with pairs of their own kind (`compile_tasks`); texts of one group are positives."""

    tasks: Tasks
    unit = None

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
            for task in self.tasks.task_file.trainable()
        ]

    def prompts(
        self, route: TrainedRoute, model: SentenceTransformer, config: TrainConfig
    ) -> tuple[str, str]:
        """Return the task's instructions, or nothing without `instructions`.

        Raises:
            RouteError: the model has routes, but not with these instructions.
        """
        routed = routed_model(model)
        if routed is not None and routed.config.routes:
            _check_instructions(route, {known.name: known.text for known in routed.routes}, config)
        if not config.instructions:
            return "", ""
        return route.instructions[route.sides[0]], route.instructions[route.sides[1]]

    def rows(self, routes: Sequence[TrainedRoute], first: int = 0) -> TrainingRows:
        """Return the pairs of the train splits; numbers, from `first`, stand for the groups of a dataset.

        Raises:
            InputError: a task has none.
        """
        tables: list[pa.Table] = []
        for route in routes:
            parts = {source: self.tasks.pairs(route.name, source, "train") for source in route.sources}
            if not sum(part.num_rows for part in parts.values()):
                raise InputError(f"{self.tasks.name}: task {route.name} has no training pairs")
            for source, part in parts.items():
                rows = part.num_rows
                names = [pa.array([name] * rows, pa.string()) for name in (route.name, source)]
                texts = [part[name] for name in ("anchor", "positive", "negative")]
                groups = distinct(part["group"])[1] + first
                negatives = _numbers_of_negatives(part, groups, groups, first + rows)
                columns = [*names, *texts, groups, groups, negatives]
                tables.append(pa.table(columns, names=[*PAIR_COLUMNS, *NUMBER_COLUMNS]))
                first += 2 * rows
        return TrainingRows(pa.concat_tables(tables), first, np.zeros((2, 0), dtype=np.int64))

    def validation(self, routes: Sequence[TrainedRoute], config: TrainConfig) -> SearchValidation:
        """Return nDCG@10 of the anchors among the positives of the validation split, per dataset.

        Raises:
            InputError: a task has nothing to find.
        """
        tables = {
            route.name: [self.tasks.pairs(route.name, source, "validation") for source in route.sources]
            for route in routes
        }
        return SearchValidation.of(tables, routes)

    def fingerprint(self) -> str:
        """Return a hash that changes when the data does."""
        return self.tasks.fingerprint()

    def describe(self) -> str:
        """Return the name of the tasks folder, for the model card."""
        return f"pairs of tasks (tasks folder {self.fingerprint()[:12]})"


Objective = LinkedPairs | TaskPairs


def own_routes(objective: Objective, routes: Sequence[TrainedRoute]) -> list[TrainedRoute]:
    """Return those of `routes` that are the objective's; names are unique among the objectives of a run."""
    names = {route.name for route in objective.routes}
    return [route for route in routes if route.name in names]


def open_data(data: Any) -> list[Objective]:
    """Open training data of any form.

    Args:
        data: tasks or their folder, pairs of any form (`Pairs.of`), or a list of several of them. If a table
            of pairs has no validation split, a tenth of its groups of pairs is held out.

    Raises:
        InputError: there is no such folder, or a table lacks a column.
        UsageError: no data, or two parts with routes of the same name.
    """
    rows = isinstance(data, list | tuple) and data and all(isinstance(row, Mapping) for row in data)
    parts = data if isinstance(data, list | tuple) and not rows else [] if data is None else [data]
    objectives = [_open_part(part) for part in parts]
    if not objectives:
        raise UsageError("no training data: give pairs, tasks or both")
    names = [route.name for objective in objectives for route in objective.routes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"{', '.join(twice)}: a route of two parts of the training data; rename one")
    return objectives


def _open_part(data: Any) -> Objective:
    if isinstance(data, Objective):
        return data
    dataset = open_dataset(data)
    if isinstance(dataset, Tasks):
        return TaskPairs(dataset)
    if dataset.path is not None or dataset is data:
        return LinkedPairs(dataset)
    train = dataset.split("train")
    if not train.num_rows:
        raise InputError("the pairs have no train split")
    return LinkedPairs(dataset if dataset.split("validation").num_rows else _hold_out(train))


def _hold_out(pairs: pa.Table) -> Pairs:
    """Make a train and a validation split of whole groups."""
    groups = _groups(pairs)
    distinct_groups = np.unique(groups)
    count = min(MAX_HELD_OUT, max(1, round(HELD_OUT_SHARE * len(distinct_groups))))
    chosen = np.random.default_rng(0).permutation(distinct_groups)[:count]
    held_out = pa.array(np.isin(groups, chosen))
    return Pairs.from_tables(train=pairs.filter(pc.invert(held_out)), validation=pairs.filter(held_out))


def _groups(pairs: pa.Table) -> Numbers:
    """Number the groups of pairs that share a text, directly or through other pairs."""
    ends = zip(pairs["anchor"].to_pylist(), pairs["positive"].to_pylist(), strict=True)
    return np.array(linked(list(ends)), dtype=np.int64)


def _of_routes(table: pa.Table, routes: Sequence[TrainedRoute]) -> pa.Table:
    names = pa.array([route.name for route in routes], table["domain"].type)
    return table.filter(pc.is_in(table["domain"], value_set=names))


def _numbers_of_negatives(table: pa.Table, anchors: Numbers, positives: Numbers, first: int) -> Numbers:
    """Number each row's negative: as the same text elsewhere in the table, or anew from `first`."""
    negatives = first + np.arange(table.num_rows)
    for column, numbers in (("anchor", anchors), ("positive", positives)):
        places = _places(table["negative"], table[column].combine_chunks())
        negatives = np.where(places == NONE, negatives, numbers[places])
    same = pc.equal(table["negative"], table["positive"]).fill_null(False)
    negatives = np.where(same.to_numpy(), positives, negatives)
    return np.where(pc.is_valid(table["negative"]).to_numpy(), negatives, NONE).astype(np.int64)


def _places(values: pa.ChunkedArray, known: pa.Array) -> Numbers:
    """Return the place of each value in `known`; `NONE` for a missing one."""
    places = pc.index_in(values.cast(known.type), value_set=known, skip_nulls=True).fill_null(NONE)
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
