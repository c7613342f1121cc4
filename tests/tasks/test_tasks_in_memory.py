"""Task datasets of tables, and compiled without a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from datasets import ClassLabel, Dataset, Features, Value

import sentence_experts
from helpers.small_tasks import moods, questions, write_rows
from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.tasks.compile import compile_tasks
from sentence_experts.tasks.dataset import Tasks
from sentence_experts.tasks.split import SPLITS

SEARCH = {
    "kind": "retrieval",
    "datasets": {
        "plants": {"table": pd.DataFrame(questions(120)), "anchor": "question", "positive": "passage"}
    },
}
MOODS = {"kind": "classification", "datasets": {"moods": pd.DataFrame(moods(60))}}


def test_tables_compile_and_save(tmp_path: Path) -> None:
    tasks = compile_tasks({"search": SEARCH, "mood": MOODS}, fractions=[0.4, 0.3, 0.3])
    assert tasks.path is None
    assert repr(tasks).startswith("Tasks(search (train: ")
    saved = tasks.save(tmp_path / "tasks")
    assert saved.fingerprint() == tasks.fingerprint()
    assert saved.task_file == tasks.task_file
    for split in SPLITS:
        assert saved.pairs("search", "plants", split).equals(tasks.pairs("search", "plants", split))
        assert saved.texts("mood", "moods", split).equals(tasks.texts("mood", "moods", split))
    assert set(saved.to_pandas()["task"]) == {"search", "mood"}
    assert tasks.save(tmp_path / "tasks").fingerprint() == tasks.fingerprint()
    other = compile_tasks({"search": SEARCH}, fractions=[0.4, 0.3, 0.3])
    with pytest.raises(UsageError, match="made with another content"):
        other.save(tmp_path / "tasks")
    assert other.save(tmp_path / "tasks", overwrite=True).fingerprint() == other.fingerprint()
    saved = tasks.save(tmp_path / "tasks", overwrite=True)
    again = saved.save(tmp_path / "again")
    assert again.fingerprint() == saved.fingerprint()
    assert Tasks.of(tasks) is tasks


@pytest.mark.parametrize("write", [str, json.dumps, lambda labels: str(np.array(labels))])
def test_lists_of_labels_in_cells_are_lists(tmp_path: Path, write: Callable[[list[str]], str]) -> None:
    frame = pd.DataFrame(moods(60))
    labels = [[label, "other"] if row < 6 else [label] for row, label in enumerate(frame["label"])]
    frame.assign(label=list(map(write, labels))).to_csv(tmp_path / "moods.csv", index=False)
    made = [
        compile_tasks({"mood": {"kind": "classification", "datasets": {"moods": source}}}).to_pandas()
        for source in ({"file": str(tmp_path / "moods.csv")}, frame[6:])
    ]
    assert len(made[0]) > 50
    assert made[0].equals(made[1]), "rows with two labels are left out"


def _long_table(count: int = 20) -> pd.DataFrame:
    rows = [
        {
            "anchor": f"query {n} of crops",
            "positive": f"{'answer' if k == 0 else f'text {k}'} of {n}",
            "label": k == 0,
        }
        for n in range(count)
        for k in range(4)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize("kind", ["reranking", "retrieval", "pairs"])
@pytest.mark.parametrize(
    "label", [int, float, str, bool, lambda each: str(bool(each)).upper(), "{:.2f}".format]
)
def test_pairs_of_label_0_are_negatives(kind: str, label: Callable[[bool], Any]) -> None:
    table = _long_table()
    table["label"] = [label(int(each)) for each in table["label"]]
    wide = (
        table[::4]
        .drop(columns="label")
        .merge(
            table[table.index % 4 > 0][["anchor", "positive"]].rename(columns={"positive": "negative"}),
            on="anchor",
        )
    )
    made = []
    for source in (table, pa.Table.from_pandas(table).to_reader(), wide):
        tasks = compile_tasks({"t": {"kind": kind, "datasets": {"d": source}}}, fractions=[0.4, 0.3, 0.3])
        frame = tasks.to_pandas()
        made.append(
            {tuple(row) for row in frame[["split", "anchor", "positive", "negative"]].fillna("").to_numpy()}
        )
    assert {positive.split()[0] for _, _, positive, _ in made[0]} == {"answer"}
    assert {negative.split()[0] for *_, negative in made[0] if negative} == {"text"}
    assert {row for row in made[0] if row[3]} == made[2]
    assert made[0] == made[1]


def test_other_labels_of_pairs_are_not_read(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "sentence_experts")
    table = pd.DataFrame(questions(60)).rename(columns={"question": "anchor", "passage": "positive"})
    plain = compile_tasks({"t": {"kind": "pairs", "datasets": {"d": table}}})
    for label in (["biology", "art"] * 30, [3, 7] * 30):
        table["Label"] = label
        made = compile_tasks({"t": {"kind": "pairs", "datasets": {"d": table}}})
        assert made.to_pandas().equals(plain.to_pandas())
        assert caplog.text.count("not read: the column Label; a label of a pair is 1") == 1
        caplog.clear()
    for label in (
        [1, 2],
        [-1, 1],
        ["-1", "+1"],
        [0, 2],
        ["no", "yes"],
        ["related", "unrelated"],
        ["Not similar", "Similar"],
    ):
        table["Label"] = label * 30
        with pytest.raises(
            InputError, match="If the column Label says which texts are linked, write 0 and 1"
        ):
            compile_tasks({"t": {"kind": "pairs", "datasets": {"d": table}}})
    table["Label"] = [0, 1, 2] * 20
    with pytest.raises(InputError, match="not '2', and the column Label holds 0 and 1 too: name it"):
        compile_tasks({"t": {"kind": "pairs", "datasets": {"d": table}}})
    made = compile_tasks({"t": {"kind": "pairs", "datasets": {"d": {"table": table, "label": ""}}}})
    assert made.to_pandas().equals(plain.to_pandas())
    named = {"t": {"kind": "reranking", "datasets": {"d": {"table": table, "label": "Label"}}}}
    reasons = {each["reason"] for each in compile_tasks(named).set_aside}
    assert "a label of a pair is 1 (linked) or 0, not '2'" in reasons


def test_lists_of_negatives_are_rows_of_one_each(tmp_path: Path) -> None:
    table = pd.DataFrame(questions(60)).rename(columns={"question": "anchor", "passage": "positive"})
    table["negative"] = [[f"no {n}", f"none {n}"] if n % 3 else [] for n in range(60)]
    table.to_csv(tmp_path / "pairs.csv", index=False)
    made = [
        compile_tasks({"t": {"kind": "reranking", "datasets": {"d": source}}}).to_pandas()
        for source in (table, {"file": str(tmp_path / "pairs.csv")}, table.explode("negative"))
    ]
    assert made[0].equals(made[2])
    assert made[1].equals(made[2])
    assert len(made[0]) == 100


def test_a_pair_that_is_linked_and_not_is_linked() -> None:
    table = _long_table()
    table = pd.concat([table, table[::4].assign(label=False, positive=table["positive"][::4].str.upper())])
    tasks = compile_tasks({"t": {"kind": "pairs", "datasets": {"d": table}}})
    assert len(tasks.set_aside) == 20
    frame = tasks.to_pandas()
    assert not frame["negative"].dropna().str.lower().str.startswith("answer").any()


def test_groups_are_one_with_and_without_a_point(tmp_path: Path) -> None:
    rows = pd.DataFrame(moods(36)).assign(author=range(36))
    rows.to_csv(tmp_path / "train.csv", index=False)
    test = pd.DataFrame(moods(12, start=100)).assign(author=[None, *range(1, 12)])
    test.to_csv(tmp_path / "test.csv", index=False)
    files = {"train": str(tmp_path / "train.csv"), "test": str(tmp_path / "test.csv")}
    task = {"kind": "classification", "datasets": {"m": {"files": files, "group": "author"}}}
    made = compile_tasks({"m": task}).manifest["datasets"]["m"]["m"]
    assert made["removed"] == {"train_seen_in_evaluation": 11}, (
        "all authors of the test set but the missing one"
    )


def test_a_list_of_texts_in_a_cell_is_no_text() -> None:
    table = pd.DataFrame(questions(60)).rename(columns={"question": "anchor", "passage": "positive"})
    table.loc[3, "positive"] = "['one', 'two']"
    tasks = compile_tasks({"t": {"kind": "pairs", "datasets": {"d": table}}})
    assert [each["reason"] for each in tasks.set_aside] == [
        "a list of texts, not a text (['one', 'two']): give each a row"
    ]
    assert Pairs.of(table).split("train").num_rows == 60, "a single one may be a text"
    with pytest.raises(InputError, match="lists of texts, not texts"):
        Pairs.of(table.assign(positive="['one', 'two']"))


def _with_splits(*names: str | None) -> pd.DataFrame:
    """Moods in a training, a validation and a test split under these names."""
    return pd.DataFrame(moods(60)).assign(split=[*names[:1] * 36, *names[1:2] * 12, *names[2:] * 12])


@pytest.mark.parametrize("names", [SPLITS, ("Train", "Dev", "TEST"), ("train", "val", "Test")])
@pytest.mark.parametrize("as_file", [False, True])
def test_a_column_split_is_kept(tmp_path: Path, names: tuple[str, ...], as_file: bool) -> None:
    frame = _with_splits(*names)
    given = frame.rename(columns={"split": "Split"})
    given.to_csv(tmp_path / "moods.csv", index=False)
    source = {"file": str(tmp_path / "moods.csv")} if as_file else given
    tasks = compile_tasks({"tasks": {"mood": {"kind": "classification", "datasets": {"moods": source}}}})
    for name, split in zip(names, SPLITS, strict=True):
        own = frame[frame["split"] == name]["text"].tolist()
        assert tasks.texts("mood", "moods", split)["text"].to_pylist() == own


def test_cells_that_say_that_nothing_is_known_are_no_labels_or_groups() -> None:
    frame = pd.DataFrame(moods(60)).assign(thread="NA")
    frame.loc[:9, "label"] = ["NA", "nan", "<NA>", "n/a", "NULL"] * 2
    source = {"table": frame, "group": "thread"}
    tasks = compile_tasks({"mood": {"kind": "classification", "datasets": {"moods": source}}})
    labels = [tasks.texts("mood", "moods", split)["label"].to_pylist() for split in SPLITS]
    assert sum(map(len, labels)) == 50
    assert {each for own in labels for each in own} == {each["label"] for each in moods(3)}
    assert all(labels), "rows without a group are apart"
    assert "left out: 10)" in repr(tasks)


def test_a_class_label_may_be_a_score(tmp_path: Path) -> None:
    kinds = ClassLabel(names=["not_equivalent", "equivalent"])
    rows = {"anchor": [f"a {n}" for n in range(40)], "positive": [f"b {n}" for n in range(40)]}
    rows |= {"split": ["test"] * 40}
    features = Features(dict.fromkeys(rows, Value("string")) | {"label": kinds})
    dataset = Dataset.from_dict({**rows, "label": [n % 2 for n in range(40)]}, features)
    task: dict[str, Any] = {
        "kind": "pair_classification",
        "datasets": {"mrpc": {"table": dataset, "score": "label"}},
    }
    dataset.to_parquet(tmp_path / "mrpc.parquet")
    file = {"files": {"test": str(tmp_path / "mrpc.parquet")}, "score": "label"}
    for source in (task["datasets"]["mrpc"], file):
        made = compile_tasks({"same": {**task, "datasets": {"mrpc": source}}})
        assert made.pairs("same", "mrpc", "test")["score"].to_pylist() == [n % 2 for n in range(40)]
    graded = Dataset.from_dict({**rows, "label": ["10", "5", "1", "0"] * 10}).class_encode_column("label")
    rated = {"kind": "sts", "datasets": {"some": {"table": graded, "score": "label"}}}
    pairs = compile_tasks({"rated": rated}).pairs("rated", "some", "test")
    assert pairs["score"].to_pylist() == [10, 5, 1, 0] * 10


@pytest.mark.parametrize("names", [["entailment", "not_entailment"], ["duplicate", "not duplicate"]])
def test_a_class_label_whose_first_class_says_yes_is_no_score(names: list[str], tmp_path: Path) -> None:
    rows = {"anchor": [f"a {n}" for n in range(40)], "positive": [f"b {n}" for n in range(40)]}
    features = Features(dict.fromkeys(rows, Value("string")) | {"label": ClassLabel(names=names)})
    dataset = Dataset.from_dict({**rows, "label": [n % 2 for n in range(40)]}, features)
    task = {"kind": "pair_classification", "datasets": {"rte": {"table": dataset, "score": "label"}}}
    with pytest.raises(InputError, match=r"1 \(linked\) or 0, not '(entailment|duplicate)'"):
        compile_tasks({"same": task})
    dataset.to_parquet(tmp_path / "rte.parquet")
    for source in (dataset, tmp_path / "rte.parquet"):
        with pytest.raises(InputError, match=r"a label of a pair is 1"):
            sentence_experts.import_pairs(source)


@pytest.mark.parametrize("name", [None, "held out"])
@pytest.mark.parametrize("as_file", [False, True])
def test_a_row_of_no_known_split_is_refused(tmp_path: Path, name: str | None, as_file: bool) -> None:
    frame = _with_splits("train", name, "test")
    frame.to_csv(tmp_path / "moods.csv", index=False)
    source = {"file": str(tmp_path / "moods.csv")} if as_file else frame
    with pytest.raises(InputError, match=r"split .+ is none of train, validation, test"):
        compile_tasks({"mood": {"kind": "classification", "datasets": {"moods": source}}})


def test_a_task_that_is_only_measured_needs_test_rows() -> None:
    frame = pd.DataFrame([{"anchor": f"a {n}", "positive": f"b {n}", "score": n} for n in range(9)])
    sts = {"kind": "sts", "datasets": {"small": frame.assign(split=["train"] * 5 + ["test"] * 4)}}
    assert compile_tasks({"sts": sts}).pairs("sts", "small", "test").num_rows == 4
    sts["datasets"] = {"small": frame.assign(split="dev")}  # as a split is published
    assert compile_tasks({"sts": sts}).pairs("sts", "small", "test").num_rows == 9
    sts["datasets"] = {"small": frame.assign(split=["train"] * 5 + ["dev"] * 4)}
    with pytest.raises(InputError, match="sts is only measured, and its test split has no rows"):
        compile_tasks({"sts": sts})


def test_numbers_as_labels_have_one_form(tmp_path: Path) -> None:
    """pandas writes a column of whole numbers with a missing one as floats."""
    frame = pd.DataFrame(moods(60)).assign(label=[n % 2 for n in range(60)])
    frame[:40].to_csv(tmp_path / "train.csv", index=False)
    missing = pd.DataFrame([{"text": "Who knows?", "label": None}])
    pd.concat([frame[40:].astype({"label": float}), missing]).to_csv(tmp_path / "test.csv", index=False)
    assert ",1.0" in (tmp_path / "test.csv").read_text()
    files = {split: str(tmp_path / f"{split}.csv") for split in ("train", "test")}
    tasks = compile_tasks({"mood": {"kind": "classification", "datasets": {"moods": {"files": files}}}})
    assert set(tasks.texts("mood", "moods", "test")["label"].to_pylist()) == {"0", "1"}
    assert tasks.manifest["datasets"]["mood"]["moods"]["classes"] == 2


def test_table_without_a_column_is_refused() -> None:
    frame = pd.DataFrame(moods(60)).drop(columns="label")
    with pytest.raises(InputError, match=r"tasks\.mood\.datasets\.moods: the table lacks the column label"):
        compile_tasks({"mood": {"kind": "classification", "datasets": {"moods": frame}}})


@pytest.mark.parametrize("as_file", [True, False])
def test_numbers_of_papers_are_groups(tmp_path: Path, as_file: bool) -> None:
    rows = [{**row, "paper_id": n // 4} for n, row in enumerate(moods(80))]
    write_rows(tmp_path / "rows.jsonl", rows)
    source = {"file": str(tmp_path / "rows.jsonl")} if as_file else {"table": pd.DataFrame(rows)}
    papers = {row["text"]: row["paper_id"] for row in rows}
    for group in ("paper_id", None):  # the column counts if it is named
        datasets = {"d": source | {"group": group}}
        made = compile_tasks(
            {"t": {"kind": "classification", "datasets": datasets}}, fractions=[0.4, 0.3, 0.3]
        )
        homes = [
            {papers[text] for text in made.texts("t", "d", split)["text"].to_pylist()} for split in SPLITS
        ]
        assert (sum(map(len, homes)) == 20) is (group is not None)


def test_a_table_without_labels_beside_one_with_them_is_linked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = pd.DataFrame(questions(60)).rename(columns={"question": "anchor", "passage": "positive"})
    pairs[["anchor", "positive"]][:30].assign(label=1).to_csv(tmp_path / "train.csv", index=False)
    pairs[["anchor", "positive"]][30:].to_csv(tmp_path / "test.csv", index=False)
    files = {split: str(tmp_path / f"{split}.csv") for split in ("train", "test")}
    made = compile_tasks({"t": {"kind": "retrieval", "datasets": {"d": {"files": files}}}})
    assert made.pairs("t", "d", "test").num_rows == 30
    assert "30 rows count as linked, as their table has no column label" in caplog.text


def test_columns_of_several_files_may_differ_in_case(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = _long_table(20)
    rows[:40].to_csv(tmp_path / "train.csv", index=False)
    rows[40:].rename(columns={"label": "LABEL"}).to_csv(tmp_path / "test.csv", index=False)
    files = {split: str(tmp_path / f"{split}.csv") for split in ("train", "test")}
    made = compile_tasks({"t": {"kind": "retrieval", "datasets": {"d": {"files": files}}}})
    test = made.pairs("t", "d", "test").to_pandas()
    assert {positive.split()[0] for positive in test["positive"]} == {"answer"}
    assert test["negative"].nunique() == 30
    assert not caplog.text


def test_a_pair_of_two_groups_is_of_both() -> None:
    rows = [
        {"anchor": f"q{n // 2}", "positive": f"d{n // 2}", "group": f"g{n}", "split": "train"}
        for n in range(40)
    ]
    rows += [{"anchor": "p", "positive": "d", "group": "g7", "split": "test"}]
    source = {"table": pd.DataFrame(rows), "group": "group"}
    made = compile_tasks({"t": {"kind": "pairs", "datasets": {"d": source}}}).to_pandas()
    assert sorted(made["anchor"]) == sorted(["p", *(f"q{n}" for n in range(20) if n != 3)])


def test_a_column_split_beside_files_of_splits_is_said_not_to_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sentence_experts")
    pairs = pd.DataFrame(questions(60)).rename(columns={"question": "anchor", "passage": "positive"})
    for split in ("train", "test"):
        pairs.assign(split="train", **{"Split ": "test"}).to_csv(tmp_path / f"{split}.csv", index=False)
    files = {split: str(tmp_path / f"{split}.csv") for split in ("train", "test")}
    with pytest.raises(InputError, match="every training row holds a text"):
        compile_tasks({"t": {"kind": "retrieval", "datasets": {"d": {"files": files}}}})
    assert "train.csv: not read: the columns split, Split ; every row counts as linked, as" in caplog.text
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    made = compile_tasks({"t": {"kind": "retrieval", "datasets": {"d": {"file": files["train"]}}}})
    assert set(made.counts["t"]["d"]) == {"train", "validation"}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"label": [None] * 60}, "the column label; it is empty"),
        ({"negative": [0, 1] * 30}, "the column negative; it holds no texts"),
        ({"negative": ["0", "1.5"] * 30}, "the column negative; it holds no texts"),
        ({"negative": [{"text": "x"}] * 60}, "the column negative; it holds no texts"),
        ({"label": [1] * 60, "Label": [0, 1] * 30}, "the column Label"),
    ],
)
def test_columns_that_hold_something_else_are_not_read(
    columns: dict[str, list[Any]], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sentence_experts")
    table = pd.DataFrame(questions(60)).rename(columns={"question": "anchor", "passage": "positive"})
    plain = compile_tasks({"t": {"kind": "pairs", "datasets": {"d": table}}})
    for names in (list(columns), list(columns)[::-1]):
        other = table.assign(**{name: columns[name] for name in names})
        made = compile_tasks({"t": {"kind": "pairs", "datasets": {"d": other}}})
        assert made.to_pandas().equals(plain.to_pandas())
        assert f"not read: {message}" in caplog.text
        level = next(each.levelname for each in caplog.records if message in each.message)
        assert (level == "INFO") is ("Label" in columns)
        caplog.clear()


@pytest.mark.parametrize(("kind", "key"), [("retrieval", "positive"), ("reranking", "anchor")])
def test_maxima_count_pairs_with_all_their_negatives(kind: str, key: str) -> None:
    rows = [
        {"anchor": f"q{n}", "positive": f"d{n} {k}", "negative": [f"x{n} {k} {m}" for m in range(5)]}
        for n in range(40)
        for k in range(2)
    ]
    made = compile_tasks(
        {"t": {"kind": kind, "datasets": {"d": rows}}}, max_train=10, max_eval=4, fractions=[0.5, 0.25, 0.25]
    )
    test = made.pairs("t", "d", "test").to_pandas()
    assert test[key].nunique() == 4
    assert (test.groupby("positive").size() == 5).all()
    if kind == "reranking":
        assert len(test) == 40
    else:
        assert made.pairs("t", "d", "train").to_pandas()["positive"].nunique() == 10


def test_candidates_of_test_queries_are_not_trained_on() -> None:
    train = [{"anchor": f"train {n}", "positive": f"document {n}"} for n in range(40)]
    test = [
        {
            "anchor": f"test {n // 4}",
            "positive": f"document {n}" if n % 4 else f"right {n}",
            "label": n % 4 == 0,
        }
        for n in range(20)
    ]
    tasks = {
        "search": {"kind": "retrieval", "datasets": {"d": {"table": pd.DataFrame(train)}}},
        "rank": {"kind": "reranking", "datasets": {"e": {"table": pd.DataFrame(test)}}},
    }
    made = compile_tasks(tasks, fractions=[0.8, 0.1, 0.1])
    candidates = set(made.pairs("rank", "e", "test")["negative"].to_pylist())
    assert len(candidates) == 15
    trained = made.pairs("search", "d", "train")
    assert trained.num_rows > 5
    assert not candidates & set(trained["positive"].to_pylist())


def test_groups_of_pairs_of_label_0_are_kept_apart() -> None:
    rows = [
        {"anchor": f"q{n}", "positive": f"d{n}", "label": 1, "group": f"g{n}", "split": "train"}
        for n in range(20)
    ]
    rows += [
        {"anchor": "q0", "positive": "x", "label": 0, "group": "tested", "split": "train"},
        {"anchor": "q0", "positive": "y", "label": 0, "group": "g0", "split": "train"},
        {"anchor": "q1", "positive": "z", "label": 0, "group": "tested", "split": "train"},
        {"anchor": "p", "positive": "d", "label": 1, "group": "tested", "split": "test"},
    ]
    made = compile_tasks(
        {"t": {"kind": "pairs", "datasets": {"d": {"table": pd.DataFrame(rows), "group": "group"}}}}
    ).to_pandas()
    assert set(made["negative"].dropna()) == {"y"}
    assert sorted(made["anchor"]) == sorted([f"q{n}" for n in range(20)] + ["p"])


def test_negatives_of_a_pair_of_label_0_are_its_anchors() -> None:
    rows = [
        {"anchor": "q", "positive": "right", "label": 1, "negative": None},
        {"anchor": "q", "positive": "wrong", "label": 0, "negative": ["worse", "worst"]},
    ]
    made = compile_tasks({"t": {"kind": "reranking", "datasets": {"d": rows}}}).to_pandas()
    assert sorted(made["negative"]) == ["worse", "worst", "wrong"]
    assert set(made["positive"]) == {"right"}


def test_a_folder_knows_the_columns_that_were_found(tmp_path: Path) -> None:
    table = _long_table(60)
    tasks = {"t": {"kind": "pairs", "datasets": {"d": {"table": table}}}}
    made = compile_tasks(tasks, out=tmp_path / "tasks")
    assert made.manifest["datasets"]["t"]["d"]["source"]["found"] == {"label": "label"}


@pytest.mark.parametrize("kind", ["retrieval", "pairs"])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 0, 1), (2, 1, 0)])
def test_a_negative_of_a_row_that_is_removed_goes_to_another_row(kind: str, order: tuple[int, ...]) -> None:
    splits = ("train", "train", "train", "validation", "test")
    rows = [
        {
            "anchor": f"question {n} of {n}",
            "positive": f"answer {n} of {n}",
            "label": 1,
            "split": splits[n % 5],
        }
        for n in range(20)
    ]
    own = [
        {"anchor": "which fruit is red", "positive": rows[4]["positive"], "label": 1, "split": "train"},
        {"anchor": "which fruit is red", "positive": "an apple", "label": 1, "split": "train"},
        {"anchor": "Which fruit is red?", "positive": "a banana", "label": 0, "split": "train"},
    ]
    table = pd.DataFrame([*rows, *(own[place] for place in order)])
    made = compile_tasks({"fruit": {"kind": kind, "datasets": {"all": {"table": table}}}})
    found = made.pairs("fruit", "all", "train").to_pandas().query("anchor == 'which fruit is red'")
    assert found[["positive", "negative"]].to_numpy().tolist() == [["an apple", "a banana"]]
    assert made.manifest["datasets"]["fruit"]["all"]["removed"] == {"train_seen_in_evaluation": 1}


def test_rows_that_are_set_aside_are_told(caplog: pytest.LogCaptureFixture) -> None:
    table = pd.DataFrame(
        {"anchor": [f"a {n}" for n in range(20)], "positive": [f"b {n}" for n in range(20)], "score": "1,5"}
    )
    table.loc[::2, "score"] = ["1_0", *(str(n) for n in range(1, 10))]
    compile_tasks({"s": {"kind": "sts", "datasets": {"t": {"table": table}}}})
    (told,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert told.endswith("11 rows are set aside, the first: row 1: score: no number: '1_0'")


@pytest.mark.parametrize("maximum", [20, 120])
def test_a_query_of_a_sample_stays_with_all_its_answers(maximum: int) -> None:
    """An answer that is left out would be a wrong hit, or a negative, if another query kept it."""
    rows = [
        {"anchor": f"question {q} of topic {t}?", "positive": f"answer {a} on subject {t}.", "split": split}
        for t, split in zip(range(80), ["train", "test"] * 40, strict=True)
        for q in range(3)
        for a in range(4)
    ]
    source = {"search": {"kind": "retrieval", "datasets": {"d": pd.DataFrame(rows)}}}
    whole, tasks = compile_tasks(source), compile_tasks(source, max_train=maximum, max_eval=maximum)
    for split in ("train", "test"):
        some, every = (
            each.pairs("search", "d", split).to_pandas()[["anchor", "positive"]] for each in (tasks, whole)
        )
        assert maximum - 4 < len(some) <= maximum
        linked = every[every["anchor"].isin(some["anchor"])]
        assert {*some.itertuples(index=False)} == {*linked.itertuples(index=False)}


@pytest.mark.parametrize("alone", [0, 1])
def test_queries_with_more_answers_than_fit_are_cut(alone: int, caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        {"anchor": f"topic {t}", "positive": f"answer {a} on {t}.", "split": split}
        for split in ("train", "test")
        for t in (f"{split} {n}" for n in range(5))
        for a in range(60)
    ]
    rows += [{"anchor": f"one {n}", "positive": f"its answer {n}", "split": "train"} for n in range(alone)]
    tasks = compile_tasks(
        {"search": {"kind": "retrieval", "datasets": {"d": rows}}}, max_train=50, max_eval=50
    )
    for split in ("train", "test"):
        some = tasks.pairs("search", "d", split).to_pandas()
        assert (len(some), some["anchor"].nunique() >= 5) == (50, True)
    assert "most queries have too many pairs for a maximum of 50" in caplog.text


def test_a_negative_that_another_row_links_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        {"anchor": f"question {n} a", "positive": f"answer {n}", "negative": f"other {n}"} for n in range(60)
    ]
    rows.append({"anchor": "Question 5 a", "positive": "answer 500", "negative": "Answer 5."})
    tasks = compile_tasks({"qa": {"kind": "retrieval", "datasets": {"mine": pd.DataFrame(rows)}}})
    assert "1 negatives are left out, as rows link them with their anchor" in caplog.text
    kept = [row for split in SPLITS for row in tasks.pairs("qa", "mine", split).to_pylist()]
    assert not any(row["negative"] == "Answer 5." for row in kept)
    assert sum(row["negative"] is not None for row in kept) == 60


def test_texts_of_several_rows_are_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = moods(60)
    rows += [rows[0] | {"text": text} for text in ("C", "C++", "C#")]
    compile_tasks({"mood": {"kind": "classification", "datasets": {"moods": pd.DataFrame(rows)}}})
    assert "repeat" not in caplog.text
    rows += [rows[0]]
    compile_tasks({"mood": {"kind": "clustering", "datasets": {"moods": pd.DataFrame(rows)}}})
    assert "repeat" not in caplog.text
    rows += [rows[1] | {"label": rows[2]["label"] + "s"}]
    for kind in ("classification", "clustering"):
        caplog.clear()
        compile_tasks({"mood": {"kind": kind, "datasets": {"moods": pd.DataFrame(rows)}}})
        told = "tasks.mood.datasets.moods: rows repeat a text (2); texts with several labels: 1"
        assert told in caplog.text


@pytest.mark.parametrize("empty", ["", []])
def test_a_role_without_a_column_is_refused(empty: Any) -> None:
    table = {"table": pd.DataFrame(questions(12)), "anchor": empty, "positive": "passage"}
    with pytest.raises(InputError, match="`anchor`: name a column"):
        compile_tasks({"s": {"kind": "retrieval", "datasets": {"t": table}}})


def test_rows_that_are_not_measured_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    frame = pd.DataFrame([{"anchor": f"a {n}", "positive": f"b {n}", "score": n} for n in range(9)])
    sts = {"kind": "sts", "datasets": {"small": frame.assign(split=["train"] * 5 + ["test"] * 4)}}
    tasks = compile_tasks({"sts": sts})
    assert "rows of other splits than test are left out (5 of 9)" in caplog.text
    assert tasks.manifest["datasets"]["sts"]["small"]["removed"] == {"not_of_the_test_split": 5}
    caplog.clear()
    compile_tasks({"sts": {"kind": "sts", "datasets": {"small": frame}}})
    assert not caplog.records


def test_a_pair_with_several_scores_is_told(caplog: pytest.LogCaptureFixture) -> None:
    frame = pd.DataFrame([{"anchor": f"a {n % 8}", "positive": "b", "score": n} for n in range(9)])
    compile_tasks({"sts": {"kind": "sts", "datasets": {"small": frame}}})
    assert "tasks.sts.datasets.small: pairs of texts with several scores (1), such as 'a 0'" in caplog.text


def test_labels_that_differ_in_case_alone_are_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = [row | {"label": row["label"].title()} if n < 6 else row for n, row in enumerate(moods(60))]
    compile_tasks({"mood": {"kind": "clustering", "datasets": {"moods": pd.DataFrame(rows)}}})
    assert "labels differ in case alone (3), such as 'Cross' and 'cross'" in caplog.text


def test_a_group_that_is_mostly_empty_is_told(caplog: pytest.LogCaptureFixture) -> None:
    frame = pd.DataFrame(moods(60)).assign(thread=["one"] * 30 + [None] * 30)
    for empty in (30, 31):
        frame.loc[: empty - 30 - 1, "thread"] = None
        source = {"table": frame, "group": "thread"}
        compile_tasks({"mood": {"kind": "classification", "datasets": {"moods": source}}})
        assert ("the column thread (`group`) is empty for 31 of 60 texts" in caplog.text) == (empty > 30)


@pytest.mark.parametrize(("name", "role"), [("negatives", "negative"), ("labels", "label"), ("topic", None)])
def test_an_unread_column_near_a_role_is_told(
    name: str, role: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    frame = pd.DataFrame(questions(60)).assign(**{name: "1"})
    source = {"table": frame, "anchor": "question", "positive": "passage"}
    compile_tasks({"search": {"kind": "retrieval", "datasets": {"mine": source}}})
    assert (f"not read; to read them, give {role}: {name}" in caplog.text) == bool(role)
