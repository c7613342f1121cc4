"""The training set: one table of the pairs of all routes."""

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
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator

from sentence_experts.training import processes
from sentence_experts.training.config import AUTO_BATCHES, LOSS_KINDS, TrainConfig
from sentence_experts.training.losses import KnownPositives
from sentence_experts.training.objectives import NONE, NUMBER_COLUMNS, Numbers, Objective, own_routes
from sentence_experts.training.routes import TrainedRoute, with_batches
from sentence_experts.training.validation import distinct

logger = logging.getLogger(__name__)


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
    def of(
        cls, objectives: Sequence[Objective], routes: tuple[TrainedRoute, ...], config: TrainConfig
    ) -> TrainingSet:
        """Read the train splits of these routes.

        Raises:
            InputError: a route has no training pairs.
        """
        tables: list[pa.Table] = []
        links: list[Numbers] = []
        labels: list[Numbers] = []
        count, label_count = 0, 0
        for objective in objectives:
            if own := own_routes(objective, routes):
                rows = objective.rows(own, count)
                tables.append(rows.table)
                links.append(rows.links)
                labels.append(rows.labels + np.array([[0], [label_count]]))
                label_count = labels[-1][1].max(initial=label_count - 1) + 1
                count = rows.end
        table = pa.concat_tables(tables)
        places, pools = _places(table, routes)
        table, places = _sample(table, places, config)
        texts = distinct(pa.chunked_array([*table["anchor"].chunks, *table["positive"].chunks]))[1]
        texts = texts.reshape(2, -1).T
        if any(route.batches == AUTO_BATCHES for route in routes):
            routes = _mixed_where_small(routes, places, texts, config.batch_size * processes.count())
            places, pools = _places(table, routes)
        left, right = (torch.from_numpy(ends) for ends in np.concatenate(links, axis=1))
        labelled = torch.from_numpy(np.concatenate(labels, axis=1))
        numbers = np.stack([table[name].to_numpy() for name in NUMBER_COLUMNS], axis=1)
        negatives = int(not LOSS_KINDS[config.loss].symmetric and (numbers[:, 2] != NONE).any())
        anchors = _behind([route.prompts[0] for route in routes], places, table["anchor"])
        positives, negative = (
            _behind([route.prompts[1] for route in routes], places, table[name])
            for name in ("positive", "negative")
        )
        return cls(
            routes, anchors, positives, (negative,) * negatives, numbers[:, : 2 + negatives], places, pools,
            texts, KnownPositives(left, right, max(count, 1), labelled),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def symmetric(self) -> NDArray[np.bool_]:
        """(rows,) whether anchor and positive may change places."""
        of_routes = np.array([route.symmetric for route in self.routes])
        return of_routes[self.places[:, 0]]

    def level_negatives(self) -> TrainingSet:
        """Give all pairs of a pool the same number of negatives: the fewest that one of them has."""
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
        """Return columns anchor, positive, negative_1, ..., and label: [route, source, number of each text].

        The pairs come twice: row i + len(self) is row i with anchor and positive swapped.
        """
        level = self.level_negatives()
        halves = []
        texts = (level.anchors, level.positives)
        for first, second in ((0, 1), (1, 0)):
            numbers = level.numbers[:, [first, second, *range(2, level.numbers.shape[1])]]
            labels = np.column_stack([level.places[:, :2], numbers])
            flat = pa.FixedSizeListArray.from_arrays(pa.array(labels.ravel()), labels.shape[1])
            columns: dict[str, Any] = {"anchor": texts[first], "positive": texts[second]}
            columns |= {f"negative_{place}": column for place, column in enumerate(level.negatives, 1)}
            halves.append(pa.table({**columns, "label": flat.cast(pa.list_(pa.int64()))}))
        return Dataset(pa.concat_tables(halves))


def _sample(table: pa.Table, places: Numbers, config: TrainConfig) -> tuple[pa.Table, Numbers]:
    """Draw a part of each source's pairs, at least one (Hallee 2024, 3.3, searched on a tenth)."""
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
    """Return the route, source and pool of each row, and the pools."""
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
    """Make batches of `auto` homogeneous where a domain fills one of `size` pairs, and mixed elsewhere.

    If the small domains do not fill one together, all are mixed.
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
        routes = with_batches(routes, small if enough else is_auto, "mixed")
    return with_batches(routes, [route.batches == AUTO_BATCHES for route in routes], "homogeneous")


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


def _behind(prompts: list[str], places: Numbers, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Put each text behind the prompt of its route; null stays null."""
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
