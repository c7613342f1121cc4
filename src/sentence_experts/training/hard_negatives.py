"""Hard negatives: the texts of a pair's route nearest to its anchor, but for known positives.

Near is what the vectors of the model before training are.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from sentence_experts.errors import InputError
from sentence_experts.progress import progress
from sentence_experts.storage import write_parquet
from sentence_experts.training import processes
from sentence_experts.training.data import TrainingSet
from sentence_experts.training.losses import KnownPositives
from sentence_experts.training.objectives import NONE, Numbers

TEXTS_AT_ONCE = 512
PAIRS_AT_ONCE = 128


def with_hard_negatives(
    training: TrainingSet, model: SentenceTransformer, count: int, file: Path
) -> TrainingSet:
    """Return the pairs with `count` mined negatives each; routes with their own negatives keep those.

    Args:
        training: the pairs.
        model: the model before training.
        count: negatives per pair.
        file: a Parquet file of `negatives`, the places of the texts in the columns anchor and positive, one
            after the other; empty for rows that keep theirs. It is read if it exists, so that a resumed run
            continues with the same negatives. The first of several processes mines.

    Raises:
        InputError: a route has too few texts.
    """
    processes.once(lambda: None if file.exists() else _mine(training, model, count, file))
    mined = np.array([row or [NONE] * count for row in pq.read_table(file)["negatives"].to_pylist()])
    texts = pa.chunked_array([*training.anchors.chunks, *training.positives.chunks])
    numbers = training.numbers[:, :2].T.ravel()
    negatives = np.where(mined == NONE, NONE, numbers[mined])  # (rows, count)
    columns = [texts.take(pa.array(mined[:, place], mask=mined[:, place] == NONE)) for place in range(count)]
    if training.negatives:
        # Routes with their own negatives have one per pair.
        without = negatives[:, 0] == NONE
        negatives[:, 0] = np.where(without, training.numbers[:, 2], negatives[:, 0])
        columns[0] = pc.if_else(pa.array(without), training.negatives[0].combine_chunks(), columns[0])
    numbers = np.column_stack([training.numbers[:, :2], negatives])
    return replace(training, negatives=tuple(columns), numbers=numbers)


def _mine(training: TrainingSet, model: SentenceTransformer, count: int, file: Path) -> None:
    size = len(training)
    rows = np.flatnonzero(training.numbers[:, 2] == NONE) if training.negatives else np.arange(size)
    places = np.concatenate([rows, rows + size])
    both = pa.chunked_array([*training.anchors.chunks, *training.positives.chunks]).take(places)
    texts = both.combine_chunks().dictionary_encode()
    text_of = np.full(2 * size, NONE)
    text_of[places] = texts.indices.to_numpy()
    vectors = _vectors(texts.dictionary.to_pylist(), model)
    numbers = training.numbers[:, :2].T.ravel()
    mined: list[list[int]] = [[] for _ in range(size)]
    for number, route in enumerate(training.routes):
        own = rows[training.places[rows, 0] == number]
        sides = np.concatenate([own, own + size]) if route.symmetric else own + size
        # Each text once; those of the anchors too if the two sides may change places.
        keys = np.stack([numbers[sides], text_of[sides]], axis=1)
        candidates = sides[np.unique(keys, axis=0, return_index=True)[1]]
        nearest = _nearest(
            torch.from_numpy(training.numbers[own, :2]),
            vectors[text_of[own]],
            torch.from_numpy(numbers[candidates]),
            vectors[text_of[candidates]],
            training.known,
            count,
        )
        if nearest is None:
            raise InputError(
                f"`hard_negatives={count}`: {route.name} has {len(candidates)} texts, too few without the "
                "known positives"
            )
        for row, negatives in zip(own, nearest, strict=True):
            mined[row] = candidates[negatives].tolist()
    write_parquet(file, pa.table({"negatives": pa.array(mined, pa.list_(pa.int64()))}))


def _nearest(
    pairs: Tensor, anchors: Tensor, numbers: Tensor, candidates: Tensor, known: KnownPositives, count: int
) -> Numbers | None:
    """Return the candidates nearest to each anchor, (pairs, count); None if too few are no known positives.

    `pairs` (pairs, 2) and `numbers` (candidates,) are what `known` takes; `anchors` (pairs, width) and
    `candidates` (candidates, width) are vectors of length one.
    """
    if not len(pairs):
        return np.zeros((0, count), dtype=np.int64)
    # Among that many neighbours there are always enough that are not known positives.
    links = int(known.degrees()[pairs].sum(dim=1).max()) + 2
    near = min(len(numbers), count + links * int(torch.bincount(numbers).max()))
    chosen = []
    for start in range(0, len(pairs), PAIRS_AT_ONCE):
        part = pairs[start : start + PAIRS_AT_ONCE]
        nearest = (anchors[start : start + PAIRS_AT_ONCE] @ candidates.T).topk(near).indices
        linked = known(part[:, :1], numbers[nearest]) | known(part[:, 1:], numbers[nearest])
        if int((~linked).sum(dim=1).min()) < count:
            return None
        chosen.append(nearest.gather(1, linked.int().argsort(dim=1, stable=True)[:, :count]))
    return torch.cat(chosen).numpy()


def _vectors(texts: list[str], model: SentenceTransformer) -> Tensor:
    """Return vectors of length one, (texts, dimensions), of texts behind their prompts."""
    parts = []
    with progress("mine hard negatives", len(texts)) as advance:
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            part = texts[start : start + TEXTS_AT_ONCE]
            encoded = model.encode(part, prompt="", normalize_embeddings=True, show_progress_bar=False)
            parts.append(torch.as_tensor(encoded).float())
            advance(len(part))
    return torch.cat(parts)
