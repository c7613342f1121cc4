"""Linked pairs become rows of the training set: behind their routes, numbered by paper, swapped at random."""

from __future__ import annotations

from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from helpers.samples import TOPICS, make_tiny_encoder
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.surgery.extend import extend
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.training.batches import RouteBatches
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.data import open_data
from sentence_experts.training.trainable import find_routes
from sentence_experts.training.training_set import TrainingSet


def made(pairs: Pairs, model: Path, **settings: object) -> TrainingSet:
    config = TrainConfig.of(None, **settings)
    data = open_data(pairs)
    routes = find_routes(data, config, SentenceTransformer(str(model), device="cpu"))
    return TrainingSet.of(data, routes, config)


def test_each_text_stands_behind_the_route_of_its_domain(pairs: Pairs, experts_model: Path) -> None:
    data = made(pairs, experts_model)
    assert [route.name for route in data.routes] == pairs.domains
    assert [route.experts for route in data.routes] == [(0, 0), (1, 1)]
    train = pairs.split("train").to_pylist()
    papers = sorted({row[end] for row in train for end in ("anchor_id", "positive_id")})
    rows = data.dataset()
    assert rows.column_names == ["anchor", "positive", "label"]
    sources = sorted(train, key=lambda row: pairs.domains.index(row["domain"]))
    assert len(rows) == 2 * len(sources)
    for row, source in zip(list(rows)[: len(sources)], sources, strict=True):
        route = f"[{source['domain'].upper()}]"
        assert (row["anchor"], row["positive"]) == (route + source["anchor"], route + source["positive"])
        number, _, anchor, positive = row["label"]
        assert pairs.domains[number] == source["domain"]
        assert (papers[anchor], papers[positive]) == (source["anchor_id"], source["positive_id"])


def test_mixed_batches_are_of_all_pairs_and_homogeneous_ones_of_a_domain(
    pairs: Pairs, experts_model: Path
) -> None:
    mixed, apart = (made(pairs, experts_model, batches=kind) for kind in ("mixed", "homogeneous"))
    assert [name for name, _ in mixed.pools] == ["all mixed routes together"]
    assert [name for name, _ in apart.pools] == ["domain crops", "domain neuro"]
    with pytest.raises(InputError, match="domain crops: 32 training pairs do not fill one batch of 40"):
        RouteBatches(apart, 40)


def test_batches_suit_what_chooses_the_expert(
    pairs: Pairs, experts_model: Path, minilm: str, tmp_path: Path
) -> None:
    def pools(model: Path, **settings: object) -> list[str]:
        return [name for name, _ in made(pairs, model, batch_size=4, **settings).pools]

    apart, mixed = ["domain crops", "domain neuro"], ["all mixed routes together"]
    assert pools(experts_model) == apart
    dense = make_tiny_encoder(tmp_path / "dense", minilm)
    assert pools(dense) == mixed
    for router in ("learned", "token"):
        extend(dense, experts=list(TOPICS), router=router, out=tmp_path / router)
        assert pools(tmp_path / router) == mixed
        assert pools(tmp_path / router, batches="homogeneous") == apart
    assert pools(experts_model, only_expert="neuro") == ["all mixed routes together"]


def test_domains_too_small_for_a_batch_share_mixed_ones(
    experts_model: Path, tmp_path: Path, minilm: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    domains = ("crops", "neuro", "rocks")
    model = make_tiny_encoder(tmp_path / "model", minilm, experts=domains)

    def batches_of(sizes: tuple[int, int, int], **settings: object) -> list[str]:
        caplog.clear()
        rows = [
            {"anchor": f"{name} {n}", "positive": f"more {name} {n}", "domain": name}
            for name, size in zip(domains, sizes, strict=True)
            for n in range(size)
        ]
        training = made(Pairs.of(rows), model, batch_size=8, **settings)
        assert len(list(RouteBatches(training, 8, steps=4))) == 4
        return [route.batches for route in training.routes]

    assert batches_of((8, 9, 10)) == ["homogeneous"] * 3
    assert "too few" not in caplog.text
    assert batches_of((3, 20, 6)) == ["mixed", "homogeneous", "mixed"]
    assert "a batch of 8: crops, rocks; batches are mixed there, and of one domain" in caplog.text
    assert batches_of((3, 20, 9)) == ["mixed"] * 3
    assert "a batch of 8: crops; batches are mixed for all domains" in caplog.text
    assert batches_of((16, 40, 60), fraction=0.2) == ["mixed"] * 3
    with pytest.raises(InputError, match="domain crops: 3 training pairs do not fill one batch of 8"):
        batches_of((3, 20, 9), batches="homogeneous")


def test_missing_routes_and_domains_are_named(pairs: Pairs, experts_model: Path) -> None:
    train = pairs.split("train")
    place = train.column_names.index("domain")
    rocks = Pairs.of(train.set_column(place, "domain", [["rocks"] * train.num_rows]))
    with pytest.raises(RouteError, match=r"rocks.*crops, neuro"):
        made(rocks, experts_model)
    assert [route.name for route in made(pairs, experts_model, routes="neuro").routes] == ["neuro"]
    for settings in ({"routes": ["neuro", "rocks"]}, {"temperatures": {"rocks": 0.1}}):
        with pytest.raises(UsageError, match=r"no domain or task rocks .*crops, neuro"):
            made(pairs, experts_model, **settings)


def test_temperatures_per_route_override_the_common_one(pairs: Pairs, experts_model: Path) -> None:
    def temperatures(**settings: object) -> list[float]:
        return [route.temperature for route in made(pairs, experts_model, **settings).routes]

    assert temperatures() == [0.05, 0.05]
    assert temperatures(temperature=0.1, temperatures={"neuro": 0.2}) == [0.1, 0.2]
    assert temperatures(curriculum="static") == [0.03, 0.03]


def test_a_fraction_of_each_domain_is_sampled(pairs: Pairs, experts_model: Path) -> None:
    whole, part, same, other = (
        made(pairs, experts_model, **settings)
        for settings in ({}, {"fraction": 0.25}, {"fraction": 0.25}, {"fraction": 0.25, "seed": 1})
    )
    assert [int((part.places[:, 0] == route).sum()) for route in (0, 1)] == [8, 8]
    anchors = [training.columns[0].to_pylist() for training in (whole, part, same, other)]
    assert set(anchors[1]) <= set(anchors[0])
    assert anchors[1] == anchors[2] != anchors[3]


def test_about_half_of_the_pairs_are_swapped_and_nothing_is_lost(pairs: Pairs, experts_model: Path) -> None:
    data = made(pairs, experts_model)
    rows = list(data.dataset())
    size = len(data)

    def drawn(seed: int) -> list[int]:
        return [row for batch in RouteBatches(data, 4, steps=60, seed=seed, swap=True) for row in batch]

    first = drawn(0)
    assert 0.4 < sum(row >= size for row in first) / len(first) < 0.6
    for row in first[:40]:
        plain, swapped = rows[row % size], rows[row % size + size]
        assert (plain["anchor"], plain["positive"]) == (swapped["positive"], swapped["anchor"])
        # The numbers go with their texts.
        assert plain["label"][2:] == swapped["label"][3:1:-1]
    assert first == drawn(0) != drawn(1)
    assert max(row for batch in RouteBatches(data, 4, steps=60) for row in batch) < size
