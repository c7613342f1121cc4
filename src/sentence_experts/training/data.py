"""Pairs -> what the sentence-transformers trainer reads: routed texts, swapped at random."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, DatasetDict, concatenate_datasets
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator

from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.pairs.dataset import PairsFolder
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.known_positives import ID_COLUMNS, KnownPositives, number_works
from sentence_experts.training.router_losses import routed_model

TEXT_COLUMNS = ("anchor", "positive")


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


def experts_for(model: SentenceTransformer, domains: list[str]) -> dict[str, int]:
    """Domain -> the index of its expert; 0 for a model without experts.

    Raises:
        RouteError: the model has experts, but none for a domain.
    """
    routed = routed_model(model)
    if routed is None:
        return dict.fromkeys(domains, 0)
    known = {name: index for index, name in enumerate(routed.config.experts)}
    known |= {route.name: route.expert for route in routed.routes}
    missing = [domain for domain in domains if domain not in known]
    if missing:
        raise RouteError(
            f"the model has no expert for domain {', '.join(missing)}; it has {', '.join(sorted(known))}"
        )
    return {domain: known[domain] for domain in domains}


def chosen_domains(pairs: PairsFolder, domains: list[str] | None) -> list[str]:
    """The domains to train on, sorted; all of the dataset's when none are named.

    Raises:
        UsageError: the dataset lacks one.
    """
    missing = [domain for domain in domains or [] if domain not in pairs.domains]
    if missing:
        raise UsageError(
            f"--domains: no pairs of {', '.join(missing)}; the dataset has {', '.join(pairs.domains)}"
        )
    return sorted(set(domains)) if domains else pairs.domains


def trained_domains(pairs: PairsFolder, config: TrainConfig, model: SentenceTransformer) -> list[str]:
    """The chosen domains that a run learns from: with `only_expert`, those of that expert.

    Texts of the other experts stay as they are, so a batch of them alone would teach nothing.

    Raises:
        UsageError: the dataset lacks a domain, or none of them is the expert's.
        RouteError: the model has experts, but none for a domain.
    """
    chosen = chosen_domains(pairs, config.domains)
    if config.only_expert is None:
        return chosen
    (number,) = experts_for(model, [config.only_expert]).values()
    own = [domain for domain, expert in experts_for(model, chosen).items() if expert == number]
    if not own:
        raise UsageError(
            f"--only-expert {config.only_expert}: no pairs of that expert's domain, only of "
            f"{', '.join(chosen)}"
        )
    return own


def pairs_of(table: pa.Table, domains: list[str]) -> pa.Table:
    """The rows of these domains."""
    return table.filter(pc.is_in(table["domain"], value_set=pa.array(domains, pa.string())))


def training_pairs(
    table: pa.Table, routes: Mapping[str, str], experts: Mapping[str, int], works: pa.Array
) -> DatasetDict:
    """Domain -> its pairs: columns anchor and positive, each text behind the domain's route, and label.

    Args:
        table: the train split.
        routes: domain -> what goes in front of its texts.
        experts: domain -> the index of its expert.
        works: the ids of all works in the table; a work's number is its place here.

    `label` is [expert, number of the anchor's work, number of the positive's work].

    Raises:
        InputError: there are no pairs.
    """
    if table.num_rows == 0:
        raise InputError("the train split holds no pairs")
    pairs: dict[str, dict[str, list[Any]]] = {}
    numbers = [pc.index_in(table[column], value_set=works).to_pylist() for column in ID_COLUMNS]
    rows = table.select(["domain", *TEXT_COLUMNS]).to_pylist()
    for row, anchor, positive in zip(rows, *numbers, strict=True):
        domain = row["domain"]
        columns = pairs.setdefault(domain, {name: [] for name in (*TEXT_COLUMNS, "label")})
        for column in TEXT_COLUMNS:
            columns[column].append(routes[domain] + row[column])
        columns["label"].append([experts[domain], anchor, positive])
    return DatasetDict({domain: Dataset.from_dict(columns) for domain, columns in sorted(pairs.items())})


@dataclass(frozen=True)
class TrainingPairs:
    """The pairs that a run trains on.

    Attributes:
        pairs: domain -> its pairs, as of `training_pairs`.
        known: which of their works are linked.
    """

    pairs: DatasetDict
    known: KnownPositives

    @classmethod
    def of(cls, folder: PairsFolder, domains: list[str], model: SentenceTransformer) -> TrainingPairs:
        """The pairs of these domains, for this model.

        Raises:
            RouteError: the model has routes or experts, but not for a domain.
            InputError: there are no pairs.
        """
        table = pairs_of(folder.split("train"), domains)
        works = number_works(table)
        routes, experts = routes_for(model, domains), experts_for(model, domains)
        pairs = training_pairs(table, routes, experts, works)
        return cls(pairs, KnownPositives.of(folder, works, table))

    @property
    def domains(self) -> list[str]:
        """The domains that have pairs, sorted."""
        return sorted(self.pairs)

    def dataset(self, batches: str) -> Dataset | DatasetDict:
        """What the trainer draws batches from.

        With "mixed" batches all pairs are one dataset: the route is part of the text, so domains mix freely.
        With "domain" each batch is of one domain, so that a pair's negatives are too.
        """
        return concatenate_datasets(list(self.pairs.values())) if batches == "mixed" else self.pairs

    def batches(self, config: TrainConfig) -> int:
        """How many whole batches the pairs give.

        Raises:
            InputError: there are too few pairs for one batch.
        """
        data = self.dataset(config.batches)
        parts = {"all domains together": data} if isinstance(data, Dataset) else data
        for name, part in parts.items():
            if len(part) < config.batch_size:
                raise InputError(
                    f"{name}: {len(part)} training pairs do not fill one batch of {config.batch_size}"
                )
        return sum(len(part) // config.batch_size for part in parts.values())


@dataclass
class SwappingCollator(SentenceTransformerDataCollator):
    """Swaps anchor and positive of about half the pairs, so that the order carries no signal.

    Source: Hallee et al. 2025, Training strategy. Whether a pair is swapped follows from the seed, the epoch
    and its texts, not from a running random state: a resumed run swaps the same pairs.
    """

    seed: int = 0
    epoch: int = 0

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate a batch of {anchor, positive, label} rows."""
        return super().__call__([self._swapped(row) if self._swaps(row) else row for row in features])

    def _swaps(self, row: dict[str, Any]) -> bool:
        key = f"{self.seed}\0{self.epoch}\0{row['anchor']}\0{row['positive']}"
        return zlib.crc32(key.encode("utf-8")) % 2 == 1

    @staticmethod
    def _swapped(row: dict[str, Any]) -> dict[str, Any]:
        expert, anchor, positive, *negatives = row["label"]
        label = [expert, positive, anchor, *negatives]
        return {**row, "anchor": row["positive"], "positive": row["anchor"], "label": label}
