"""Rows out of corpora and hub datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from helpers.small_tasks import compiled, moods, write_rows
from sentence_experts.corpus.corpus_folder import (
    CITATIONS_SCHEMA,
    FORMAT,
    FORMAT_VERSION,
    PAPERS_SCHEMA,
)
from sentence_experts.errors import InputError
from sentence_experts.storage import write_json, write_parquet
from sentence_experts.tasks.compile import compile_tasks
from sentence_experts.tasks.split import SPLITS

SUBJECTS = (["Cells"], ["Plants"], ["Cells", "Plants"], [])
RETRIEVAL = {"corpus": "corpus", "anchor": "title", "positive": "abstract"}
HEADINGS = {"corpus": "corpus", "text": ["title", "abstract"], "label": "subject"}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """80 papers, one retracted, one without abstract; a fourth of them have two subjects, a fourth none."""
    empty = dict.fromkeys(PAPERS_SCHEMA.names)
    rows = [
        empty
        | {"paper_id": f"doi:{n}", "title": f"Title {n}", "abstract": f"Abstract of paper {n}.",
           "subjects": SUBJECTS[n % 4], "retracted": n == 0}
        for n in range(80)
    ]  # fmt: skip
    rows[1]["abstract"] = None
    folder = tmp_path / "corpus"
    write_parquet(folder / "papers.parquet", pa.Table.from_pylist(rows, PAPERS_SCHEMA))
    write_parquet(folder / "citations.parquet", pa.Table.from_pylist([], CITATIONS_SCHEMA))
    write_json(folder / "manifest.json", {"format": FORMAT, "format_version": FORMAT_VERSION})
    return tmp_path


def test_titles_and_abstracts_of_a_corpus(corpus: Path) -> None:
    folder = compiled(corpus, {"retrieval": {"kind": "retrieval", "datasets": {"papers": RETRIEVAL}}})
    pairs = [row for split in SPLITS for row in folder.pairs("retrieval", "papers", split).to_pylist()]
    assert len(pairs) == 78
    assert all(row["positive"] == f"Abstract of paper {row['anchor'].split()[1]}." for row in pairs)
    aside = folder.manifest["datasets"]["retrieval"]["papers"]["set_aside"]
    assert aside == {"abstract: empty text": 1, "the paper was retracted": 1}


def test_a_paper_is_in_one_set_in_all_tasks(corpus: Path) -> None:
    tasks = {
        "retrieval": {"kind": "retrieval", "datasets": {"papers": RETRIEVAL}},
        "clustering": {"kind": "clustering", "datasets": {"headings": {**HEADINGS}}},
    }
    folder = compiled(corpus, tasks)
    homes = {}
    for split in SPLITS:
        for title in folder.pairs("retrieval", "papers", split)["anchor"].to_pylist():
            homes[title] = split
    clustered = 0
    for split in SPLITS:
        for text in folder.texts("clustering", "headings", split)["text"].to_pylist():
            title = text.split(" Abstract")[0]
            assert homes.get(title, split) == split
            clustered += 1
    assert clustered == 39  # the retracted paper has a subject too


def test_papers_with_several_subjects(corpus: Path) -> None:
    tasks: dict[str, Any] = {"clustering": {"kind": "clustering", "datasets": {"headings": HEADINGS}}}
    aside = compiled(corpus, tasks).manifest["datasets"]["clustering"]["headings"]["set_aside"]
    assert aside == {"subject: no label": 20, "subject: several labels": 20, "the paper was retracted": 1}


def test_a_column_that_no_corpus_has(corpus: Path) -> None:
    tasks = {"clustering": {"kind": "clustering", "datasets": {"headings": {**HEADINGS, "label": "colour"}}}}
    with pytest.raises(InputError, match="lacks the column colour; it has: abstract, article_type"):
        compiled(corpus, tasks)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that `datasets.load_dataset` reads as it would a dataset of the hub."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "moods").mkdir()
    write_rows(tmp_path / "moods" / "train.jsonl", moods(40))
    return tmp_path


def _hub_task(**fields: Any) -> dict[str, Any]:
    source = {"hub": "moods", **fields}
    return {"classification": {"kind": "classification", "datasets": {"moods": source}}}


def test_a_hub_dataset_of_one_split_is_split(hub: Path) -> None:
    folder = compiled(hub, _hub_task())
    assert sum(folder.texts("classification", "moods", split).num_rows for split in SPLITS) == 40
    assert folder.texts("classification", "moods", "test").num_rows > 0
    with pytest.raises(InputError, match="moods has no split 'dev'; it has train: name splits"):
        compiled(hub, _hub_task(splits={"test": "dev"}))
    with pytest.raises(InputError, match="split train lacks the column mood; it has: text, label"):
        compiled(hub, _hub_task(label="mood"))


def test_a_hub_dataset_may_call_validation_dev(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    counts = {"train": 40, "dev": 12, "test": 8}
    loaded = {
        name: datasets.Dataset.from_list(moods(count, start=100 * number))
        for number, (name, count) in enumerate(counts.items())
    }
    monkeypatch.setattr("sentence_experts.compat.datasets.load_splits", lambda *_: loaded)
    folder = compiled(tmp_path, _hub_task(hub="somebody/moods"))
    found = [folder.texts("classification", "moods", split).num_rows for split in SPLITS]
    assert found == list(counts.values())


def test_a_dataset_that_was_saved_to_disk_has_its_own_splits(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    counts = {"Train": 40, "Dev": 12, "Test": 8, "heldout": 5}
    saved = {
        name: datasets.Dataset.from_list(moods(count, start=100 * number))
        for number, (name, count) in enumerate(counts.items())
    }
    datasets.DatasetDict(saved).save_to_disk(tmp_path / "moods")
    folder = compiled(tmp_path, _hub_task(hub=str(tmp_path / "moods")))
    found = [folder.texts("classification", "moods", split).num_rows for split in SPLITS]
    assert found == [40, 12, 8]


@pytest.mark.parametrize("is_local", [True, False])
def test_what_is_not_read_of_a_folder_is_warned_of(
    is_local: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    datasets = pytest.importorskip("datasets")
    caplog.set_level("INFO", "sentence_experts")
    rows = [{"anchor": f"a {n}", "positive": f"b {n}", "relevance": n % 2} for n in range(60)]
    loaded = {"train": datasets.Dataset.from_list(rows[:40]), "test": datasets.Dataset.from_list(rows[40:])}
    loaded["unlabelled"] = loaded["test"]
    monkeypatch.setattr("sentence_experts.compat.datasets.load_splits", lambda *_: loaded)
    hub = str(tmp_path) if is_local else "somebody/pairs"
    compiled(tmp_path, {"t": {"kind": "pairs", "datasets": {"d": {"hub": hub}}}})
    told = [each.message for each in caplog.records if each.levelname == ("WARNING" if is_local else "INFO")]
    assert f"{hub}: not read: the split unlabelled" in told
    linked = "every row counts as linked, as there is no column label"
    assert f"{hub}, split train: not read: the column relevance; {linked}" in told
    if is_local:  # as of any table; but not where the kind has no labels of pairs
        caplog.clear()
        compile_tasks({"t": {"kind": "pairs", "datasets": {"d": loaded["train"]}}})
        assert f"the table: not read: the column relevance; {linked}" in caplog.text
        caplog.clear()
        compile_tasks(
            {
                "t": {
                    "kind": "classification",
                    "datasets": {
                        "d": loaded["train"].rename_columns({"anchor": "text", "relevance": "label"})
                    },
                }
            }
        )
        assert {each.levelname for each in caplog.records if "not read" in each.message} == {"INFO"}


def test_other_columns_of_a_hub_dataset_are_named(hub: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "sentence_experts")
    other = ([f"fold {n}" for n in range(4)], ["train"] * 4)
    for number, names in enumerate((["train", "dev", "test", "test"], *other)):
        rows = [row | {"split": names[n % 4], "source": "x"} for n, row in enumerate(moods(40))]
        write_rows(hub / "moods" / "train.jsonl", rows)
        folder = compiled(hub, _hub_task())
        found = [folder.texts("classification", "moods", split).num_rows for split in SPLITS]
        assert sum(found) == 40
        assert found[2] > 0
        assert (found == [10, 10, 20]) is (number == 0)
        assert "moods, split train: not read: the column source" in caplog.text
        assert ("not read: the column split; moods, split train: " in caplog.text) is (number > 0)
        caplog.clear()


def test_numbers_of_a_class_label_have_its_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """-1 stands for no label, as in test splits of GLUE."""
    datasets = pytest.importorskip("datasets")
    kind, rows = datasets.ClassLabel(names=["sad", "glad"]), moods(40)
    features = datasets.Features({"text": datasets.Value("string"), "label": kind})
    loaded = {
        split: datasets.Dataset.from_list(
            [
                {"text": f"{split} {row['text']}", "label": labels[n % len(labels)]}
                for n, row in enumerate(rows)
            ],
            features,
        )
        for split, labels in {"train": (0, 1), "dev": (0, 1), "test": (1, -1)}.items()
    }
    monkeypatch.setattr("sentence_experts.compat.datasets.load_splits", lambda *_: loaded)
    folder = compiled(tmp_path, _hub_task(hub="somebody/moods"))
    labels = [set(folder.texts("classification", "moods", split)["label"].to_pylist()) for split in SPLITS]
    assert labels == [{"sad", "glad"}, {"sad", "glad"}, {"glad"}]
    aside = folder.manifest["datasets"]["classification"]["moods"]["set_aside"]
    assert aside == {"label: no label": 20}
    in_memory = compile_tasks({"mood": {"kind": "classification", "datasets": {"moods": loaded["train"]}}})
    assert set(in_memory.texts("mood", "moods", "train")["label"].to_pylist()) == {"sad", "glad"}


def test_a_hub_that_cannot_be_reached(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    with pytest.raises(InputError, match="hub dataset 'nobody/nothing' cannot be loaded") as error:
        compiled(tmp_path, _hub_task(hub="nobody/nothing"))
    assert "\n" not in str(error.value)
