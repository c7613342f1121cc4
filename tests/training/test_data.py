"""Routed texts and random swaps."""

from __future__ import annotations

from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from sentence_experts.errors import InputError, RouteError
from sentence_experts.pairs.dataset import PairsFolder
from sentence_experts.training.data import SwappingCollator, in_batches, routes_for, training_pairs


def test_each_text_stands_behind_the_route_of_its_domain(pairs: PairsFolder, tiny_experts: Path) -> None:
    model = SentenceTransformer(str(tiny_experts))
    data = training_pairs(pairs.split("train"), routes_for(model, pairs.domains))
    assert list(data) == pairs.domains
    for domain, rows in data.items():
        sources = [row for row in pairs.split("train").to_pylist() if row["domain"] == domain]
        assert rows.column_names == ["anchor", "positive"]
        for row, source in zip(rows, sources, strict=True):
            assert row["anchor"] == f"[{domain.upper()}]{source['anchor']}"
            assert row["positive"] == f"[{domain.upper()}]{source['positive']}"


def test_mixed_batches_take_all_pairs_and_domain_batches_each_domain(pairs: PairsFolder) -> None:
    data = training_pairs(pairs.split("train"), dict.fromkeys(pairs.domains, ""))
    mixed, count = in_batches(data, "mixed", 10)
    assert (len(mixed), count) == (64, 6)
    apart, count = in_batches(data, "domain", 10)
    assert ({name: len(part) for name, part in apart.items()}, count) == ({"crops": 32, "neuro": 32}, 6)
    with pytest.raises(InputError, match="crops: 32 training pairs do not fill one batch of 40"):
        in_batches(data, "domain", 40)


def test_a_domain_without_a_route_is_named(tiny_experts: Path) -> None:
    with pytest.raises(RouteError, match=r"rocks.*crops, neuro"):
        routes_for(SentenceTransformer(str(tiny_experts)), ["crops", "rocks"])


def test_swaps_are_about_half_fixed_by_seed_and_epoch_and_lose_nothing() -> None:
    rows = [{"anchor": f"a{number}", "positive": f"p{number}"} for number in range(400)]

    def collated(seed: int, epoch: int) -> list[tuple[str, str]]:
        def texts(inputs: list[str], **kwargs: object) -> dict:
            return {"text": inputs}

        collator = SwappingCollator(preprocess_fn=texts, seed=seed, epoch=epoch)
        batch = collator(rows)
        return list(zip(batch["anchor_text"], batch["positive_text"], strict=True))

    first = collated(0, 0)
    assert 0.4 < sum(anchor.startswith("p") for anchor, _ in first) / len(rows) < 0.6
    assert [set(pair) for pair in first] == [{row["anchor"], row["positive"]} for row in rows]
    assert first == collated(0, 0)
    assert first != collated(1, 0)
    assert first != collated(0, 1)
