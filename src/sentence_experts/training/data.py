"""The training set: one table of the pairs of all routes, and how each route is trained."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
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
from sentence_experts.training.config import STATIC_BATCHES, STATIC_TEMPERATURE, TrainConfig
from sentence_experts.training.known_positives import KnownPositives
from sentence_experts.training.objectives import (
    NONE,
    Numbers,
    Objective,
    SourceRows,
    codes,
    experts_of,
    routed_model,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainedRoute:
    """A domain or task that is trained, with everything decided.

    Attributes:
        objective: whose route it is.
        name: of the domain or task.
        prompts: what stands in front of anchors, and of positives and negatives; "" for nothing.
        experts: the experts of anchors, and of positives.
        batches: "homogeneous", "heterogeneous" or "mixed".
        temperature: of the loss.
        weight: relative chance to be sampled; None if routes are sampled in proportion to their pairs.
    """

    objective: Objective
    name: str
    prompts: tuple[str, str]
    experts: tuple[int, int]
    batches: str
    temperature: float
    weight: float | None

    @property
    def sources(self) -> tuple[str, ...]:
        """Its datasets."""
        return self.objective.sources(self.name)


def trained_routes(
    objectives: Sequence[Objective], config: TrainConfig, model: SentenceTransformer
) -> tuple[TrainedRoute, ...]:
    """The routes that a run learns from; with `only_expert`, those that lead to that expert.

    Raises:
        UsageError: the data lacks a route, or none leads to the expert, or weights are missing.
        InputError: the data has no route for training.
        RouteError: the model lacks a route, or has it with another instruction.
    """
    named = [(objective, name) for objective in objectives for name in objective.names]
    known = [name for _, name in named]
    for setting, names in (("routes", config.routes or []), ("temperatures", config.temperatures or {})):
        if unknown := [name for name in names if name not in known]:
            raise UsageError(
                f"`{setting}`: no domain or task {', '.join(unknown)} to train on; there are "
                f"{', '.join(known) or 'none, all are only measured'}"
            )
    if not named:
        raise UsageError("none of the tasks is for training, all are only measured")
    chosen = [(o, name) for o, name in named if not config.routes or name in config.routes]
    weighted = _weighted(chosen, config)
    routes = tuple(_decided(objective, name, config, model, weighted) for objective, name in chosen)
    return _of_expert(routes, config.only_expert, model) if config.only_expert else routes


def _decided(
    objective: Objective, name: str, config: TrainConfig, model: SentenceTransformer, weighted: bool
) -> TrainedRoute:
    static = config.curriculum == "static"
    defaults = objective.defaults(name)
    own_temperature = (config.temperatures or {}).get(name) or config.temperature
    prompts = objective.prompts(name, model, config)
    sides = objective.sides(name)
    experts = experts_of(model, sides)
    return TrainedRoute(
        objective,
        name,
        prompts,
        (experts[sides[0]], experts[sides[1]]),
        config.batches or (STATIC_BATCHES if static else defaults.batches),
        own_temperature or (STATIC_TEMPERATURE if static else defaults.temperature),
        defaults.weight if weighted else None,
    )


def _weighted(chosen: Sequence[tuple[Objective, str]], config: TrainConfig) -> bool:
    without = [name for objective, name in chosen if objective.defaults(name).weight is None]
    wanted = config.sampling == "weights" or (config.sampling is None and len(without) < len(chosen))
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
    found = tuple(route for route in routes if number in route.experts)
    if not found:
        raise UsageError(
            f"`only_expert={expert}`: none of the routes {', '.join(route.name for route in routes)} leads "
            "to it"
        )
    return found


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

    @classmethod
    def of(cls, routes: tuple[TrainedRoute, ...], config: TrainConfig) -> TrainingSet:
        """The train splits of these routes.

        Raises:
            InputError: a route has no training pairs.
        """
        parts: list[SourceRows] = []
        links: list[Numbers] = []
        count = 0
        objectives = list({id(route.objective): route.objective for route in routes}.values())
        for objective in objectives:
            mine = [route.name for route in routes if route.objective is objective]
            rows = objective.rows(mine)
            for part in rows.sources:
                shifted = np.where(part.numbers == NONE, NONE, part.numbers + count)
                parts.append(part._replace(numbers=shifted))
            links.append(rows.links + count)
            count += rows.count
        # A dataset of a trained task may be there for its test split alone.
        parts = [_sample(part, config, place) for place, part in enumerate(parts) if part.table.num_rows]
        numbers = np.concatenate([part.numbers for part in parts])
        places, pools = _places(parts, routes)
        left, right = (torch.from_numpy(ends) for ends in np.concatenate(links, axis=1))
        known = KnownPositives(left, right, max(count, 1))
        table = pa.concat_tables([_behind_prompts(part, routes) for part in parts])
        plain = pa.chunked_array(
            [
                chunk
                for name in ("anchor", "positive")
                for part in parts
                for chunk in _large(part.table[name]).chunks
            ]
        )
        negatives = (table["negative"],) if (numbers[:, 2] != NONE).any() else ()
        numbers = numbers[:, : 2 + len(negatives)]
        made = cls(
            routes, table["anchor"], table["positive"], negatives, numbers, places, pools,
            codes(plain).reshape(2, -1).T, known,
        )  # fmt: skip
        return made if config.loss == "in_batch_negatives" else made.without_negatives()

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def symmetric(self) -> NDArray[np.bool_]:
        """(rows,) whether anchor and positive may change places."""
        of_routes = np.array([route.objective.symmetric for route in self.routes])
        return of_routes[self.places[:, 0]]

    def without_negatives(self) -> TrainingSet:
        """The pairs alone."""
        return replace(self, negatives=(), numbers=self.numbers[:, :2])

    def level_negatives(self) -> TrainingSet:
        """Every pair of a pool with the same number of negatives: the fewest that one of them has."""
        has = self.numbers[:, 2:] != NONE
        counts = has.sum(axis=1)
        pools = self.places[:, 2]
        fewest = np.array(
            [counts[pools == pool].min(initial=has.shape[1]) for pool in range(len(self.pools))]
        )
        for pool, (name, _) in enumerate(self.pools):
            lacking = int((counts[pools == pool] == 0).sum())
            if fewest[pool] == 0 and (counts[pools == pool] > 0).any():
                sources = self._lacking(pool, counts)
                logger.info(f"{name}: mined negatives are not used, {lacking:,} pairs have none: {sources}")
        keep = np.arange(has.shape[1]) < fewest[pools][:, None]
        numbers = self.numbers.copy()
        numbers[:, 2:] = np.where(keep, numbers[:, 2:], NONE)
        negatives = tuple(
            pc.if_else(pa.array(keep[:, place]), column, pa.scalar(None, column.type))
            for place, column in enumerate(self.negatives)
        )
        return replace(self, negatives=negatives, numbers=numbers)

    def _lacking(self, pool: int, counts: Numbers) -> str:
        names = [source for route in self.routes for source in route.sources]
        rows = (self.places[:, 2] == pool) & (counts == 0)
        lacking = np.bincount(self.places[rows, 1], minlength=len(names))
        return ", ".join(f"{name} ({count:,})" for name, count in zip(names, lacking, strict=True) if count)

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


def _sample(part: SourceRows, config: TrainConfig, place: int) -> SourceRows:
    """A random share of the pairs, at least one (Hallee 2024, 3.3, searched for settings on a tenth)."""
    if config.fraction == 1:
        return part
    rows = len(part.numbers)
    count = max(1, round(config.fraction * rows))
    chosen = np.sort(np.random.default_rng([config.seed, place]).permutation(rows)[:count])
    return part._replace(table=part.table.take(chosen), numbers=part.numbers[chosen])


def _places(
    parts: Sequence[SourceRows], routes: Sequence[TrainedRoute]
) -> tuple[Numbers, tuple[tuple[str, tuple[int, ...]], ...]]:
    """The route, source and pool of each row; the pools."""
    numbers = {route.name: number for number, route in enumerate(routes)}
    sources = {(r.name, s): n for n, (r, s) in enumerate((r, s) for r in routes for s in r.sources)}
    pools: dict[str, int] = {}
    served: dict[str, set[int]] = {}
    rows: list[Numbers] = []
    for part in parts:
        route = routes[numbers[part.route]]
        kind = f"{route.objective.kind} {route.name}"
        several = len(route.sources) > 1
        name = {
            "homogeneous": f"{kind}, dataset {part.source}" if several else kind,
            "heterogeneous": kind,
            "mixed": "all mixed routes together",
        }[route.batches]
        pools.setdefault(name, len(pools))
        served.setdefault(name, set()).add(numbers[part.route])
        place = [numbers[part.route], sources[part.route, part.source], pools[name]]
        rows.append(np.tile(np.array(place, dtype=np.int64), (len(part.numbers), 1)))
    return np.concatenate(rows), tuple((name, tuple(sorted(served[name]))) for name in pools)


def _behind_prompts(part: SourceRows, routes: Sequence[TrainedRoute]) -> pa.Table:
    """The texts behind the prompts of their route."""
    first, second = next(route.prompts for route in routes if route.name == part.route)
    prompts = {"anchor": first, "positive": second, "negative": second}
    return pa.table({name: _behind(prompt, part.table[name]) for name, prompt in prompts.items()})


def _behind(prompt: str, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Each text behind the prompt; null stays null."""
    lead, between = (pa.scalar(text, pa.large_string()) for text in (prompt, ""))
    joined: pa.ChunkedArray = pc.binary_join_element_wise(lead, _large(texts), between)
    return joined


def _large(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return texts.cast(pa.large_string())


class PairCollator(SentenceTransformerDataCollator):
    """Collates a batch of pairs, with the negatives that they have."""

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate rows of `TrainingSet.dataset`; columns without texts and their numbers are left out."""
        return super().__call__(list(_without_missing(features)))


def _without_missing(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        kept = {name: value for name, value in row.items() if value is not None}
        texts = len(kept) - 1
        yield {**kept, "label": row["label"][: 2 + texts]}
