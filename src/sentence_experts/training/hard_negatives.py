"""Mined negatives: for each training pair the nearest texts of its domain that no link makes a positive.

The untrained model's vectors say what is near. Texts of the pair's own works, and of works linked to either
of them, are passed over.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer
from torch import Tensor

from sentence_experts.errors import InputError
from sentence_experts.progress import Advance, progress
from sentence_experts.storage import write_parquet
from sentence_experts.training.data import TrainingPairs
from sentence_experts.training.known_positives import KnownPositives

TEXTS_AT_ONCE = 512
PAIRS_AT_ONCE = 128


def with_hard_negatives(
    training: TrainingPairs, model: SentenceTransformer, count: int, kept_in: Path
) -> TrainingPairs:
    """The pairs with columns negative_1 to negative_`count`, and the negatives' work numbers in the labels.

    Args:
        training: the pairs.
        model: the model before training.
        count: negatives a pair.
        kept_in: a Parquet file of `domain, negatives` in the pairs' order, read if it is there: an
            interrupted run goes on with the same negatives.

    Raises:
        InputError: a domain has too few texts.
    """
    if not kept_in.exists():
        texts = sum(len(_texts_of(rows)) for rows in training.pairs.values())
        with progress("mine hard negatives", texts) as advance:
            mined = {
                domain: _mine(domain, rows, training.known, model, count, advance)
                for domain, rows in training.pairs.items()
            }
        domains = [domain for domain, numbers in mined.items() for _ in range(len(numbers))]
        negatives = [row for numbers in mined.values() for row in numbers.tolist()]
        write_parquet(kept_in, pa.table({"domain": domains, "negatives": negatives}))
    kept = pq.read_table(kept_in)
    found: dict[str, list[list[int]]] = {domain: [] for domain in training.pairs}
    for row in kept.to_pylist():
        found[row["domain"]].append(row["negatives"])
    pairs = {domain: _with_columns(rows, found[domain]) for domain, rows in training.pairs.items()}
    return replace(training, pairs=DatasetDict(pairs))


def _texts_of(rows: Dataset) -> dict[int, str]:
    """Work number -> its text, ascending."""
    texts: dict[int, str] = {}
    for column, place in (("anchor", 1), ("positive", 2)):
        texts |= {label[place]: text for label, text in zip(rows["label"], rows[column], strict=True)}
    return dict(sorted(texts.items()))


def _with_columns(rows: Dataset, negatives: list[list[int]]) -> Dataset:
    texts = _texts_of(rows)
    columns = {name: list(rows[name]) for name in ("anchor", "positive")}
    for place in range(len(negatives[0])):
        columns[f"negative_{place + 1}"] = [texts[works[place]] for works in negatives]
    labels = [[*label, *works] for label, works in zip(rows["label"], negatives, strict=True)]
    return Dataset.from_dict({**columns, "label": labels})


def _mine(
    domain: str,
    rows: Dataset,
    known: KnownPositives,
    model: SentenceTransformer,
    count: int,
    advance: Advance,
) -> Tensor:
    """Work numbers of the negatives, (pairs, count), nearest to the anchor first."""
    texts = _texts_of(rows)
    works, pairs = torch.tensor(list(texts)), torch.tensor(list(rows["label"]))[:, 1:3]
    vectors = _vectors(list(texts.values()), model, advance)
    # Among so many neighbours there are always enough that are linked to neither end.
    links = known.degrees()[pairs].sum(dim=1).max() + 2
    near = min(len(works), count + int(links))
    found = []
    for part in pairs.split(PAIRS_AT_ONCE):
        anchors = vectors[torch.searchsorted(works, part[:, 0].contiguous())]
        candidates = works[(anchors @ vectors.T).topk(near).indices]
        linked = known(part[:, :1], candidates) | known(part[:, 1:], candidates)
        if int((~linked).sum(dim=1).min()) < count:
            raise InputError(
                f"--hard-negatives {count}: {domain} has {len(works)} texts, too few without the linked ones"
            )
        first = linked.int().argsort(dim=1, stable=True)[:, :count]
        found.append(candidates.gather(1, first))
    return torch.cat(found)


def _vectors(texts: list[str], model: SentenceTransformer, advance: Advance) -> Tensor:
    """Vectors of length one, (texts, dimensions); the texts carry their routes."""
    parts = []
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        part = texts[start : start + TEXTS_AT_ONCE]
        encoded = model.encode(part, prompt="", normalize_embeddings=True, show_progress_bar=False)
        parts.append(torch.as_tensor(encoded).float())
        advance(len(part))
    return torch.cat(parts)
