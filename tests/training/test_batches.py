"""Which pairs meet: one task a batch, its datasets apart or together, every pair once, resumed alike."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from accelerate.data_loader import BatchSamplerShard, skip_first_batches
from torch.utils.data import DataLoader

from helpers.small_training_tasks import NoRoutes, make_tasks_folder
from sentence_experts.errors import InputError
from sentence_experts.tasks.dataset import PAIRS_SCHEMA, Tasks
from sentence_experts.training.batches import RouteBatches
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.data import open_data
from sentence_experts.training.trainable import find_routes
from sentence_experts.training.training_set import TrainingSet


def made(folder: Tasks, **options: object) -> TrainingSet:
    config, data = TrainConfig.of(None, **options), open_data(folder)
    return TrainingSet.of(data, find_routes(data, config, NoRoutes()), config)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> TrainingSet:
    sizes = {"train": 96, "validation": 8, "test": 8}
    return made(make_tasks_folder(tmp_path_factory.mktemp("large") / "tasks", sizes=sizes))


def first(batches: RouteBatches, count: int) -> list[list[int]]:
    batches.steps = count
    return list(batches)


def of_labels(labels: list[str], tmp_path: Path, texts: int = 10**6) -> Tasks:
    """One clustering dataset; pair number i has its own texts, or one of only so many."""
    rows = [
        {"anchor_id": "a", "positive_id": "b", "group": label, "negative": None, "score": None}
        | {"anchor": f"anchor {number % texts}", "positive": f"positive {number}"}
        for number, label in enumerate(labels)
    ]
    tasks = {"clustering": {"kind": "clustering", "datasets": {"one": {"file": "x"}}}}
    table = pa.Table.from_pylist(rows, PAIRS_SCHEMA)
    manifest = {"hierarchy": {"tasks": tasks}, "counts": {}}
    return Tasks.in_memory({"clustering/one/train.parquet": table}, manifest).save(tmp_path / "labels")


def test_a_batch_is_of_one_task_and_where_homogeneous_of_one_dataset(large: TrainingSet) -> None:
    places = large.places
    datasets: dict[str, set[int]] = {}
    for batch in first(RouteBatches(large, 8), 60):
        (task,) = np.unique(places[batch, 0])
        datasets.setdefault(large.routes[task].name, set()).add(len(np.unique(places[batch, 1])))
    assert datasets["retrieval"] == {1}
    assert max(datasets["clustering"]) == 2


def test_no_text_is_twice_in_a_batch(tmp_path: Path) -> None:
    tasks = made(of_labels(["x", "y"] * 48, tmp_path, texts=12))
    batches = first(RouteBatches(tasks, 8), 8)
    for batch in batches:
        texts = tasks.texts[batch].ravel()
        assert len(set(texts)) == len(texts) == 16
    assert len({row for batch in batches for row in batch}) == 64


def test_pairs_that_fit_into_no_batch_and_routes_without_one_are_told(large, caplog) -> None:
    batches = RouteBatches(large, 8)
    batches.groups_in_a_pass()
    assert not caplog.records
    batches.steps = 60
    assert not batches.list_idle()
    batches.steps = 1
    assert len(batches.list_idle()) == 2
    texts = np.where(np.arange(len(large))[:, None] % 2, 0, large.texts)  # one text is in half of the pairs
    used = 8 * RouteBatches(replace(large, texts=texts), 8).groups_in_a_pass()
    assert f"{used} of {len(large)} training pairs fit" in caplog.text


def test_a_pass_has_every_pair_once(large: TrainingSet) -> None:
    batches = RouteBatches(large, 8)
    count = batches.groups_in_a_pass()
    assert count == len(large) // 8
    for start in (0, count):
        rows = [row for batch in first(batches, 2 * count)[start : start + count] for row in batch]
        assert sorted(rows) == list(range(len(large)))


def test_tasks_are_sampled_in_proportion_throughout_a_pass(large: TrainingSet) -> None:
    batches = RouteBatches(large, 2)
    drawn = [large.places[batch[0], 0] for batch in first(batches, batches.groups_in_a_pass())]
    for half in (drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :]):
        shares = np.bincount(half, minlength=3) / len(half)
        assert shares == pytest.approx([0.4, 0.2, 0.4], abs=0.09)


def test_weights_are_the_chances_of_the_tasks(tmp_path: Path) -> None:
    weights = {"retrieval": 1.0, "classification": 3.0, "clustering": 1.0}
    fields = {name: {"weight": weight} for name, weight in weights.items()}
    tasks = made(make_tasks_folder(tmp_path / "tasks", fields=fields))
    batches = first(RouteBatches(tasks, 8), 300)
    shares = np.bincount([tasks.places[batch[0], 0] for batch in batches]) / 300
    assert shares == pytest.approx([0.2, 0.6, 0.2], abs=0.08)
    # The small task goes through its pairs again and again, each time through all of them.
    own = [row for batch in batches for row in batch if tasks.places[row, 0] == 1]
    size = int((tasks.places[:, 0] == 1).sum())
    for start in range(0, len(own) - size, size):
        assert len(set(own[start : start + size])) == size


def test_resumed_run_gets_the_remaining_batches(large: TrainingSet) -> None:
    batches = RouteBatches(large, 8, steps=80)
    loader = DataLoader(large.dataset(), batch_sampler=batches, collate_fn=lambda rows: rows)
    whole = [[row["anchor"] for row in batch] for batch in loader]
    rest = [[row["anchor"] for row in batch] for batch in skip_first_batches(loader, 61)]
    assert len(whole) == 80
    assert rest == whole[61:]


def test_processes_share_the_groups_of_one_process(large: TrainingSet) -> None:
    together = RouteBatches(large, 4, processes=2, steps=50)
    shards = [list(BatchSamplerShard(together, 2, rank, even_batches=False)) for rank in (0, 1)]
    assert [len(shard) for shard in shards] == [50, 50]
    alone = first(RouteBatches(large, 8), 50)
    assert [one + other for one, other in zip(*shards, strict=True)] == alone


def test_too_few_pairs_or_texts_are_named(tmp_path: Path, tasks: Tasks) -> None:
    with pytest.raises(
        InputError, match=r"task retrieval, dataset plants: 24 training pairs do not fill.*`batch_size`"
    ):
        RouteBatches(made(tasks), 13, processes=2)
    RouteBatches(made(tasks, batches="heterogeneous"), 12, processes=2)
    same = made(of_labels(["x"] * 48, tmp_path, texts=4))
    with pytest.raises(InputError, match="too few of its texts differ for batches of 8"):
        RouteBatches(same, 8)


def test_text_of_many_pairs_does_not_block_other_pairs(tmp_path: Path) -> None:
    # 90 different pairs, and 30 that share one text: each batch takes at most one of those.
    rows = made(of_labels(["x"] * 120, tmp_path))
    rows.texts[:30, 0] = rows.texts[0, 0]
    batches = RouteBatches(rows, 10)
    seen = Counter(row for batch in first(batches, batches.groups_in_a_pass()) for row in batch)
    assert max(seen.values()) == 1
    assert len(seen) >= 90
    assert list(islice(iter(batches), 3)) == list(islice(iter(batches), 3))
