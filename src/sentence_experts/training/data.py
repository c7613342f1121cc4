"""Pairs -> what the sentence-transformers trainer reads: routed texts, swapped at random."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from datasets import Dataset
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


def training_pairs(table: pa.Table, routes: Mapping[str, str]) -> Dataset:
    """Two columns, anchor and positive, each text behind the route of its domain.

    The route is part of the text, so batches mix domains freely.

    Raises:
        InputError: there are no pairs.
    """
    if table.num_rows == 0:
        raise InputError("the train split holds no pairs")
    fronts = [routes[domain] for domain in table["domain"].to_pylist()]
    return Dataset.from_dict(
        {
            column: [front + text for front, text in zip(fronts, table[column].to_pylist(), strict=True)]
            for column in ("anchor", "positive")
        }
    )


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
