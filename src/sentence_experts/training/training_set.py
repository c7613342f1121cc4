"""The training set of a run: one table of the pairs of all routes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import Dataset
from numpy.typing import NDArray
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator

from sentence_experts.errors import InputError
from sentence_experts.training import processes
from sentence_experts.training.config import AUTO_BATCHES, IN_BATCH_NEGATIVES, TrainConfig
from sentence_experts.training.data import (
    COLUMNS,
    KEYS,
    NONE,
    Numbers,
    TrainedRoute,
    TrainingPart,
    find_distinct,
    find_own_routes,
    find_places,
    with_batches,
)
from sentence_experts.training.losses import KnownPositives

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingSet:
    """All training pairs of a run.

    Attributes:
        routes: trained routes, numbered by their places; sources are numbered through all routes.
        columns: anchors, positives, and negatives if there are any, null where a row has none; they hold
            texts behind their prompts, (rows,).
        numbers: number of each text (`KnownPositives`), `NONE` for a missing one, (rows, columns).
        places: route, source and pool of each pair, (rows, 3); a batch is drawn from one pool.
        pools: name of each pool, and the routes that it serves.
        texts: number of the text of each anchor and positive, without its prompt, (rows, 2).
        known: numbers that are positives of each other.
    """

    routes: tuple[TrainedRoute, ...]
    columns: tuple[pa.ChunkedArray, ...]
    numbers: Numbers
    places: Numbers
    pools: tuple[tuple[str, tuple[int, ...]], ...]
    texts: Numbers
    known: KnownPositives

    @classmethod
    def of(
        cls, parts: Sequence[TrainingPart], routes: tuple[TrainedRoute, ...], config: TrainConfig
    ) -> TrainingSet:
        """Read the train splits of these routes.

        Raises:
            InputError: a task, or all domains, have no training pairs.
        """
        table, numbers, known = number_texts(
            [(part, own) for part in parts if (own := find_own_routes(part, routes))]
        )
        sources = [(number, source) for number, route in enumerate(routes) for source in route.sources]
        names = pa.array([f"{routes[number].name}\0{source}" for number, source in sources])
        source = find_places(pc.binary_join_element_wise(table["route"], table["source"], "\0"), names)
        if config.fraction < 1:
            rows = _sample(source, config)
            table, numbers, source = table.take(rows), numbers[rows], source[rows]
        route = np.array([number for number, _ in sources])[source]
        texts = find_distinct(pa.chunked_array([*table["anchor"].chunks, *table["positive"].chunks]))[1]
        texts = texts.reshape(2, -1).T
        if any(each.batches == AUTO_BATCHES for each in routes):
            routes = _mix_where_small(routes, route, texts, config.batch_size * processes.count())
        pools: dict[str, list[int]] = {}
        pool_of = {place: _join_pool(pools, routes, *sources[place]) for place in np.unique(source).tolist()}
        pool = np.array([pool_of[place] for place in source.tolist()], dtype=np.int64)
        has_negatives = bool((numbers[:, 2] != NONE).any())
        if has_negatives and config.loss != IN_BATCH_NEGATIVES:
            logger.warning(f"`loss={config.loss}` takes no negatives of the pairs: they are not used")
        count = 3 if has_negatives and config.loss == IN_BATCH_NEGATIVES else 2
        prompts = [[each.prompts[side] for each in routes] for side in (0, 1, 1)]
        columns = [_prepend(prompts[n], route, table[name]) for n, name in enumerate(COLUMNS[:count])]
        places = np.stack([route, source, pool], axis=1)
        served = tuple((name, tuple(numbers)) for name, numbers in pools.items())
        return cls(routes, tuple(columns), numbers[:, :count], places, served, texts, known)

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def symmetric(self) -> NDArray[np.bool_]:
        """Whether anchor and positive of each row may change places, (rows,)."""
        return np.array([route.symmetric for route in self.routes])[self.places[:, 0]]

    def dataset(self) -> Dataset:
        """Return columns anchor, positive, negative, and label: [route, source, number of each text].

        The pairs come twice: row i + len(self) is row i with anchor and positive swapped. A pair without a
        negative, in a pool where others have one, has its positive there, under the number `NONE`: the
        texts of a batch are columns, and the loss leaves it out.
        """
        columns, numbers = list(self.columns), self.numbers
        if len(columns) > 2:
            pool = self.places[:, 2]
            fill = pa.array(np.isin(pool, pool[numbers[:, 2] != NONE]))
            columns[2] = pc.coalesce(columns[2], pc.if_else(fill, columns[1], None))
        names = COLUMNS[: len(columns)]
        halves = []
        for first, second in ((0, 1), (1, 0)):
            order = [first, second, *range(2, len(columns))]
            labels = np.column_stack([self.places[:, :2], numbers[:, order]])
            flat = pa.FixedSizeListArray.from_arrays(pa.array(labels.ravel()), labels.shape[1])
            texts = {name: columns[place] for name, place in zip(names, order, strict=True)}
            halves.append(pa.table({**texts, "label": flat.cast(pa.list_(pa.int64()))}))
        return Dataset(pa.concat_tables(halves))


def number_texts(
    parts: Sequence[tuple[TrainingPart, list[TrainedRoute]]],
) -> tuple[pa.Table, Numbers, KnownPositives]:
    """Return all pairs, a number for each text of a row, (rows, 3), and the numbers that are linked."""
    tables, numbers, links, labels = [], [], [], [np.zeros((2, 0), dtype=np.int64)]
    count, label_count = 0, 0
    for part, routes in parts:
        table = part.training_pairs(routes)
        keys = pa.chunked_array([chunk for name in KEYS for chunk in table[name].chunks], pa.string())
        known = keys.unique().drop_null().sort()
        places = np.stack([find_places(table[name], known) for name in KEYS], axis=1)
        numbers.append(np.where(places == NONE, NONE, places + count))
        linked = part.links(table)
        ends = np.stack([find_places(linked[name], known) for name in ("left_id", "right_id")])
        links.append(ends[:, (ends != NONE).all(axis=0)] + count)
        if (own := part.labels) is not None:
            ids, names = find_places(own["id"], known), find_distinct(own["label"])[1]
            labels.append(np.stack([ids + count, names + label_count])[:, ids != NONE])
            label_count += int(names.max(initial=-1)) + 1
        count += len(known)
        tables.append(table)
    together = pa.concat_tables(tables)
    if not together.num_rows:
        raise InputError("the train split holds no pairs")
    left, right = torch.from_numpy(np.concatenate(links, axis=1))
    known_positives = KnownPositives(left, right, count, torch.from_numpy(np.concatenate(labels, axis=1)))
    return together, np.concatenate(numbers), known_positives


def _sample(source: Numbers, config: TrainConfig) -> Numbers:
    """Draw a part of each source's rows, at least one (Hallee 2024, 3.3, searched on a tenth)."""
    chosen = []
    for number in np.unique(source):
        rows = np.flatnonzero(source == number)
        order = np.random.default_rng([config.seed, number]).permutation(rows)
        chosen.append(np.sort(order[: max(1, round(config.fraction * len(rows)))]))
    return np.concatenate(chosen)


def _join_pool(pools: dict[str, list[int]], routes: Sequence[TrainedRoute], number: int, source: str) -> int:
    """Add a source of a route to the pool of the route's batches, and return the pool's number."""
    route = routes[number]
    name = "all mixed routes together" if route.batches == "mixed" else f"{route.kind} {route.name}"
    if route.batches == "homogeneous" and len(route.sources) > 1:
        name += f", dataset {source}"
    served = pools.setdefault(name, [])
    served += [] if number in served else [number]
    return list(pools).index(name)


def _mix_where_small(
    routes: tuple[TrainedRoute, ...], route: Numbers, texts: Numbers, size: int
) -> tuple[TrainedRoute, ...]:
    """Make batches of `auto` homogeneous where a domain fills one of `size` pairs, and mixed elsewhere.

    If the small domains do not fill one together, all are mixed.
    """
    is_auto = [each.batches == AUTO_BATCHES for each in routes]
    small = [auto and not _fills(texts[route == number], size) for number, auto in enumerate(is_auto)]
    if any(small):
        names = ", ".join(each.name for each, take in zip(routes, small, strict=True) if take)
        enough = _fills(texts[np.isin(route, np.flatnonzero(small))], size)
        where = "there, and of one domain elsewhere" if enough else "for all domains"
        logger.info(
            f"too few training pairs to fill a batch of {size}: {names}; batches are mixed {where} "
            "(`batch_size`, `batches`)"
        )
        routes = with_batches(routes, small if enough else is_auto, "mixed")
    return with_batches(routes, [each.batches == AUTO_BATCHES for each in routes], "homogeneous")


def _fills(texts: Numbers, size: int) -> bool:
    """Return whether `size` of the pairs, (pairs, 2) text numbers, can be taken without a common text."""
    seen: set[int] = set()
    count = 0
    for pair in (row.tolist() for row in texts):
        if seen.isdisjoint(pair):
            seen.update(pair)
            count += 1
            if count == size:
                return True
    return False


def _prepend(prompts: list[str], routes: Numbers, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Put each text behind the prompt of its route; null stays null."""
    own = pa.array(prompts, pa.large_string()).take(pa.array(routes))
    texts = texts.cast(pa.large_string()).combine_chunks()
    return pa.chunked_array([pc.binary_join_element_wise(own, texts, pa.scalar("", pa.large_string()))])


class PairCollator(SentenceTransformerDataCollator):
    """A collator of a batch of pairs, with the negatives that they have."""

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate rows of `TrainingSet.dataset`; columns without texts and their numbers are left out."""
        rows = [{name: value for name, value in row.items() if value is not None} for row in features]
        # A label is route, source, and a number per text.
        return super().__call__([{**row, "label": row["label"][: len(row) + 1]} for row in rows])
