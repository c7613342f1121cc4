"""Task datasets as they are written: pairs, texts, splits that are kept apart, what is set aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.small_tasks import compiled, moods, questions, task_content, write_rows, write_task_file
from sentence_experts.errors import InputError, UsageError
from sentence_experts.tasks.compile import compile_tasks
from sentence_experts.tasks.dataset import PAIRS_SCHEMA, Tasks
from sentence_experts.tasks.rows import text_key
from sentence_experts.tasks.split import SPLITS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Tasks:
    path = tmp_path_factory.mktemp("tasks")
    return compiled(path, task_content(path))


def _texts(folder: Tasks, split: str) -> set[str]:
    keys: set[str] = set()
    for task, datasets in folder.counts.items():
        for dataset in datasets:
            pairs = folder.pairs(task, dataset, split)
            keys |= {text_key(text) for side in ("anchor", "positive") for text in pairs[side].to_pylist()}
    return keys


def test_pairs_of_every_kind(folder: Tasks) -> None:
    for task, datasets in folder.counts.items():
        for dataset, splits in datasets.items():
            for split, count in splits.items():
                table = folder.pairs(task, dataset, split)
                assert table.schema.equals(PAIRS_SCHEMA)
                assert table.num_rows == count
    assert list(folder.counts["sts"]["small"]) == ["test"]
    assert folder.pairs("sts", "small", "test")["score"].to_pylist() == [n / 2 for n in range(9)]
    assert folder.pairs("sts", "small", "train").num_rows == 0


def test_no_text_in_two_sets(folder: Tasks) -> None:
    train, validation, test = (_texts(folder, split) for split in SPLITS)
    assert train
    assert validation
    assert test
    assert not train & validation
    assert not (train | validation) & test


def test_pairs_that_share_a_text_are_of_one_set(folder: Tasks) -> None:
    tables = {split: folder.pairs("retrieval", "plants", split) for split in SPLITS}
    rows = [(row["positive"], split) for split, table in tables.items() for row in table.to_pylist()]
    assert len(rows) == 80
    of_passage: dict[str, set[str]] = {}
    for positive, split in rows:
        of_passage.setdefault(positive, set()).add(split)
    assert all(len(places) == 1 for places in of_passage.values())


def test_given_splits_are_kept_and_validation_is_taken_from_training(folder: Tasks) -> None:
    texts = {split: folder.texts("classification", "moods", split) for split in SPLITS}
    assert texts["test"]["text"].to_pylist() == [row["text"] for row in moods(15, start=60)]
    assert texts["train"].num_rows + texts["validation"].num_rows == 60
    assert 0.1 < texts["validation"].num_rows / 60 < 0.45  # 0.25 asked for


def test_threads_stay_together_and_pairs_have_one_label(folder: Tasks) -> None:
    where: dict[str, set[str]] = {}
    for task, dataset in (("classification", "moods"), ("clustering", "posts")):
        for split in SPLITS:
            rows = folder.texts(task, dataset, split).to_pylist()
            labels = {row["text"]: row["label"] for row in rows}
            for row in folder.pairs(task, dataset, split).to_pylist():
                assert labels[row["anchor"]] == labels[row["positive"]] == row["group"]
                assert row["anchor"] != row["positive"]
            for text in labels if dataset == "posts" else ():
                where.setdefault(text.split("thread ")[1].split()[0], set()).add(split)
    assert len(where) == 40
    assert all(len(splits) == 1 for splits in where.values())


def test_given_splits_do_not_tear_a_group_apart(tmp_path: Path) -> None:
    rows = [row | {"thread": f"Re: thread {number // 3}"} for number, row in enumerate(moods(60))]
    write_rows(tmp_path / "train.jsonl", rows[:50])  # the last thread goes on in the test
    write_rows(tmp_path / "test.jsonl", rows[50:])
    files = {"train": "train.jsonl", "test": "test.jsonl"}
    mood = {"kind": "classification", "datasets": {"moods": {"files": files, "group": "thread"}}}
    folder = compiled(tmp_path, {"mood": mood})
    thread_of = {row["text"]: row["thread"] for row in rows}
    threads = [
        {thread_of[text] for text in folder.texts("mood", "moods", split)["text"].to_pylist()}
        for split in SPLITS
    ]
    assert all(threads)
    assert sum(map(len, threads)) == len(set().union(*threads))
    assert folder.manifest["datasets"]["mood"]["moods"]["removed"]["train_seen_in_evaluation"] == 2


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    tasks = task_content(tmp_path)

    def bytes_of(**settings: Any) -> dict[str, bytes]:
        out = compiled(tmp_path, tasks, **settings)
        return {file.name: file.read_bytes() for file in sorted(out.path.rglob("*.*"))}

    assert bytes_of(seed=3) == bytes_of(seed=3)
    assert bytes_of(seed=3)["train.parquet"] != bytes_of(seed=4)["train.parquet"]


def test_a_text_that_one_dataset_tests_is_trained_on_by_none(tmp_path: Path) -> None:
    tasks = task_content(tmp_path)
    tested = moods(15, start=60)[0]["text"]
    rows = questions(80)
    rows[0]["passage"] = tested.upper() + "!"
    for row in rows[2:]:
        row["bad"] = tested
    write_rows(tmp_path / "questions.jsonl.gz", rows)
    tasks["retrieval"]["datasets"]["plants"]["negative"] = "bad"
    write_rows(tmp_path / "train.jsonl", [*moods(60), {"text": tested, "label": "glad"}])
    folder = compiled(tmp_path, tasks)
    for split in ("train", "validation"):
        assert text_key(tested) not in _texts(folder, split)
        assert set(folder.pairs("retrieval", "plants", split)["negative"].to_pylist()) == {None}
    removed = folder.manifest["datasets"]
    assert sum(removed["classification"]["moods"]["removed"].values()) == 1
    assert removed["retrieval"]["plants"]["removed"]["negatives_seen_in_evaluation"] > 25


def test_routes_in_another_order_are_other_tasks(tmp_path: Path) -> None:
    """The first route is that of queries."""
    tasks, out = {"retrieval": task_content(tmp_path)["retrieval"]}, tmp_path / "out"
    routes = {"document": "search document: ", "query": "search query: "}
    tasks["retrieval"]["instructions"] = routes
    first = compiled(tmp_path, tasks)
    file = write_task_file(tmp_path, tasks)
    shares = {"fractions": [0.6, 0.2, 0.2]}
    assert compile_tasks(file, out=out, **shares).fingerprint() == first.fingerprint()
    tasks["retrieval"]["instructions"] = dict(reversed(routes.items()))
    write_task_file(tmp_path, tasks)
    with pytest.raises(UsageError, match="another order of tasks or routes; give another `out`"):
        compile_tasks(file, out=out, **shares)
    mended = compile_tasks(file, out=out, overwrite=True, **shares).task_file.tasks["retrieval"]
    assert (mended.anchor_route, mended.positive_route) == ("query", "document")


def test_a_smaller_sample_is_part_of_a_larger_one(tmp_path: Path) -> None:
    tasks = task_content(tmp_path)
    few = compiled(tmp_path, tasks, max_train=8, max_eval=3)
    first = few.pairs("retrieval", "plants", "train")["anchor_id"].to_pylist()
    assert len(first) == 8
    assert few.pairs("sts", "small", "test").num_rows == 3
    assert few.texts("clustering", "posts", "train").num_rows == 8
    more = compiled(tmp_path, tasks, max_train=12)
    assert set(first) < set(more.pairs("retrieval", "plants", "train")["anchor_id"].to_pylist())


def test_bad_records_are_set_aside_with_their_place(tmp_path: Path) -> None:
    tasks = task_content(tmp_path)
    rows = [
        *moods(60),
        {"text": " ", "label": "glad"},
        {"text": "x", "label": None},
        {"text": ["y"], "label": "sad"},
    ]
    write_rows(tmp_path / "train.jsonl", rows)
    with open(tmp_path / "train.jsonl", "a") as file:
        file.write("{broken\n")
    folder = compiled(tmp_path, tasks)
    aside = [json.loads(line) for line in (folder.path / "set_aside.jsonl").read_text().splitlines()]
    assert [(one["where"], one["field"]) for one in aside] == [
        ("train.jsonl row 61", "text"),
        ("train.jsonl row 62", "label"),
        ("train.jsonl row 63", "text"),
        ("train.jsonl row 64", ""),
    ]
    assert folder.manifest["datasets"]["classification"]["moods"]["set_aside"]["text: empty text"] == 1


def test_a_class_of_one_text_is_named(tmp_path: Path) -> None:
    tasks = task_content(tmp_path)
    write_rows(tmp_path / "test.jsonl", [*moods(15, start=60), {"text": "Alone.", "label": "lonely"}])
    folder = compiled(tmp_path, tasks)
    entry = folder.manifest["datasets"]["classification"]["moods"]
    assert entry["classes_of_one_text"]["test"] == ["lonely"]
    assert entry["classes_not_in_train"] == ["lonely"]
    assert folder.counts["classification"]["moods"]["test"] == 15


def _missing_column(folder: Path, tasks: dict[str, Any]) -> None:
    tasks["classification"]["datasets"]["moods"] |= {"label": "mood"}


def _missing_file(folder: Path, tasks: dict[str, Any]) -> None:
    (folder / "posts.csv").unlink()


def _unset_variable(folder: Path, tasks: dict[str, Any]) -> None:
    tasks["sts"]["datasets"]["small"]["file"] = "${NO_SUCH_FOLDER}/x.jsonl"


def _nothing_usable(folder: Path, tasks: dict[str, Any]) -> None:
    write_rows(folder / "sts.jsonl", [{"a": "x", "b": "y", "score": "high"}])


def _too_few(folder: Path, tasks: dict[str, Any]) -> None:
    write_rows(folder / "questions.jsonl.gz", questions(2))


def _no_pair(folder: Path, tasks: dict[str, Any]) -> None:
    write_rows(folder / "train.jsonl", [{"text": f"Only {n}", "label": f"l{n}"} for n in range(20)])


def _no_corpus(folder: Path, tasks: dict[str, Any]) -> None:
    tasks["retrieval"]["datasets"]["plants"] = {"corpus": ".", "anchor": "title", "positive": "abstract"}


MISTAKES = {
    _missing_column: r"moods: .*train\.jsonl lacks the column mood; it has: text, label",
    _missing_file: r"clustering\.datasets\.posts: .*posts\.csv: no such file",
    _unset_variable: r"sts\.datasets\.small: .*the environment variable NO_SUCH_FOLDER is not set",
    _nothing_usable: r"small: no row can be used; 1 were set aside, the first since: sts\.jsonl row 1: score",
    _too_few: r"plants: the \w+ split got none of the 2 rows; give it a larger share with `fractions`",
    _no_pair: r"moods: no class has two training texts",
    _no_corpus: r"plants: .* holds no corpus",
}


@pytest.mark.parametrize("spoil", MISTAKES, ids=lambda spoil: spoil.__name__)
def test_errors_are_one_line(tmp_path: Path, spoil: Any) -> None:
    tasks = task_content(tmp_path)
    spoil(tmp_path, tasks)
    with pytest.raises(InputError, match=MISTAKES[spoil]) as error:
        compiled(tmp_path, tasks)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_missing_parts_of_a_folder_are_errors(folder: Tasks, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no task 'x'; there are retrieval, classification"):
        folder.pairs("x", "small", "test")
    with pytest.raises(UsageError, match="no dataset 'x'; there are small"):
        folder.pairs("sts", "x", "test")
    with pytest.raises(UsageError, match="no split 'dev'"):
        folder.pairs("sts", "small", "dev")
    with pytest.raises(UsageError, match="has pairs, no labelled texts"):
        folder.texts("sts", "small", "test")
    with pytest.raises(InputError, match="no tasks here"):
        Tasks.open(tmp_path)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    tasks = task_content(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds other files \(mine\.txt\)"):
        compile_tasks(tasks, out=tmp_path / "out")
    compiled(tmp_path, tasks)
    assert (tmp_path / "out" / "mine.txt").exists()
