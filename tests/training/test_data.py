"""Routed texts and random swaps."""

from __future__ import annotations

from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.pairs.dataset import PairsFolder
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.data import SwappingCollator, TrainingPairs, chosen_domains
from sentence_experts.training.known_positives import number_works


def test_each_text_stands_behind_the_route_of_its_domain(pairs: PairsFolder, tiny_experts: Path) -> None:
    model = SentenceTransformer(str(tiny_experts))
    data = TrainingPairs.of(pairs, pairs.domains, model)
    works = number_works(pairs.split("train")).to_pylist()
    assert data.domains == pairs.domains
    for domain, rows in data.pairs.items():
        sources = [row for row in pairs.split("train").to_pylist() if row["domain"] == domain]
        assert rows.column_names == ["anchor", "positive", "label"]
        for row, source in zip(rows, sources, strict=True):
            assert row["anchor"] == f"[{domain.upper()}]{source['anchor']}"
            assert row["positive"] == f"[{domain.upper()}]{source['positive']}"
            expert, anchor, positive = row["label"]
            assert expert == model[0].auto_model.config.experts.index(domain)
            assert (works[anchor], works[positive]) == (source["anchor_id"], source["positive_id"])


def test_mixed_batches_take_all_pairs_and_domain_batches_each_domain(
    pairs: PairsFolder, tiny_experts: Path
) -> None:
    data = TrainingPairs.of(pairs, pairs.domains, SentenceTransformer(str(tiny_experts)))
    mixed = TrainConfig(batch_size=10)
    assert (len(data.dataset("mixed")), data.batches(mixed)) == (64, 6)
    apart = TrainConfig(batch_size=10, batches="domain")
    assert {name: len(part) for name, part in data.dataset("domain").items()} == {"crops": 32, "neuro": 32}
    assert data.batches(apart) == 6
    with pytest.raises(InputError, match="crops: 32 training pairs do not fill one batch of 40"):
        data.batches(TrainConfig(batch_size=40, batches="domain"))


def test_a_domain_without_a_route_is_named(pairs: PairsFolder, tiny_experts: Path) -> None:
    with pytest.raises(RouteError, match=r"rocks.*crops, neuro"):
        TrainingPairs.of(pairs, ["crops", "rocks"], SentenceTransformer(str(tiny_experts)))


def test_domains_are_chosen_by_name(pairs: PairsFolder) -> None:
    assert chosen_domains(pairs, None) == ["crops", "neuro"]
    assert chosen_domains(pairs, ["neuro"]) == ["neuro"]
    with pytest.raises(UsageError, match=r"--domains: no pairs of rocks; .*crops, neuro"):
        chosen_domains(pairs, ["neuro", "rocks"])


def test_swaps_are_about_half_fixed_by_seed_and_epoch_and_lose_nothing() -> None:
    rows = [
        {"anchor": f"a{number}", "positive": f"p{number}", "label": [7, number, number + 1000, 3]}
        for number in range(400)
    ]

    def collated(seed: int, epoch: int) -> list[tuple[str, str]]:
        def texts(inputs: list[str], **kwargs: object) -> dict:
            return {"text": inputs}

        collator = SwappingCollator(preprocess_fn=texts, seed=seed, epoch=epoch)
        batch = collator(rows)
        for anchor, positive, (expert, left, right, negative) in zip(
            batch["anchor_text"], batch["positive_text"], batch["label"].tolist(), strict=True
        ):
            # The works' numbers go with their texts.
            assert (
                [anchor, positive] == [f"a{left}", f"p{right - 1000}"]
                if left < right
                else [
                    f"p{left - 1000}",
                    f"a{right}",
                ]
            )
            assert (expert, negative) == (7, 3)
        return list(zip(batch["anchor_text"], batch["positive_text"], strict=True))

    first = collated(0, 0)
    assert 0.4 < sum(anchor.startswith("p") for anchor, _ in first) / len(rows) < 0.6
    assert [set(pair) for pair in first] == [{row["anchor"], row["positive"]} for row in rows]
    assert first == collated(0, 0)
    assert first != collated(1, 0)
    assert first != collated(0, 1)
