"""Mined negatives are the nearest texts of the domain that are linked to neither end of the pair."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import torch
from sentence_transformers import SentenceTransformer

from helpers.samples import make_pairs_folder, replace_table
from helpers.small_training_tasks import make_tasks_folder
from sentence_experts.errors import InputError
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.data import open_data
from sentence_experts.training.trainable import trained_routes
from sentence_experts.training.training_set import TrainingSet, with_hard_negatives


@pytest.fixture
def folder(tmp_path: Path) -> Pairs:
    folder = make_pairs_folder(tmp_path / "pairs", pairs=8)
    train = Pairs.open(folder).split("train").to_pylist()
    # The pairs themselves, and a link from each first anchor of a domain to another pair's positive.
    links = [{"left_id": row["anchor_id"], "right_id": row["positive_id"]} for row in train]
    links += [{"left_id": train[n]["anchor_id"], "right_id": train[n + 1]["positive_id"]} for n in (0, 8)]
    replace_table(folder, "known_links.parquet", pa.Table.from_pylist(links))
    return Pairs.open(folder)


def made(folder: Pairs, model: SentenceTransformer) -> TrainingSet:
    config, data = TrainConfig(), open_data(folder)
    return TrainingSet.of(data, trained_routes(data, config, model), config)


def test_negatives_are_the_nearest_texts_that_are_not_linked(folder: Pairs, experts_model: Path) -> None:
    model = SentenceTransformer(str(experts_model), device="cpu")
    training = made(folder, model)
    mined = with_hard_negatives(training, model, 2)
    rows = mined.dataset()
    assert rows.column_names == ["anchor", "positive", "negative_1", "negative_2", "label"]
    rows = list(rows)[: len(training)]
    assert [row["anchor"] for row in rows] == training.columns[0].to_pylist()
    for domain in (0, 1):
        mine = [row for row in rows if row["label"][0] == domain]
        texts = {}
        for row in mine:
            texts |= {row["label"][2]: row["anchor"], row["label"][3]: row["positive"]}
        vectors = dict(zip(texts, model.encode(list(texts.values()), normalize_embeddings=True), strict=True))
        for row in mine:
            _, _, anchor, positive, *negatives = row["label"]
            ends = torch.tensor([anchor, positive])
            free = [paper for paper in texts if not training.known(ends, torch.tensor([paper])).any()]
            nearest = sorted(free, key=lambda paper: -float(vectors[paper] @ vectors[anchor]))[:2]
            assert negatives == nearest
            assert [row["negative_1"], row["negative_2"]] == [texts[paper] for paper in nearest]


def test_too_few_texts_are_named(folder: Pairs, experts_model: Path) -> None:
    model = SentenceTransformer(str(experts_model), device="cpu")
    with pytest.raises(InputError, match="`hard_negatives=40`: crops has"):
        with_hard_negatives(made(folder, model), model, 40)


def test_tasks_keep_their_own_negatives_and_others_are_mined(tmp_path: Path, task_experts: Path) -> None:
    model = SentenceTransformer(str(task_experts), device="cpu")
    training = made(make_tasks_folder(tmp_path / "tasks", negatives=True), model)
    mined = with_hard_negatives(training, model, 1)
    retrieval = training.places[:, 0] == 0
    assert (mined.numbers[retrieval] == training.numbers[retrieval]).all()
    negatives = zip(mined.columns[0].to_pylist(), mined.columns[2].to_pylist(), retrieval, strict=True)
    assert all(
        negative.split(": ")[0] == anchor.split(": ")[0] for anchor, negative, own in negatives if not own
    )
    again = with_hard_negatives(mined, model, 1)  # all have one
    assert (again.numbers == mined.numbers).all()
    # No negative is of its anchor's group.
    assert (mined.numbers[~retrieval, 0] != mined.numbers[~retrieval, 2]).all()
