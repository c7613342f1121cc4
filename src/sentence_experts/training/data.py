"""The training set: one table of the pairs of all routes, and how each route is trained."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import Dataset
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator

from sentence_experts.errors import UsageError
from sentence_experts.models.routes.kinds import router_kind
from sentence_experts.training import processes
from sentence_experts.training.config import AUTO_BATCHES, STATIC_BATCHES, STATIC_TEMPERATURE, TrainConfig
from sentence_experts.training.known_positives import KnownPositives
from sentence_experts.training.loss_kinds import LOSS_KINDS
from sentence_experts.training.objectives import NONE, NUMBER_COLUMNS, Numbers, Objective
from sentence_experts.training.routes import TrainedRoute, expert_indices, routed_model
from sentence_experts.training.validation import distinct

logger = logging.getLogger(__name__)


def trained_routes(
    objectives: Sequence[Objective], config: TrainConfig, model: SentenceTransformer
) -> tuple[TrainedRoute, ...]:
    """The routes that a run learns from; with `only_expert`, those that lead to that expert.

    Raises:
        UsageError: the data lacks a route, or none leads to the expert, or weights are missing.
        InputError: the data has no route for training.
        RouteError: the model lacks a route, or has it with another instruction.
    """
    routes = [route for objective in objectives for route in objective.routes]
    known = [route.name for route in routes]
    for setting, names in (("routes", config.routes or []), ("temperatures", config.temperatures or {})):
        if unknown := [name for name in names if name not in known]:
            raise UsageError(
                f"`{setting}`: no domain or task {', '.join(unknown)} to train on; there are "
                f"{', '.join(known) or 'none, all are only measured'}"
            )
    if not routes:
        raise UsageError("none of the tasks is for training, all are only measured")
    routes = [route for route in routes if not config.routes or route.name in config.routes]
    weighted = _weighted(routes, config)
    decided = tuple(
        _decided(objective, route, config, model, weighted)
        for objective in objectives
        for route in objective.own(routes)
    )
    decided = _of_expert(decided, config.only_expert, model) if config.only_expert else decided
    return _mixed_where_shared(decided, model)


def _decided(
    objective: Objective,
    route: TrainedRoute,
    config: TrainConfig,
    model: SentenceTransformer,
    weighted: bool,
) -> TrainedRoute:
    static = config.curriculum == "static"
    temperature = (config.temperatures or {}).get(route.name) or config.temperature
    prompts = objective.prompts(route, model, config)
    experts = expert_indices(model, route.sides)
    return replace(
        route,
        batches=_batches(route, config),
        temperature=temperature or (STATIC_TEMPERATURE if static else route.temperature),
        weight=route.weight if weighted else None,
        prompts=prompts,
        experts=(experts[route.sides[0]], experts[route.sides[1]]),
    )


def _batches(route: TrainedRoute, config: TrainConfig) -> str:
    if config.batches != AUTO_BATCHES:
        return config.batches
    return STATIC_BATCHES if config.curriculum == "static" else route.batches


def _mixed_where_shared(
    routes: tuple[TrainedRoute, ...], model: SentenceTransformer
) -> tuple[TrainedRoute, ...]:
    """Batches of `auto` are mixed, unless fixed routes lead to different experts.

    Texts of other domains are easy negatives for an expert, which sees its own domain alone: they cost 0.015
    to 0.019. A model that all domains share gained 0.006 by them, and a learned router that sees one domain
    per step collapses (benchmarks/results/studies.md).
    """
    routed = routed_model(model)
    experts = {route.experts for route in routes if route.batches == AUTO_BATCHES}
    if len(experts) > 1 and routed is not None and not router_kind(routed.config).is_learned:
        return routes
    return _with_batches(routes, [route.batches == AUTO_BATCHES for route in routes], "mixed")


def _with_batches(
    routes: tuple[TrainedRoute, ...], chosen: Sequence[bool], batches: str
) -> tuple[TrainedRoute, ...]:
    """The routes, the chosen ones with other batches."""
    return tuple(
        replace(route, batches=batches) if take else route for route, take in zip(routes, chosen, strict=True)
    )


def _weighted(routes: Sequence[TrainedRoute], config: TrainConfig) -> bool:
    without = [route.name for route in routes if route.weight is None]
    wanted = config.sampling == "weights" or (config.sampling is None and len(without) < len(routes))
    if wanted and without:
        raise UsageError(
            f"`sampling=weights`: there is no weight for {', '.join(without)}; add one to the task file, or "
            "choose `sampling=proportional`"
        )
    return wanted


def _of_expert(
    routes: tuple[TrainedRoute, ...], expert: str, model: SentenceTransformer
) -> tuple[TrainedRoute, ...]:
    """Texts of other experts stay as they are, so a batch of them alone would teach nothing."""
    routed = routed_model(model)
    if routed is None or expert not in routed.config.experts:
        return routes  # `choose_trainable` says what is wrong
    number = list(routed.config.experts).index(expert)
    own = tuple(route for route in routes if number in route.experts)
    if not own:
        names = ", ".join(route.name for route in routes)
        raise UsageError(f"`only_expert={expert}`: none of the routes {names} leads to it")
    return own


@dataclass(frozen=True)
class TrainingSet:
    """All training pairs of a run in one table.

    Attributes:
        routes: a route's number is its place here; sources are numbered through all routes.
        anchors, positives: (rows,) texts behind their prompts.
        negatives: further columns of mined texts, null where a row has none.
        numbers: (rows, 2 + negatives) for each text a number (`KnownPositives`), `NONE` for a missing one.
        places: (rows, 3) the route, the source and the pool of each pair; a batch is drawn from one pool.
        pools: the name of each pool, and the routes that it serves.
        texts: (rows, 2) a number for the text of each anchor and positive, without its prompt.
        known: which numbers are positives of each other.
        fraction: of each source's pairs that are here.
    """

    routes: tuple[TrainedRoute, ...]
    anchors: pa.ChunkedArray
    positives: pa.ChunkedArray
    negatives: tuple[pa.ChunkedArray, ...]
    numbers: Numbers
    places: Numbers
    pools: tuple[tuple[str, tuple[int, ...]], ...]
    texts: Numbers
    known: KnownPositives
    fraction: float = 1.0

    @classmethod
    def of(
        cls, objectives: Sequence[Objective], routes: tuple[TrainedRoute, ...], config: TrainConfig
    ) -> TrainingSet:
        """The train splits of these routes.

        Raises:
            InputError: a route has no training pairs.
        """
        tables: list[pa.Table] = []
        links: list[Numbers] = []
        count = 0
        for objective in objectives:
            if own := objective.own(routes):
                rows = objective.rows(own)
                tables.append(_shifted(rows.table, count))
                links.append(rows.links + count)
                count += rows.numbers
        table = pa.concat_tables(tables)
        places, pools = _places(table, routes)
        table, places = _sample(table, places, config)
        texts = distinct(pa.chunked_array([*table["anchor"].chunks, *table["positive"].chunks]))[1]
        texts = texts.reshape(2, -1).T
        if any(route.batches == AUTO_BATCHES for route in routes):
            routes = _mixed_where_small(routes, places, texts, config.batch_size * processes.count())
            places, pools = _places(table, routes)
        left, right = (torch.from_numpy(ends) for ends in np.concatenate(links, axis=1))
        numbers = np.stack([table[name].to_numpy() for name in NUMBER_COLUMNS], axis=1)
        negatives = int(not LOSS_KINDS[config.loss].symmetric and (numbers[:, 2] != NONE).any())
        anchors = _behind([route.prompts[0] for route in routes], places, table["anchor"])
        positives, negative = (
            _behind([route.prompts[1] for route in routes], places, table[name])
            for name in ("positive", "negative")
        )
        return cls(
            routes, anchors, positives, (negative,) * negatives, numbers[:, : 2 + negatives], places, pools,
            texts, KnownPositives(left, right, max(count, 1)), config.fraction,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def symmetric(self) -> NDArray[np.bool_]:
        """(rows,) whether anchor and positive may change places."""
        of_routes = np.array([route.symmetric for route in self.routes])
        return of_routes[self.places[:, 0]]

    def level_negatives(self) -> TrainingSet:
        """Every pair of a pool with the same number of negatives: the fewest that one of them has."""
        has = self.numbers[:, 2:] != NONE
        counts = has.sum(axis=1)
        pools = self.places[:, 2]
        fewest = np.full(len(self.pools), has.shape[1])
        np.minimum.at(fewest, pools, counts)
        names = [source for route in self.routes for source in route.sources]
        for pool, (name, _) in enumerate(self.pools):
            lacking = (pools == pool) & (counts == 0)
            if lacking.any() and counts[pools == pool].any():
                lacking_in = Counter(names[source] for source in self.places[lacking, 1])
                sources = ", ".join(f"{source} ({rows:,})" for source, rows in lacking_in.items())
                logger.info(f"{name}: mined negatives are not used, some pairs have none: {sources}")
        keep = np.arange(has.shape[1]) < fewest[pools][:, None]
        numbers = self.numbers.copy()
        numbers[:, 2:] = np.where(keep, numbers[:, 2:], NONE)
        negatives = tuple(
            pc.if_else(pa.array(keep[:, place]), column, pa.scalar(None, column.type))
            for place, column in enumerate(self.negatives)
        )
        return replace(self, negatives=negatives, numbers=numbers)

    def dataset(self) -> Dataset:
        """Columns anchor, positive, negative_1, ..., and label: [route, source, number of each text].

        The pairs come twice: row i + len(self) is row i with anchor and positive swapped.
        """
        level = self.level_negatives()
        swapped = level.numbers.copy()
        swapped[:, :2] = swapped[:, 1::-1]
        halves = [
            _table(level.anchors, level.positives, level.negatives, level.places, level.numbers),
            _table(level.positives, level.anchors, level.negatives, level.places, swapped),
        ]
        return Dataset(pa.concat_tables(halves))


def _table(
    anchors: pa.ChunkedArray,
    positives: pa.ChunkedArray,
    negatives: Sequence[pa.ChunkedArray],
    places: Numbers,
    numbers: Numbers,
) -> pa.Table:
    columns: dict[str, Any] = {"anchor": anchors, "positive": positives}
    columns |= {f"negative_{place}": column for place, column in enumerate(negatives, 1)}
    labels = np.column_stack([places[:, :2], numbers])
    flat = pa.FixedSizeListArray.from_arrays(pa.array(labels.ravel()), labels.shape[1])
    return pa.table({**columns, "label": flat.cast(pa.list_(pa.int64()))})


def _shifted(table: pa.Table, start: int) -> pa.Table:
    """The table with its numbers counted from `start`."""
    for name in NUMBER_COLUMNS:
        numbers = table[name].to_numpy()
        shifted = pa.array(np.where(numbers == NONE, NONE, numbers + start))
        table = table.set_column(table.column_names.index(name), name, shifted)
    return table


def _sample(table: pa.Table, places: Numbers, config: TrainConfig) -> tuple[pa.Table, Numbers]:
    """A random part of each source's pairs, at least one (Hallee 2024, 3.3, searched on a tenth)."""
    if config.fraction == 1:
        return table, places
    chosen = []
    for source in np.unique(places[:, 1]):
        rows = np.flatnonzero(places[:, 1] == source)
        order = np.random.default_rng([config.seed, source]).permutation(rows)
        chosen.append(np.sort(order[: max(1, round(config.fraction * len(rows)))]))
    rows = np.concatenate(chosen)
    return table.take(rows), places[rows]


def _places(
    table: pa.Table, routes: Sequence[TrainedRoute]
) -> tuple[Numbers, tuple[tuple[str, tuple[int, ...]], ...]]:
    """The route, source and pool of each row; the pools."""
    numbers: dict[tuple[str, str], tuple[int, int, int]] = {}
    pools: dict[str, list[int]] = {}
    for number, route in enumerate(routes):
        for source in route.sources:
            of_source = f", dataset {source}" if len(route.sources) > 1 else ""
            name = {
                AUTO_BATCHES: f"{route.kind} {route.name}",
                "homogeneous": f"{route.kind} {route.name}{of_source}",
                "heterogeneous": f"{route.kind} {route.name}",
                "mixed": "all mixed routes together",
            }[route.batches]
            served = pools.setdefault(name, [])
            served += [] if number in served else [number]
            numbers[route.name, source] = (number, len(numbers), list(pools).index(name))
    keys = zip(table["route"].to_pylist(), table["source"].to_pylist(), strict=True)
    places = np.array([numbers[key] for key in keys], dtype=np.int64)
    # A dataset of a trained task may be there for its test split alone.
    used, places[:, 2] = np.unique(places[:, 2], return_inverse=True)
    names = list(pools)
    return places, tuple((names[pool], tuple(pools[names[pool]])) for pool in used)


def _mixed_where_small(
    routes: tuple[TrainedRoute, ...], places: Numbers, texts: Numbers, size: int
) -> tuple[TrainedRoute, ...]:
    """Batches of `auto` are homogeneous where a domain fills one of `size` pairs; others share mixed ones.

    If those do not fill one together, all domains are mixed. `places` and `texts` are as in `TrainingSet`.
    """
    is_auto = [route.batches == AUTO_BATCHES for route in routes]
    small = [auto and not _fills(texts[places[:, 0] == number], size) for number, auto in enumerate(is_auto)]
    if any(small):
        names = ", ".join(route.name for route, take in zip(routes, small, strict=True) if take)
        together = np.isin(places[:, 0], np.flatnonzero(small))
        enough = _fills(texts[together], size)
        where = "there, and of one domain elsewhere" if enough else "for all domains"
        logger.info(
            f"too few training pairs to fill a batch of {size}: {names}; batches are mixed {where} "
            "(`batch_size`, `batches`)"
        )
        routes = _with_batches(routes, small if enough else is_auto, "mixed")
    return _with_batches(routes, [route.batches == AUTO_BATCHES for route in routes], "homogeneous")


def _fills(texts: Numbers, size: int) -> bool:
    """Whether `size` of the pairs, (pairs, 2) text numbers, can be taken in order without a common text."""
    seen: set[int] = set()
    count = 0
    for pair in (row.tolist() for row in texts):
        if seen.isdisjoint(pair):
            seen.update(pair)
            count += 1
            if count == size:
                return True
    return False


def _behind(prompts: list[str], places: Numbers, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Each text behind the prompt of its route; null stays null."""
    own = pa.array(prompts, pa.large_string()).take(pa.array(places[:, 0]))
    texts = texts.cast(pa.large_string()).combine_chunks()
    return pa.chunked_array([pc.binary_join_element_wise(own, texts, pa.scalar("", pa.large_string()))])


class PairCollator(SentenceTransformerDataCollator):
    """Collates a batch of pairs, with the negatives that they have."""

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate rows of `TrainingSet.dataset`; columns without texts and their numbers are left out."""
        rows = [{name: value for name, value in row.items() if value is not None} for row in features]
        # A label is route, source, and a number per text.
        return super().__call__([{**row, "label": row["label"][: len(row) + 1]} for row in rows])
