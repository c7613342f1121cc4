"""Tasks become one table of pairs: instructions in front, groups in the labels; what cannot be is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from sentence_transformers import SentenceTransformer

from helpers.small_training_tasks import DATASETS, INSTRUCTIONS, SIZES, NoRoutes, make_tasks_folder
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.tasks.compile import compile_tasks
from sentence_experts.tasks.dataset import Tasks
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.data import NONE, TrainedRoute, open_data
from sentence_experts.training.trainable import find_routes
from sentence_experts.training.training_set import PairCollator, TrainingSet

WEIGHTS = {task: {"weight": weight} for task, weight in (("retrieval", 3.0), ("classification", 1.0))}


def settings(folder: Tasks, model: object = None, **options: object) -> tuple[TrainedRoute, ...]:
    return find_routes(open_data(folder), TrainConfig.of(None, **options), model or NoRoutes())


def training(folder: Tasks, **options: object) -> TrainingSet:
    return TrainingSet.of(open_data(folder), settings(folder, **options), TrainConfig.of(None, **options))


def rows_of(made: TrainingSet) -> list[dict]:
    return list(made.dataset())[: len(made)]


@pytest.fixture(scope="module")
def dense(task_experts: Path) -> SentenceTransformer:
    return SentenceTransformer(str(task_experts.with_name(f"{task_experts.name}-base")), device="cpu")


@pytest.fixture(scope="module")
def experts(task_experts: Path) -> SentenceTransformer:
    return SentenceTransformer(str(task_experts), device="cpu")


def test_each_side_is_behind_its_instruction(tasks: Tasks) -> None:
    made = training(tasks)
    assert len(made) == SIZES["train"] * sum(map(len, DATASETS.values()))
    numbers = {task.name: number for number, task in enumerate(made.routes)}
    for row in rows_of(made):
        name = made.routes[row["label"][0]].name
        first, second = ("query", "document") if name == "retrieval" else (name, name)
        assert row["anchor"].startswith(INSTRUCTIONS[first])
        assert row["positive"].startswith(INSTRUCTIONS[second])
    plain = training(tasks, instructions=False)
    raw = [
        tasks.pairs(task, name, "train")["anchor"].to_pylist() for task in numbers for name in DATASETS[task]
    ]
    assert plain.columns[0].to_pylist() == [text for part in raw for text in part]


def test_groups_are_those_of_a_dataset(tasks: Tasks) -> None:
    made = training(tasks)
    labels = np.column_stack([made.places[:, :2], made.numbers])
    pairs, known = torch.from_numpy(labels[:, 2:]), made.known
    assert known(pairs[:, 0], pairs[:, 1]).all()
    anchors, positives = (torch.from_numpy(labels[:, place]) for place in (2, 3))
    masked = made.known(anchors[:, None], positives).numpy()
    datasets = [labels[:, 1] == dataset for dataset in np.unique(labels[:, 1])]
    # The same label, or text, of two datasets is not the same.
    assert masked.sum() == sum(masked[np.ix_(own, own)].sum() for own in datasets)
    # Each retrieval pair is alone; of eight labels, each is that of an eighth of the pairs.
    own = [masked[np.ix_(rows, rows)] for rows in datasets]
    assert [each.sum() for each in own[:2]] == [SIZES["train"]] * 2
    assert all(len(np.unique(each, axis=0)) == 8 for each in own[2:])
    texts = dict(zip(made.columns[0].to_pylist(), labels[:, 2].tolist(), strict=True))
    assert len(texts) == len(labels)


def test_what_another_dataset_of_the_task_links_is_no_negative() -> None:
    rows = {"one": [("a", "b"), ("c", "d")], "two": [("a", "d"), ("e", "f")]}
    frames = {
        name: pd.DataFrame(pairs, columns=["anchor", "positive"]).assign(split="train")
        for name, pairs in rows.items()
    }
    frames["one"].loc[2] = ("x", "y", "validation")
    made = training(compile_tasks({"search": {"kind": "retrieval", "datasets": frames}}), instructions=False)
    asked, found = (made.columns[side].to_pylist() for side in (0, 1))
    numbers = torch.from_numpy(made.numbers)
    masked = made.known(numbers[:, 0, None], numbers[None, :, 1])
    known = {*rows["one"], *rows["two"]}
    assert masked.tolist() == [[(one, other) in known for other in found] for one in asked]


def test_texts_that_differ_in_case_alone_are_one() -> None:
    rows = [
        ("What is it?", "A disease"),
        ("what is it", "a fever"),
        ("Is it bad?", "Yes."),
        ("Is it rare?", "yes"),
    ]
    frame = pd.DataFrame([*rows, ("x", "y")], columns=["anchor", "positive"])
    frame["split"] = ["train"] * len(rows) + ["validation"]
    made = training(
        compile_tasks({"search": {"kind": "retrieval", "datasets": {"some": frame}}}), instructions=False
    )
    asked, found = (made.columns[side].to_pylist() for side in (0, 1))
    numbers = torch.from_numpy(made.numbers)
    masked = made.known(numbers[:, 0, None], numbers[None, :, 1])
    known = {(one.strip("?").lower(), other.strip(".").lower()) for one, other in rows}
    assert masked.tolist() == [
        [(one.strip("?").lower(), other.strip(".").lower()) in known for other in found] for one in asked
    ]


def test_a_text_of_two_labels_is_no_negative_of_either() -> None:
    rows = [("first", "A"), ("second", "A"), ("both", "A"), ("both", "B"), ("third", "B"), ("fourth", "B")]
    frame = pd.DataFrame([*rows, ("x", "A"), ("y", "A")], columns=["text", "label"])
    frame["split"] = ["train"] * len(rows) + ["validation"] * 2
    tasks = compile_tasks({"groups": {"kind": "clustering", "datasets": {"some": frame}}})
    made = training(tasks, instructions=False)
    asked, found = (made.columns[side].to_pylist() for side in (0, 1))
    labels: dict[str, set[str]] = {}
    for text, label in rows:
        labels.setdefault(text, set()).add(label)
    numbers = torch.from_numpy(made.numbers)
    masked = made.known(numbers[:, 0, None], numbers[None, :, 1])
    assert masked.tolist() == [[bool(labels[one] & labels[other]) for other in found] for one in asked]


def test_only_pairs_are_known_positives_where_texts_are_in_several() -> None:
    chain = [(f"question {n}", f"answer {n + side}") for n in range(9) for side in (0, 1)]
    frame = pd.DataFrame([*chain, ("a question", "an answer")], columns=["anchor", "positive"])
    frame["split"] = ["train"] * len(chain) + ["validation"]
    tasks = compile_tasks({"search": {"kind": "retrieval", "datasets": {"chain": frame}}})
    made = training(tasks, instructions=False)
    asked, found = (made.columns[side].to_pylist() for side in (0, 1))
    assert {*zip(asked, found, strict=True)} == {*chain}
    numbers = torch.from_numpy(made.numbers)
    masked = made.known(numbers[:, 0, None], numbers[None, :, 1])
    assert masked.tolist() == [[(one, other) in chain for other in found] for one in asked]


def test_mined_negative_has_the_group_of_its_text(tmp_path: Path) -> None:
    folder = make_tasks_folder(tmp_path / "tasks", negatives=True)
    made = training(folder)
    rows = [row for row in rows_of(made) if row["negative"] is not None]
    assert {made.routes[row["label"][0]].name for row in rows} == {"retrieval"}
    group = {row["positive"]: row["label"][3] for row in rows}
    assert [row["label"][4] for row in rows] == [group[row["negative"]] for row in rows]
    collate = PairCollator(preprocess_fn=lambda texts, **_: {"input_ids": texts})
    assert collate(rows[:2])["label"].shape == (2, 5)
    batch = collate([row for row in rows_of(made) if row["negative"] is None][:2])
    assert batch["label"].shape == (2, 4)
    assert "negative_input_ids" not in batch


def with_negatives(tmp_path: Path, negative_of: Callable[[str, int, str], str | None]) -> Tasks:
    """The tasks with other negatives of retrieval, by dataset, row and the negative that is there."""
    whole = make_tasks_folder(tmp_path / "tasks", negatives=True)
    tables = {}
    for task, names in DATASETS.items():
        for name in names:
            table = whole.pairs(task, name, "train")
            if task == "retrieval":
                rows = table.to_pylist()
                for number, row in enumerate(rows):
                    row["negative"] = negative_of(name, number, row["negative"])
                table = pa.Table.from_pylist(rows, table.schema)
            tables[f"{task}/{name}/train.parquet"] = table
    parts = {key: whole.manifest[key] for key in ("hierarchy", "counts")}
    return Tasks.in_memory(tables, parts).save(tmp_path / "changed")


def test_one_pair_without_a_negative_leaves_those_of_the_others(tmp_path: Path) -> None:
    lacks = with_negatives(tmp_path, lambda name, row, text: None if (name, row) == ("brains", 3) else text)
    rows = [row for row in rows_of(training(lacks)) if row["label"][0] == 0]
    lacking = [row for row in rows if row["label"][4] == NONE]
    assert len(lacking) == 1
    assert lacking[0]["negative"] == lacking[0]["positive"]
    assert all(row["negative"] is not None for row in rows)
    collate = PairCollator(preprocess_fn=lambda texts, **_: {"input_ids": texts})
    assert collate([lacking[0], *rows[:2]])["label"].shape == (3, 5)


def test_negatives_that_are_no_other_text_have_numbers_to_themselves(tmp_path: Path) -> None:
    made = training(with_negatives(tmp_path, lambda name, row, text: f"unlike {row}"))
    own = made.numbers[made.numbers[:, 2] != -1]
    assert len(np.unique(own[:, 2])) == len(own) == 2 * SIZES["train"]
    assert not set(own[:, 2]) & set(made.numbers[:, :2].ravel())


def test_the_static_curriculum_and_overrides(tasks: Tasks) -> None:
    def of(**options: object) -> dict[str, tuple[str, float]]:
        return {task.name: (task.batches, task.temperature) for task in settings(tasks, **options)}

    aware = of()
    assert aware == {
        "retrieval": ("homogeneous", 0.03),
        "classification": ("heterogeneous", 0.03),
        "clustering": ("heterogeneous", 0.06),
    }
    assert set(of(curriculum="static").values()) == {("heterogeneous", 0.03)}
    assert set(of(batches="homogeneous", temperature=0.1).values()) == {("homogeneous", 0.1)}


def test_weights_are_for_all_tasks_or_none(tasks: Tasks, tmp_path: Path) -> None:
    assert [task.weight for task in settings(tasks)] == [None] * 3
    some = make_tasks_folder(tmp_path / "some", fields=WEIGHTS)
    with pytest.raises(UsageError, match="no weight for clustering"):
        settings(some)
    all_of_them = make_tasks_folder(tmp_path / "all", fields={**WEIGHTS, "clustering": {"weight": 2.0}})
    assert [task.weight for task in settings(all_of_them)] == [3.0, 1.0, 2.0]


def test_route_missing_in_the_model_is_named(
    tasks: Tasks, experts: SentenceTransformer, dense: SentenceTransformer, tmp_path: Path
) -> None:
    assert len(settings(tasks, experts)) == 3
    other = make_tasks_folder(
        tmp_path / "other", fields={"clustering": {"instructions": {"clustering": "group: "}}}
    )
    with pytest.raises(
        RouteError, match="no route 'clustering' with instruction 'group: ', it has 'clustering: '"
    ):
        settings(other, experts)
    new = make_tasks_folder(tmp_path / "new", fields={"clustering": {"instructions": {"topics": "topics: "}}})
    with pytest.raises(RouteError, match=r"route 'topics'.* has query, document, classification"):
        settings(new, experts)
    assert settings(new, experts, routes="retrieval")
    # A dense model takes any instruction, and none.
    assert settings(new, dense)
    assert settings(new, dense, instructions=False)
    with pytest.raises(RouteError, match="`instructions=False`"):
        settings(tasks, experts, instructions=False)


def test_the_tasks_of_a_run_are_chosen(tasks: Tasks, experts: SentenceTransformer, tmp_path: Path) -> None:
    def names(**options: object) -> list[str]:
        return [task.name for task in settings(tasks, experts, **options)]

    assert names(routes="clustering, retrieval") == ["retrieval", "clustering"]
    assert names(only_expert="document") == ["retrieval"]
    with pytest.raises(UsageError, match="no domain or task summaries to train on; there are retrieval"):
        names(routes=["summaries"])
    with pytest.raises(UsageError, match="none of the routes clustering leads to it"):
        names(routes=["clustering"], only_expert="query")


def test_a_task_without_training_pairs_is_named(tmp_path: Path) -> None:
    empty = make_tasks_folder(tmp_path / "tasks", sizes={"train": 0, "validation": 8, "test": 8})
    with pytest.raises(InputError, match="task retrieval has no training pairs"):
        training(empty)
