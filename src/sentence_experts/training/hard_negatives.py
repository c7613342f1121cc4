"""Mined negatives: for each training pair the nearest texts of its route that are no known positives.

The untrained model's vectors say what is near.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from sentence_experts.errors import InputError
from sentence_experts.progress import Advance, progress
from sentence_experts.storage import write_parquet
from sentence_experts.training.data import TrainingSet
from sentence_experts.training.objectives import NONE, Numbers

TEXTS_AT_ONCE = 512
PAIRS_AT_ONCE = 128


def with_hard_negatives(
    training: TrainingSet,
    model: SentenceTransformer,
    count: int,
    file: Path,
    once: Callable[[Callable[[], Any]], Any] = lambda work: work(),
) -> TrainingSet:
    """The pairs with `count` mined negatives each; routes with negatives of their own keep those.

    Args:
        training: the pairs.
        model: the model before training.
        count: negatives per pair.
        file: a Parquet file of `negatives`, the places of the texts in the columns anchor and positive, one
            after the other; empty for rows that keep theirs. It is read if it exists, so that a resumed run
            goes on with the same negatives.
        once: runs the mining in one of several processes.

    Raises:
        InputError: a route has too few texts.
    """
    if not file.exists():
        once(lambda: _mine(training, model, count, file))
    mined = np.array([row or [NONE] * count for row in pq.read_table(file)["negatives"].to_pylist()])
    texts = pa.chunked_array([*training.anchors.chunks, *training.positives.chunks])
    numbers = training.numbers[:, :2].T.ravel()
    found = np.where(mined == NONE, NONE, numbers[mined])  # (rows, count)
    columns = [texts.take(pa.array(mined[:, place], mask=mined[:, place] == NONE)) for place in range(count)]
    own = [column.to_pylist() for column in training.negatives]
    if own:
        # Routes with negatives of their own have one per pair.
        kept = found[:, 0] == NONE
        found[:, 0] = np.where(kept, training.numbers[:, 2], found[:, 0])
        first = pa.chunked_array([pa.array(own[0], columns[0].type)])
        columns[0] = pa.compute.if_else(pa.array(kept), first, columns[0])
    numbers = np.column_stack([training.numbers[:, :2], found])
    return replace(training, negatives=tuple(columns), numbers=numbers)


def _mine(training: TrainingSet, model: SentenceTransformer, count: int, file: Path) -> None:
    without = (
        training.numbers[:, 2:3] == NONE if training.negatives else np.ones((len(training), 1), dtype=bool)
    )
    mined: list[list[int]] = [[] for _ in range(len(training))]
    routes = [
        (route.name, np.flatnonzero((training.places[:, 0] == number) & without[:, 0]))
        for number, route in enumerate(training.routes)
    ]
    with progress("mine hard negatives", sum(2 * len(rows) for _, rows in routes)) as advance:
        for name, rows in routes:
            if len(rows):
                for row, places in zip(
                    rows, _mine_route(name, rows, training, model, count, advance), strict=True
                ):
                    mined[row] = places.tolist()
    write_parquet(file, pa.table({"negatives": pa.array(mined, pa.list_(pa.int64()))}))


def _mine_route(
    name: str, rows: Numbers, training: TrainingSet, model: SentenceTransformer, count: int, advance: Advance
) -> Tensor:
    """Places of the negatives, (rows, count), nearest to the anchor first."""
    size = len(training)
    symmetric = bool(training.symmetric[rows].all())
    texts = training.anchors.take(rows).to_pylist() + training.positives.take(rows).to_pylist()
    numbers = training.numbers[rows][:, :2].T.ravel()
    places = np.concatenate([rows, rows + size])
    first = {key: at for at, key in reversed(list(enumerate(zip(numbers.tolist(), texts, strict=True))))}
    # Each text once; those of the anchors too if the two sides may change places.
    found = [at for at in first.values() if symmetric or at >= len(rows)]
    chosen = np.array(sorted(found, key=lambda at: (numbers[at], at)))
    vectors = _vectors(texts, model, advance)
    candidates, anchors = vectors[chosen], vectors[: len(rows)]
    candidate_numbers = torch.from_numpy(numbers[chosen])
    pairs = torch.from_numpy(training.numbers[rows][:, :2])
    # Among that many neighbours there are always enough that are no known positives.
    texts_per_number = int(np.bincount(numbers[chosen]).max())
    links = training.known.degrees()[pairs].sum(dim=1).max() + 2
    near = min(len(chosen), count + int(links) * texts_per_number)
    negatives = []
    for start in range(0, len(rows), PAIRS_AT_ONCE):
        part = pairs[start : start + PAIRS_AT_ONCE]
        nearest = (anchors[start : start + PAIRS_AT_ONCE] @ candidates.T).topk(near).indices
        linked = training.known(part[:, :1], candidate_numbers[nearest])
        linked |= training.known(part[:, 1:], candidate_numbers[nearest])
        if int((~linked).sum(dim=1).min()) < count:
            raise InputError(
                f"`hard_negatives={count}`: {name} has {len(chosen)} texts, too few without the known "
                "positives"
            )
        order = linked.int().argsort(dim=1, stable=True)[:, :count]
        negatives.append(nearest.gather(1, order))
    return torch.from_numpy(places[chosen])[torch.cat(negatives)]


def _vectors(texts: list[str], model: SentenceTransformer, advance: Advance) -> Tensor:
    """Vectors of length one, (texts, dimensions); equal texts are encoded once."""
    distinct = list(dict.fromkeys(texts))
    parts = []
    for start in range(0, len(distinct), TEXTS_AT_ONCE):
        part = distinct[start : start + TEXTS_AT_ONCE]
        encoded = model.encode(part, prompt="", normalize_embeddings=True, show_progress_bar=False)
        parts.append(torch.as_tensor(encoded).float())
    advance(len(texts))
    place = {text: at for at, text in enumerate(distinct)}
    return torch.cat(parts)[[place[text] for text in texts]]
