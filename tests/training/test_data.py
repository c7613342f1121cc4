"""Routed texts and random swaps."""

from __future__ import annotations

from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from sentence_experts.errors import RouteError
from sentence_experts.pairs.dataset import PairsFolder
from sentence_experts.training.data import SwappingCollator, routes_for, training_pairs


def test_each_text_stands_behind_the_route_of_its_domain(pairs: PairsFolder, tiny_experts: Path) -> None:
    model = SentenceTransformer(str(tiny_experts))
    data = training_pairs(pairs.split("train"), routes_for(model, pairs.domains))
    assert data.column_names == ["anchor", "positive"]
    for row, source in zip(data, pairs.split("train").to_pylist(), strict=True):
        assert row["anchor"] == f"[{source['domain'].upper()}]{source['anchor']}"
        assert row["positive"].startswith(f"[{source['domain'].upper()}]")


def test_a_domain_without_a_route_is_named(tiny_experts: Path) -> None:
    with pytest.raises(RouteError, match=r"rocks.*plants, stars"):
        routes_for(SentenceTransformer(str(tiny_experts)), ["plants", "rocks"])


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
