"""Mined negatives are the nearest texts of the domain that are linked to neither end of the pair."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import torch
from sentence_transformers import SentenceTransformer

from helpers.samples import make_pairs_folder
from sentence_experts.errors import InputError
from sentence_experts.pairs.dataset import PairsFolder
from sentence_experts.storage import write_parquet
from sentence_experts.training.data import TrainingPairs
from sentence_experts.training.hard_negatives import with_hard_negatives


@pytest.fixture
def folder(tmp_path: Path) -> PairsFolder:
    folder = PairsFolder.open(make_pairs_folder(tmp_path / "pairs", pairs=8))
    train = folder.split("train").to_pylist()
    # The pairs themselves, and a link from each first anchor of a domain to another pair's positive.
    links = [{"left_id": row["anchor_id"], "right_id": row["positive_id"]} for row in train]
    links += [{"left_id": train[n]["anchor_id"], "right_id": train[n + 1]["positive_id"]} for n in (0, 8)]
    write_parquet(folder.path / "known_links.parquet", pa.Table.from_pylist(links))
    return folder


def test_negatives_are_the_nearest_texts_that_are_not_linked(
    folder: PairsFolder, tiny_experts: Path, tmp_path: Path
) -> None:
    model = SentenceTransformer(str(tiny_experts), device="cpu")
    training = TrainingPairs.of(folder, folder.domains, model)
    mined = with_hard_negatives(training, model, 2, tmp_path / "kept.parquet")
    for domain, rows in mined.pairs.items():
        assert rows.column_names == ["anchor", "positive", "negative_1", "negative_2", "label"]
        before = training.pairs[domain]
        assert list(rows["anchor"]) == list(before["anchor"])
        texts = {}
        for row in before:
            texts |= {row["label"][1]: row["anchor"], row["label"][2]: row["positive"]}
        vectors = dict(zip(texts, model.encode(list(texts.values()), normalize_embeddings=True), strict=True))
        for row in rows:
            _, anchor, positive, *negatives = row["label"]
            ends = torch.tensor([anchor, positive])
            free = [work for work in texts if not training.known(ends, torch.tensor([work])).any()]
            nearest = sorted(free, key=lambda work: -float(vectors[work] @ vectors[anchor]))[:2]
            assert negatives == nearest
            assert [row["negative_1"], row["negative_2"]] == [texts[work] for work in nearest]


def test_what_was_mined_is_kept(folder: PairsFolder, tiny_experts: Path, tmp_path: Path) -> None:
    model = SentenceTransformer(str(tiny_experts), device="cpu")
    training = TrainingPairs.of(folder, folder.domains, model)
    kept = tmp_path / "kept.parquet"
    first = with_hard_negatives(training, model, 1, kept)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight))
    again = with_hard_negatives(training, model, 1, kept)
    assert all(first.pairs[name].to_list() == again.pairs[name].to_list() for name in first.pairs)
    anew = with_hard_negatives(training, model, 1, tmp_path / "other.parquet")
    assert any(first.pairs[name].to_list() != anew.pairs[name].to_list() for name in first.pairs)


def test_too_few_texts_are_named(folder: PairsFolder, tiny_experts: Path, tmp_path: Path) -> None:
    model = SentenceTransformer(str(tiny_experts), device="cpu")
    training = TrainingPairs.of(folder, folder.domains, model)
    with pytest.raises(InputError, match="--hard-negatives 40: crops has"):
        with_hard_negatives(training, model, 40, tmp_path / "kept.parquet")
    assert not (tmp_path / "kept.parquet").exists()
