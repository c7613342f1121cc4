"""Training data: linked pairs of domains and pairs of tasks, as tables with a column `route`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.pair_tables import LINKS_SCHEMA, NEGATIVE, leave_out_negatives
from sentence_experts.pairs.splits import fold_texts
from sentence_experts.pairs.table_folder import parquet_hash
from sentence_experts.storage import sha256_text
from sentence_experts.tasks.dataset import Tasks, open_dataset
from sentence_experts.tasks.split import number_linked
from sentence_experts.training.config import AUTO_BATCHES

logger = logging.getLogger(__name__)

Numbers = NDArray[np.int64]
NONE = -1  # the number of a text that is not there
COLUMNS = ("anchor", "positive", "negative")
KEYS = ("anchor_key", "positive_key", "negative_key")
# Share of a table without a validation split that is held out.
HELD_OUT_SHARE = 0.1
MAX_HELD_OUT = 1000


@dataclass(frozen=True, eq=False)
class TrainedRoute:
    """A domain or task that is trained.

    Attributes:
        kind: "domain" or "task".
        name: name of the domain or task.
        sources: names of the datasets; one for a domain.
        sides: the model's routes for the anchors and for the positives, such as query and document.
        batches: "homogeneous", "heterogeneous" or "mixed"; "auto" until it is known whether a domain fills a
            homogeneous batch.
        temperature: temperature of the loss.
        weight: relative chance to be sampled; None: in proportion to its pairs.
        symmetric: whether anchor and positive may change places.
        instructions: route -> prompt of a task, which a model without routes gets when trained on it.
        prompts: prompts of anchors, and of positives and negatives; "" for none.
        experts: the experts of anchors, and of positives.
    """

    kind: str
    name: str
    sources: tuple[str, ...]
    sides: tuple[str, str]
    batches: str
    temperature: float
    weight: float | None = None
    symmetric: bool = False
    instructions: Mapping[str, str] = field(default_factory=dict)
    prompts: tuple[str, str] = ("", "")
    experts: tuple[int, int] = (0, 0)


def with_batches(
    routes: Sequence[TrainedRoute], chosen: Sequence[bool], batches: str
) -> tuple[TrainedRoute, ...]:
    """Return the routes, the chosen ones with other batches."""
    return tuple(
        replace(route, batches=batches) if take else route for route, take in zip(routes, chosen, strict=True)
    )


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

    def links(self, pairs: pa.Table) -> pa.Table:
        """Return the keys of papers that are linked, columns `left_id` and `right_id`."""
        links = self.pairs.known_links()
        return pa.table({name: self._key(links[name]) for name in LINKS_SCHEMA.names})

    @property
    def unit(self) -> str | None:
        """The text of papers that the pairs were compiled of, if it is known."""
        return self.pairs.settings.get("unit")

    def split(self, name: str, routes: Sequence[TrainedRoute]) -> pa.Table:
        """Return the pairs of domains, as `Pairs.split` does."""
        table = self.pairs.split(name)
        names = pa.array([route.name for route in routes], table["domain"].type)
        return table.filter(pc.is_in(table["domain"], value_set=names))

    def training_pairs(self, routes: Sequence[TrainedRoute]) -> pa.Table:
        """Return the linked pairs of the train split; a key is the id of a paper."""
        table = self.split("train", routes)
        table = table.filter(pc.equal(table["label"], 1)).sort_by("domain")
        names = table["domain"]
        negatives = table[NEGATIVE] if NEGATIVE in table.column_names else pa.nulls(len(names), pa.string())
        return _with_keys(
            [names, names, table["anchor"], table["positive"], negatives],
            *(self._key(table[name]) for name in ("anchor_id", "positive_id")),
        )

    def _key(self, ids: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return ids as keys: of several ids of one text the first, as a negative is known by its text."""
        ids, (others, firsts) = ids.cast(pa.string()), self._repeated
        return pc.coalesce(firsts.take(pc.index_in(ids, value_set=others)), ids)

    @cached_property
    def _repeated(self) -> tuple[pa.Array, pa.Array]:
        """Ids of texts that have another id before them, and that one, if the pairs have negatives."""
        table = self.pairs.split("train")
        if NEGATIVE not in table.column_names or table[NEGATIVE].null_count == table.num_rows:
            return pa.array([], pa.string()), pa.array([], pa.string())
        ends = [table.select([end, f"{end}_id"]).rename_columns(["text", "id"]) for end in COLUMNS[:2]]
        known = pa.concat_tables(ends)
        known = known.set_column(0, "text", fold_texts(known["text"]))
        known = known.set_column(1, "id", known["id"].cast(pa.string()))
        once = known.group_by("id", use_threads=False).aggregate([("text", "first")])
        first = once.group_by("text_first", use_threads=False).aggregate([("id", "first")])
        texts = first["text_first"].combine_chunks()
        firsts = first["id_first"].take(pc.index_in(once["text_first"], value_set=texts)).combine_chunks()
        others = once["id"].combine_chunks()
        is_other = pc.not_equal(others, firsts)
        return others.filter(is_other), firsts.filter(is_other)

    def validation_pairs(self, route: TrainedRoute) -> list[pa.Table]:
        """Return the validation pairs of a domain."""
        return [self.split("validation", [route])]

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
    """Tasks (`compile_tasks`); texts of a pair, or of one label, are positives."""

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

    def links(self, pairs: pa.Table) -> pa.Table:
        """Return the keys of anchors and positives of `training_pairs`, columns as in known links."""
        return pairs.select(KEYS[:2]).rename_columns(LINKS_SCHEMA.names)

    @property
    def labels(self) -> pa.Table:
        """Keys of labelled texts of the train splits, `id`, and their `label`; a text may have several.

        A label of one dataset is not that of another one.
        """
        tables = [pa.table({"id": pa.array([], pa.string()), "label": pa.array([], pa.string())})]
        for route in filter(lambda route: self._has_labels(route.name), self.routes):
            for source in route.sources:
                part = self.tasks.pairs(route.name, source, "train")
                label = _make_keys(part["group"], route.name, source)
                for keys in _make_text_keys(part, route.name):
                    tables.append(pa.table({"id": keys, "label": label}))
        return pa.concat_tables(tables)

    def _has_labels(self, task: str) -> bool:
        return self.tasks.task_file.tasks[task].of.labelled

    def training_pairs(self, routes: Sequence[TrainedRoute]) -> pa.Table:
        """Return the pairs of the train splits; a key is a text of a task.

        Raises:
            InputError: a task has none.
        """
        tables = []
        for route in routes:
            parts = {source: self.tasks.pairs(route.name, source, "train") for source in route.sources}
            if not sum(part.num_rows for part in parts.values()):
                raise InputError(f"{self.tasks.name}: task {route.name} has no training pairs")
            for source, part in parts.items():
                names = [pa.array([name] * part.num_rows, pa.string()) for name in (route.name, source)]
                tables.append(
                    _with_keys(
                        [*names, *(part[name] for name in COLUMNS)], *_make_text_keys(part, route.name)
                    )
                )
        return pa.concat_tables(tables)

    def validation_pairs(self, route: TrainedRoute) -> list[pa.Table]:
        """Return the validation pairs of a task, a table per dataset, with a column `group` of labels."""
        tables = [self.tasks.pairs(route.name, source, "validation") for source in route.sources]
        return tables if self._has_labels(route.name) else [each.drop_columns(["group"]) for each in tables]

    def fingerprint(self) -> str:
        """Return a hash that changes when the data does."""
        return self.tasks.fingerprint()

    def describe(self) -> str:
        """Return the name of the tasks folder, for the model card."""
        return f"pairs of tasks (tasks folder {self.fingerprint()[:12]})"


TrainingPart = LinkedPairs | TaskPairs


def find_own_routes(part: TrainingPart, routes: Sequence[TrainedRoute]) -> list[TrainedRoute]:
    """Return the routes among `routes` that are the part's; names are unique among the parts of a run."""
    names = {route.name for route in part.routes}
    return [route for route in routes if route.name in names]


def open_data(data: Any) -> list[TrainingPart]:
    """Open training data of any form.

    Args:
        data: tasks or their folder, pairs of any form (`Pairs.of`), or a list of several of them. If a table
            of pairs has no validation split, a tenth of its pairs is held out, in groups that share no texts
            with others.

    Raises:
        InputError: there is no such folder, or a table lacks a column.
        UsageError: no data, or two parts with routes of the same name.
    """
    rows = isinstance(data, list | tuple) and data and all(isinstance(row, Mapping) for row in data)
    several = data if isinstance(data, list | tuple) and not rows else [] if data is None else [data]
    parts = [_open_part(part) for part in several]
    if not parts:
        raise UsageError("no training data: give pairs, tasks or both")
    names = [route.name for part in parts for route in part.routes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"{', '.join(twice)}: a route of two parts of the training data; rename one")
    return parts


def _open_part(data: Any) -> TrainingPart:
    if isinstance(data, TrainingPart):
        return data
    dataset = open_dataset(data)
    if isinstance(dataset, Tasks):
        return TaskPairs(dataset)
    train = dataset.split("train")
    if dataset.path is None and dataset is not data:
        if not train.num_rows:
            raise InputError("the pairs have no train split")
        dataset = dataset if dataset.split("validation").num_rows else _hold_out(train)
    if unlinked := pc.sum(pc.equal(dataset.split("train")["label"], 0)).as_py():
        logger.warning(
            f"{unlinked:,} training pairs of label 0 are not read: negatives are the other texts of a batch, "
            "and a column `negative`"
        )
    return LinkedPairs(dataset)


def _hold_out(pairs: pa.Table) -> Pairs:
    """Make a train and a validation split of whole groups; those that are too large are for training.

    If all are, the smallest is held out, but no more than a third of the pairs.
    """
    groups = _groups_of(pairs)
    distinct, sizes = np.unique(groups, return_counts=True)
    room = min(MAX_HELD_OUT, max(1, round(HELD_OUT_SHARE * len(groups))))
    chosen = []
    for place in np.random.default_rng(0).permutation(len(distinct)).tolist():
        if sizes[place] <= room:
            chosen.append(distinct[place])
            room -= sizes[place]
    if not chosen and sizes.min() <= len(groups) // 3:
        chosen = [distinct[sizes.argmin()]]
    if len(chosen) in (0, len(distinct)):
        logger.warning(
            "no pairs are held out for validation: there are too few, or texts that they share join too many"
        )
        return Pairs.from_tables(train=pairs)
    held_out = pa.array(np.isin(groups, chosen))
    train, validation = pairs.filter(pc.invert(held_out)), pairs.filter(held_out)
    if NEGATIVE in train.column_names:
        read = pa.concat_tables([validation.select([name]).rename_columns(["text"]) for name in COLUMNS[:2]])
        seen = pc.is_in(
            fold_texts(train[NEGATIVE]), value_set=fold_texts(read["text"]).unique(), skip_nulls=True
        )
        train = leave_out_negatives(train, seen.to_numpy())
    return Pairs.from_tables(train=train, validation=validation)


def _groups_of(pairs: pa.Table) -> Numbers:
    """Number the groups of pairs that share an id or a text, directly or through other pairs."""
    keys = [("id", pairs["anchor_id"]), ("id", pairs["positive_id"])]
    keys += [("text", fold_texts(pairs[name])) for name in COLUMNS[:2]]
    named = ([(kind, value) for value in column.to_pylist()] for kind, column in keys)
    return np.array(number_linked(list(zip(*named, strict=True))), dtype=np.int64)


def _make_keys(values: pa.ChunkedArray, *within: str) -> pa.ChunkedArray:
    """Return values as keys, which others than those `within` the same task or dataset do not have."""
    return pc.binary_join_element_wise(*map(pa.scalar, within), values, "\0")


def _make_text_keys(pairs: pa.Table, task: str) -> list[pa.ChunkedArray]:
    """Return the keys of anchors and positives, equal for texts that differ in case and punctuation alone."""
    keys = []
    for name in COLUMNS[:2]:  # as hashes, since texts take much memory
        short = pa.array(
            [sha256_text(each)[:16] for each in fold_texts(pairs[name]).to_pylist()], pa.string()
        )
        keys.append(_make_keys(pa.chunked_array([short]), task))
    return keys


def _with_keys(columns: Sequence[Any], anchors: pa.ChunkedArray, positives: pa.ChunkedArray) -> pa.Table:
    """Return a table of pairs: route, source, `COLUMNS`, and `KEYS`, of which equal or linked ones are alike.

    A negative that is a text elsewhere in the table, but for case and punctuation, has that text's key, and
    otherwise one for itself.
    """
    table = pa.table(list(columns), names=["route", "source", *COLUMNS])
    negatives = pa.nulls(table.num_rows, pa.string())
    if table["negative"].null_count < table.num_rows:
        positive, anchor, negative = (fold_texts(table[name]) for name in ("positive", "anchor", "negative"))
        texts = pa.chunked_array([*positive.chunks, *anchor.chunks], pa.string())
        keys = pa.chunked_array([*positives.chunks, *anchors.chunks], pa.string())
        places = find_places(negative, texts)
        own = pc.equal(negative, positive).fill_null(False).to_numpy()
        places[own] = np.flatnonzero(own)
        rows = pa.array(np.arange(table.num_rows)).cast(pa.string())
        alone = pc.binary_join_element_wise(table["route"], table["source"], rows, "\0")
        negatives = pc.coalesce(keys.take(pa.array(places, mask=places == NONE)), alone)
        negatives = pc.if_else(pc.is_valid(table["negative"]), negatives, None)
    for name, column in zip(KEYS, (anchors, positives, negatives), strict=True):
        table = table.append_column(name, column)
    return table


def find_places(values: pa.ChunkedArray, known: pa.ChunkedArray | pa.Array) -> Numbers:
    """Return the place of each value in `known`, the first one; `NONE` for a missing one."""
    known = known.cast(pa.large_string())  # of more than 2 GiB too
    known = known.combine_chunks() if isinstance(known, pa.ChunkedArray) else known
    places = pc.index_in(values.cast(known.type), value_set=known, skip_nulls=True).fill_null(NONE)
    numbers: Numbers = places.to_numpy().astype(np.int64)
    return numbers


def find_distinct(column: pa.ChunkedArray) -> tuple[list[str], Numbers]:
    """Return the distinct values, in the order they come, and the number of each row's value."""
    encoded = column.cast(pa.large_string()).combine_chunks().dictionary_encode()  # of more than 2 GiB too
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
