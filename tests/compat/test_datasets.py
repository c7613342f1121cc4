"""Fails if datasets no longer does what `compat.datasets` relies on."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest
from datasets import Dataset, DatasetDict

from sentence_experts.compat.datasets import dataset_fingerprint, load_splits
from sentence_experts.errors import InputError

SIZES = {"Train": 5, "Dev": 4, "TEST": 3, "train_extra": 2, "heldout": 1}
SAVED = DatasetDict({name: Dataset.from_dict({"n": list(range(size))}) for name, size in SIZES.items()})


def test_fingerprint_changes_with_the_content() -> None:
    dataset = Dataset.from_dict({"text": ["a", "b"]})
    assert dataset_fingerprint(dataset) == dataset_fingerprint(Dataset.from_dict({"text": ["a", "b"]}))
    assert dataset_fingerprint(dataset) != dataset_fingerprint(dataset.select([0]))


def test_splits_of_a_folder_that_was_saved_to_disk_are_its_own(tmp_path: Path) -> None:
    SAVED.save_to_disk(tmp_path / "all")
    SAVED["Dev"].save_to_disk(tmp_path / "one")
    assert load_splits(str(tmp_path / "all"), None).num_rows == SIZES
    assert load_splits(str(tmp_path / "one"), None).num_rows == {"train": 4}
    with pytest.raises(InputError, match="has no subset 'a'"):
        load_splits(str(tmp_path / "all"), "a")


def write_tables(folder: Path, *names: str) -> str:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"text\n{name}\n")
    return str(folder)


OTHERS = [
    *("Dev", "Test", "Data_Valid", "Dev/rows", "TestSet", "testdata", "STSTest", "heldout", "Eval"),
    *("train/Test", "train/sts_test", "train/test_en", "train/sts.test", "train/test-00000-of-00001-ab12"),
]


@pytest.mark.parametrize("other", OTHERS)
def test_files_of_other_splits_are_not_read_as_rows_of_train(tmp_path: Path, other: str) -> None:
    train = "train/train_en.csv" if other.startswith("train") else "Train.csv"
    folder = write_tables(tmp_path, train, f"{other}.csv")
    with pytest.raises(InputError, match=rf"{other}\.csv would be a part of the split train: call"):
        load_splits(folder, None)


@pytest.mark.parametrize(
    "names",
    [
        ("train.csv", "train_dev.csv", "test.csv"),
        ("questions_train.csv", "train_answers_test.csv"),
        ("train_test_split/train.csv", "train_test_split/test.csv"),
        ("train-data/train/a.csv", "train-data/train/b.csv"),
    ],
)
def test_no_file_is_read_twice(tmp_path: Path, names: tuple[str, ...]) -> None:
    folder = write_tables(tmp_path, *names)
    with pytest.raises(InputError, match=r"would be (read twice, for|a part of)"):
        load_splits(folder, None)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["data/train-00000-of-00001", "data/dev-00000-of-00002", "data/dev-00001-of-00002"], (1, 2)),
        (["data/train_sft-00000-of-00002", "data/train_sft-00001-of-00002"], (2,)),
        (["data/validation_matched-00000-of-00002", "data/validation_matched-00001-of-00002"], (2,)),
        (["train_data/part1", "train_data/part2", "dev-clean/rows"], (2, 1)),
        (["pretraining", "contest", "latest", "development_economics"], (4,)),
        (["train", "val", "testing"], (1, 1, 1)),
        (["rows", "more"], (2,)),
    ],
)
def test_usual_folders_are_read(tmp_path: Path, names: list[str], expected: tuple[int, ...]) -> None:
    folder = write_tables(tmp_path, *(f"{name}.csv" for name in names))
    assert tuple(load_splits(folder, None).num_rows.values()) == expected


def test_the_files_of_each_split_and_those_that_are_not_read_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sentence_experts")
    names = ("train-0.csv", "train-1.csv", "testing.csv", "other.csv", "more.JSONL", "x/TEST.parquet")
    folder = write_tables(tmp_path / "folder", *names, ".hidden/a.csv", "LICENSE.txt", "dataset_infos.json")
    (tmp_path / "folder" / "dataset_infos.json").write_text("{}")
    (tmp_path / "link").symlink_to(folder)
    for path in (folder, str(tmp_path / "link")):
        caplog.clear()
        assert load_splits(path, None).num_rows == {"train": 2, "test": 1}
        assert [record.message for record in caplog.records] == [
            f"{path}: the files of each split: train (2): train-0.csv, train-1.csv; test (1): testing.csv",
            f"{path}: not read: more.JSONL, other.csv, x/TEST.parquet",
        ]


def test_files_that_the_card_of_a_folder_names_are_as_it_says(tmp_path: Path) -> None:
    folder = write_tables(tmp_path, "rows.csv", "dev.csv")
    files = "- split: train\n    path: rows.csv\n  - split: test\n    path: dev.csv"
    card = f"---\nconfigs:\n- config_name: default\n  data_files:\n  {files}\n---\n"
    (tmp_path / "README.md").write_text(card)
    assert load_splits(folder, None).num_rows == {"train": 1, "test": 1}
    write_tables(tmp_path, "b/TestSet.csv", "b/TrainSet.csv")
    other = "- config_name: b\n  data_dir: b\n---\n"
    (tmp_path / "README.md").write_text(card.removesuffix("---\n") + other)
    with pytest.raises(InputError, match=r"TestSet\.csv would be a part of the split train"):
        load_splits(folder, "b")
    (tmp_path / "README.md").write_text(card.replace("rows.csv", "'*.csv'"))
    with pytest.raises(InputError, match=r"README\.md names dev\.csv for train and test"):
        load_splits(folder, None)
    more = "  - split: train_dev\n    path: more.csv\n---\n"
    write_tables(tmp_path, "more.csv")
    (tmp_path / "README.md").write_text(card.removesuffix("---\n") + more)
    assert load_splits(folder, None).num_rows == {"train": 1, "test": 1, "train_dev": 1}
    full = "- split: full\n    path: rows.csv\n  - split: train"
    (tmp_path / "README.md").write_text(card.replace("- split: train", full).replace("dev.csv", "rows.csv"))
    with pytest.raises(InputError, match=r"README\.md names rows\.csv for full and train and test"):
        load_splits(folder, None)
    (tmp_path / "README.md").write_text(f"---\nlicense: mit\n---\nThe data_files: of {folder}\n")
    with pytest.raises(InputError, match=r"dev\.csv would be a part|rows\.csv"):
        load_splits(write_tables(tmp_path, "train/dev.csv"), None)


def test_tables_of_a_folder_are_read_as_single_files_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tables, rows, known = tmp_path / "tables", tmp_path / "rows", list[Dataset]()
    for first in "a", "A":  # files of one name and time
        files = {
            tables / "train.csv": f"text,domain,label\n{first},007,1.10\nb,7,1.1\n",
            tables / "test.csv": 'text,domain,label\nc,"x,y\nd,e,f\ng,h",i\n',
            rows / "train.jsonl": json.dumps({"text": first}),
        }
        for file, content in files.items():
            file.parent.mkdir(exist_ok=True)
            file.write_text(content)
            os.utime(file, (1, 1))
        loaded = load_splits(str(tables), None)
        assert loaded["train"].to_list() == [
            {"text": first, "domain": "007", "label": "1.10"},
            {"text": "b", "domain": "7", "label": "1.1"},
        ]
        assert loaded["test"].num_rows == 1
        known.append(load_splits(str(rows), None)["train"])
        assert known[-1]["text"][0] == first
    assert dataset_fingerprint(known[0]) != dataset_fingerprint(known[1])
    assert "test.csv: row 1 may be several" in caplog.text
    card = "---\nconfigs:\n- config_name: default\n  header: null\n  data_files: train.csv\n---\n"
    (tables / "README.md").write_text(card)
    assert load_splits(str(tables), None)["train"].num_rows == 3  # as the card says
