"""Pairs -> what the sentence-transformers trainer reads: routed texts, swapped at random."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from datasets import Dataset, DatasetDict, concatenate_datasets
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator

from sentence_experts.errors import InputError, RouteError


def routes_for(model: SentenceTransformer, domains: list[str]) -> dict[str, str]:
    """Domain -> the text that goes in front of its texts; empty for a model without routes.

    Raises:
        RouteError: the model has routes, but not for every domain.
    """
    prompts = {name: prompt for name, prompt in model.prompts.items() if prompt}
    if not prompts:
        return dict.fromkeys(domains, "")
    missing = [domain for domain in domains if domain not in prompts]
    if missing:
        raise RouteError(
            f"the model has no route for domain {', '.join(missing)}; it has {', '.join(sorted(prompts))}"
        )
    return {domain: prompts[domain] for domain in domains}


def training_pairs(table: pa.Table, routes: Mapping[str, str]) -> DatasetDict:
    """Domain -> its pairs: two columns, anchor and positive, each text behind the domain's route.

    Raises:
        InputError: there are no pairs.
    """
    if table.num_rows == 0:
        raise InputError("the train split holds no pairs")
    pairs: dict[str, dict[str, list[str]]] = {}
    for row in table.select(["domain", "anchor", "positive"]).to_pylist():
        columns = pairs.setdefault(row["domain"], {"anchor": [], "positive": []})
        for column, texts in columns.items():
            texts.append(routes[row["domain"]] + row[column])
    return DatasetDict({domain: Dataset.from_dict(columns) for domain, columns in sorted(pairs.items())})


def in_batches(pairs: DatasetDict, batches: str, batch_size: int) -> tuple[Dataset | DatasetDict, int]:
    """What the trainer draws batches from, and how many whole batches that gives.

    With "mixed" batches all pairs are one dataset: the route is part of the text, so domains mix freely. With
    "domain" each batch is of one domain, so that a pair's negatives are too.

    Raises:
        InputError: there are too few pairs for one batch.
    """
    data = concatenate_datasets(list(pairs.values())) if batches == "mixed" else pairs
    parts = {"all domains together": data} if isinstance(data, Dataset) else data
    short = {name: len(part) for name, part in parts.items() if len(part) < batch_size}
    if short:
        name, count = next(iter(short.items()))
        raise InputError(f"{name}: {count} training pairs do not fill one batch of {batch_size}")
    return data, sum(len(part) // batch_size for part in parts.values())


@dataclass
class SwappingCollator(SentenceTransformerDataCollator):
    """Swaps anchor and positive of about half the pairs, so that the order carries no signal.

    Source: Hallee et al. 2025, Training strategy. Whether a pair is swapped follows from the seed, the epoch
    and its texts, not from a running random state: a resumed run swaps the same pairs.
    """

    seed: int = 0
    epoch: int = 0

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate a batch of {anchor, positive} rows."""
        return super().__call__([self._swapped(row) if self._swaps(row) else row for row in features])

    def _swaps(self, row: dict[str, Any]) -> bool:
        key = f"{self.seed}\0{self.epoch}\0{row['anchor']}\0{row['positive']}"
        return zlib.crc32(key.encode("utf-8")) % 2 == 1

    @staticmethod
    def _swapped(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "anchor": row["positive"], "positive": row["anchor"]}
