from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value

from helpers.text_tables import TEXTS, write_texts
from sentence_experts.errors import InputError
from sentence_experts.tables import read_columns, read_rows, read_table, to_arrow
from sentence_experts.text_table import TextTable


@pytest.mark.parametrize(
    "name", ["a.txt", "a.csv", "a.tsv", "a.jsonl", "a.parquet", "a.txt.gz", "a.jsonl.gz"]
)
def test_every_format_gives_the_same_texts(tmp_path, name):
    column = None if ".txt" in name else "abstract"
    assert [row.text for row in TextTable(write_texts(tmp_path, name), column).rows()] == list(TEXTS)


@pytest.mark.parametrize(
    ("name", "content", "column", "message"),
    [
        ("a.csv", b"id,title\n1,x\n", "abstract", "no column 'abstract'; columns are id, title"),
        ("a.csv", b"id,title\n1,x\n", None, "name the column .*columns are id, title"),
        ("a.jsonl", b'{"id": 1, "title": "x"}\n', "abstract", "no column 'abstract'; columns are id, title"),
        ("a.jsonl", b'{"abstract": "x"}\nnot json\n', "abstract", "row 2: not JSON"),
        ("a.jsonl", b"[1]\n", "abstract", "row 1: not a JSON object"),
        ("a.jsonl", b'[{"abstract": "x"}]\n', None, "row 1: not a JSON object"),
        ("a.jsonl", b'{"abstract": ' + b"9" * 5000 + b"}\n", "abstract", "row 1: not JSON: .*5000 digits"),
        ("a.docx", b"x", None, "cannot tell its format"),
        ("a.txt", b"\xff\xfe\x00", None, "not UTF-16-LE throughout"),
        ("a.txt.gz", b"not gzip", None, "truncated or damaged .Not a gzipped file"),
        ("a.parquet", b"not parquet", "x", "is not a Parquet file"),
        ("a.txt", None, None, "no such file"),
    ],
)
def test_unreadable_tables_are_refused_with_reason(tmp_path, name, content, column, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(TextTable(tmp_path / name, column).rows())


ROWS = [{"id": 1, "title": "Rice"}, {"id": 2, "title": None}]


def in_memory(kind: str):
    if kind == "pandas":
        return pd.DataFrame(ROWS, index=[7, 7])
    if kind == "polars":
        return pytest.importorskip("polars").DataFrame(ROWS)
    if kind == "datasets":
        datasets = pytest.importorskip("datasets")
        return datasets.Dataset.from_list([*reversed(ROWS)]).select([1, 0])
    if kind == "dict":
        return {"id": [1, 2], "title": ["Rice", None]}
    return pa.Table.from_pylist(ROWS) if kind == "arrow" else ROWS


@pytest.mark.parametrize("kind", ["pandas", "polars", "datasets", "dict", "arrow", "list"])
def test_tables_in_memory_are_read_like_files(kind: str):
    table = in_memory(kind)
    assert read_columns(table) == ["id", "title"]
    assert list(read_rows(table)) == ROWS
    assert list(read_rows(table, ["id"])) == [{"id": 1}, {"id": 2}]
    assert read_table(table, ["title"]).column_names == ["title"]
    assert [(row.id, row.text) for row in TextTable(table, "title", "id").rows()] == [
        ("1", "Rice"),
        ("2", ""),
    ]


def test_texts_of_polars_can_be_chosen_by_rows() -> None:
    frame = pl.DataFrame({"split": ["train", "test"], "number": [1, 2]})
    for each in (frame, frame.with_columns(pl.col("split").cast(pl.Categorical))):
        assert to_arrow(each).take([1])["split"].to_pylist() == ["test"]
    tagged = frame.with_columns(
        tags=pl.Series([["a"], ["b", "c"]]), kind=pl.Series(["x", None]), png=pl.lit(b"p")
    )
    views = {name: tagged.to_arrow()[name] for name in tagged.columns}
    for each in (tagged, pa.table(tagged), views | {"split": pa.array(["train", "test"], pa.string_view())}):
        assert to_arrow(each).take([1]).to_pylist() == tagged.tail(1).to_dicts()


def test_classes_of_a_dataset_have_their_names(tmp_path: Path) -> None:
    kinds = ClassLabel(names=["yes", "no"])
    features = Features({"text": Value("string"), "kind": kinds, "tags": List(kinds)})
    rows = {"text": ["a", "b", "c"], "kind": [1, 0, -1], "tags": [[0, 1], [], None]}
    dataset = Dataset.from_dict(rows, features=features)
    dataset.to_parquet(tmp_path / "rows.parquet")
    for table in (to_arrow(dataset), read_table(tmp_path / "rows.parquet", ["kind", "tags"])):
        assert table["kind"].to_pylist() == ["no", "yes", None]
        assert table["tags"].to_pylist() == [["yes", "no"], [], None]


def test_classes_in_files_of_earlier_versions_have_their_names(tmp_path: Path) -> None:
    noted = {
        "tokens": [{"dtype": "string", "_type": "Value"}],
        "kind": {"names": ["no", "yes"], "_type": "ClassLabel"},
    }
    table = pa.table({"tokens": [["a"], ["b"]], "kind": [1, -1]})
    metadata = {b"huggingface": json.dumps({"info": {"features": noted}}).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "old.parquet")
    assert read_table(tmp_path / "old.parquet", ["kind"])["kind"].to_pylist() == ["yes", None]
    for text in (b"{", b"[]", b'{"info": 3}'):
        pq.write_table(table.replace_schema_metadata({b"huggingface": text}), tmp_path / "odd.parquet")
        assert read_table(tmp_path / "odd.parquet", ["kind"])["kind"].to_pylist() == [1, -1]


def test_list_of_texts_is_a_table():
    assert TextTable(["a", "b"]).texts() == ["a", "b"]
    assert TextTable(["a", "b"]).fingerprint() != TextTable(["ab"]).fingerprint()


def test_several_data_sets_in_one_are_refused():
    both = DatasetDict(train=Dataset.from_dict({"text": ["a"]}), test=Dataset.from_dict({"text": ["b"]}))
    with pytest.raises(InputError, match="an IterableDataset cannot be read as a table: give a Dataset"):
        to_arrow(Dataset.from_dict({"text": ["a"]}).to_iterable_dataset())
    with pytest.raises(InputError, match=r"DatasetDict is several tables: give one of them \(train, test\)"):
        to_arrow(both)
    frames = {"Part 1": pd.DataFrame({"text": ["a"]}), "Part 2": pd.DataFrame({"text": ["b"]})}
    with pytest.raises(InputError, match=r"the dict is several tables \(Part 1, Part 2\): give one"):
        to_arrow(frames)


def test_an_index_of_pandas_that_has_a_name_is_a_column() -> None:
    frame = pd.DataFrame({"text": ["a", "b"], "split": ["train", "test"], "id": [1, 2]})
    assert to_arrow(frame.set_index("split")).to_pydict() == frame.to_dict("list")
    assert to_arrow(frame.set_index(["split", "id"])).to_pydict() == frame.to_dict("list")
    assert to_arrow(frame.set_index("id", drop=False)).to_pydict() == frame.to_dict("list")
    assert to_arrow(frame[::-1]).column_names == ["text", "split", "id"]
    assert to_arrow(frame.set_index("split")["text"]).column_names == ["text"]


@pytest.mark.parametrize(
    "series", [pd.Series(["a", "b", "a"]).value_counts(), pd.Series([True]), pl.Series([1.5])]
)
def test_a_series_of_numbers_holds_no_texts(series: Any) -> None:
    with pytest.raises(InputError, match="holds no texts"):
        TextTable(series).texts()


def test_columns_of_the_libraries_are_lists_and_series_are_joined_by_their_index() -> None:
    for column in (Dataset.from_dict({"text": ["a", "b"]})["text"], pa.array(["a", "b"])):
        assert TextTable(column).texts() == ["a", "b"]
    frame = pd.DataFrame({"text": ["a", "b", "c"], "label": [1, 2, 3]})
    shuffled = frame["label"][::-1]
    assert to_arrow({"text": frame["text"], "label": shuffled}).to_pydict() == frame.to_dict("list")
    with pytest.raises(InputError, match="the series 'label' has another index"):
        to_arrow({"text": frame["text"], "label": frame["label"].set_axis([5, 6, 7])})


def test_an_index_that_fits_no_column_is_left_out() -> None:
    frame = pd.DataFrame({"text": ["a", "b"], "Id": [1, 2]})
    assert to_arrow(frame.set_index(pd.Index([1, "x"], name="mixed"))).column_names == ["text", "Id"]
    assert to_arrow(frame.rename_axis("ID")).column_names == ["text", "Id"]
    assert TextTable(frame[["text"]].rename_axis("n")).texts() == ["a", "b"]


def test_a_dataset_with_a_transform_is_refused() -> None:
    rows = Dataset.from_dict({"text": ["RAW a", "RAW b"]})
    with pytest.raises(InputError, match="apply it with `map`"):
        to_arrow(rows.with_transform(lambda batch: {"text": [text[4:] for text in batch["text"]]}))


@pytest.mark.parametrize("nothing", [3, "text"[0].encode(), np.array(3)])
def test_other_objects_are_refused(nothing):
    with pytest.raises(InputError, match="table"):
        to_arrow(nothing)


def test_missing_values_of_pandas_are_empty():
    frame = pd.DataFrame({"text": ["a", np.nan, None], "number": [1.5, np.nan, 2.0]})
    assert TextTable(frame, "text").texts() == ["a", "", ""]
    assert TextTable(frame, "number").texts() == ["1.5", "", "2"]


def test_nan_in_rows_and_columns_of_python_is_no_value() -> None:
    rows = [{"text": "a", "number": 1}, {"text": float("nan"), "number": float("nan")}]
    for table in (rows, {name: [row[name] for row in rows] for name in rows[0]}):
        assert to_arrow(table).to_pylist() == [{"text": "a", "number": 1}, {"text": None, "number": None}]
    with pytest.raises(InputError, match="column 'text' mixes values that fit no column: str, int"):
        to_arrow([{"id": 1, "text": "a"}, {"id": 2, "text": 2}])


def test_whole_table_names_its_bad_row(tmp_path: Path):
    (tmp_path / "a.csv").write_text("id,title\n1,x\n2\n")
    with pytest.raises(InputError, match=r"a\.csv: row 2: 1 fields where the header has 2"):
        read_table(tmp_path / "a.csv", ["id"])
    with pytest.raises(InputError, match="lacks the column year; it has: id, title"):
        read_table(tmp_path / "a.csv", ["year"])


def test_a_list_of_rows_has_the_columns_of_all():
    rows = to_arrow([{"id": 1}, {"title": "Rice", "id": 2}, {"year": 3}])
    assert rows.column_names == ["id", "title", "year"]
    assert rows["title"].to_pylist() == [None, "Rice", None]


@pytest.mark.parametrize(
    "one_column",
    [
        pd.Series(TEXTS, name="abstract"),
        pd.Series(TEXTS),
        np.array(TEXTS),
        pytest.importorskip("polars").Series("abstract", TEXTS),
    ],
    ids=["named", "unnamed", "numpy", "polars"],
)
def test_a_series_is_a_table_of_one_column(one_column):
    assert TextTable(one_column).texts() == list(TEXTS)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (["a", None], "item 2 of the list is None, not a text"),
        (["a", "b", 3], "item 3 of the list is 3, not a text"),
        ([3], "item 1 of the list is 3, not a text or a row"),
        ([{"text": "a"}, "b"], "item 2 of the list is 'b', not a text or a row"),
    ],
)
def test_items_that_are_no_texts_are_named(items, message):
    with pytest.raises(InputError, match=message):
        to_arrow(items)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ({0: "rice", 1: "sleep"}, r"dict: give a list \(DataFrame.to_dict\('list'\)\), or one of"),
        ("rice", "str: give a list"),
        ({"rice", "sleep"}, "set: give a list"),
        (iter(["rice"]), "list_iterator: give a list"),
    ],
)
def test_columns_of_a_mapping_are_lists(column: object, kind: str) -> None:
    """Arrow would take the letters of a text, and the keys of a mapping."""
    with pytest.raises(InputError, match=f"the column 'text' is a {kind}"):
        to_arrow({"text": column})
    for whole in (["rice"], ("rice",), np.array(["rice"]), pd.Series(["rice"]), pa.array(["rice"])):
        assert to_arrow({"text": whole})["text"].to_pylist() == ["rice"]
    some = {f"word {number}" for number in range(9)}  # a set, whose order differs between runs
    assert to_arrow([{"tags": some}])["tags"].to_pylist() == [sorted(some)]


def test_periods_and_intervals_of_pandas_are_texts() -> None:
    months = pd.Series(pd.period_range("2001-01", periods=3, freq="M"))
    frame = pd.DataFrame({"month": months, "range": pd.cut(pd.Series([1, 7, None]), [0, 5, 9])})
    frame.loc[1, "month"] = pd.NaT
    expected = {"month": ["2001-01", None, "2001-03"], "range": ["(0, 5]", "(5, 9]", None]}
    assert to_arrow(frame).to_pydict() == expected
    assert to_arrow(frame.set_index("month")).to_pydict() == expected
    assert to_arrow(frame["month"]).to_pydict() == {"month": expected["month"]}
    assert to_arrow(dict(frame.items())).to_pydict() == expected
    assert to_arrow(pa.Table.from_pandas(frame)).to_pydict() == expected
    closed = pd.arrays.IntervalArray.from_breaks([0, 2, 6], closed="both")
    assert to_arrow(pd.DataFrame({"range": closed})).to_pydict() == {"range": ["0 to 2", "2 to 6"]}
    assert frame["month"].dtype == "period[M]"


@pytest.mark.parametrize("imported", [True, False])
def test_periods_and_intervals_of_pandas_in_parquet_are_texts(tmp_path: Path, imported: bool) -> None:
    ranges = pd.Series(pd.interval_range(0, 2))
    frame = pd.DataFrame({"year": pd.period_range("2001", periods=2, freq="Y"), "range": ranges})
    frame.to_parquet(tmp_path / "a.parquet")
    code = f"from sentence_experts.tables import *; print([*read_rows({str(tmp_path / 'a.parquet')!r})])"
    code = f"import pandas; {code}" if imported else code
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert ast.literal_eval(told) == [
        {"year": "2001", "range": "(0, 1]"}, {"year": "2002", "range": "(1, 2]"},
    ]  # fmt: skip
