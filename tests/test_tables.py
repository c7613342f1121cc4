from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentence_experts.errors import InputError
from sentence_experts.tables import BadRowError, TextTable, read_columns, read_rows, read_table, to_arrow

TEXTS = ["Rice in drought", "", 'A "quoted", text', "Zürich", "two\fpages", "last"]


def write(folder, name: str, texts=TEXTS):
    path = folder / name
    records = [{"id": f"p{number}", "abstract": text} for number, text in enumerate(texts)]
    kind = name.removesuffix(".gz").rsplit(".", 1)[1]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
        return path
    opener = gzip.open if name.endswith(".gz") else open
    with opener(path, "wt", encoding="utf-8", newline="") as file:
        if kind == "txt":
            file.writelines(f"{text}\n" for text in texts)
        elif kind == "jsonl":
            file.writelines(json.dumps(record) + "\n" for record in records)
        else:
            writer = csv.DictWriter(file, ["id", "abstract"], delimiter="," if kind == "csv" else "\t")
            writer.writeheader()
            writer.writerows(records)
    return path


@pytest.mark.parametrize(
    "name", ["a.txt", "a.csv", "a.tsv", "a.jsonl", "a.parquet", "a.txt.gz", "a.jsonl.gz"]
)
def test_every_format_gives_the_same_texts(tmp_path, name):
    column = None if ".txt" in name else "abstract"
    assert [row.text for row in TextTable(write(tmp_path, name), column).rows()] == TEXTS


def test_line_breaks_inside_csv_cells_and_windows_line_ends(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbfabstract,n\r\n"two\nlines",1\r\nplain,2\r\n')
    assert [row.text for row in TextTable(tmp_path / "a.csv", "abstract").rows()] == ["two\nlines", "plain"]
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo")
    assert [row.text for row in TextTable(tmp_path / "a.txt").rows()] == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "content", "column", "message"),
    [
        ("a.csv", b"id,title\n1,x\n", "abstract", "no column 'abstract'; columns are id, title"),
        ("a.csv", b"id,title\n1,x\n", None, "name the column .*columns are id, title"),
        ("a.jsonl", b'{"id": 1, "title": "x"}\n', "abstract", "no column 'abstract'; columns are id, title"),
        ("a.jsonl", b'{"abstract": "x"}\nnot json\n', "abstract", "row 2: not JSON"),
        ("a.jsonl", b"[1]\n", "abstract", "row 1: not a JSON object"),
        ("a.docx", b"x", None, "cannot tell its format"),
        ("a.txt", b"\xff\xfe\x00", None, "row 1: column text is not UTF-8"),
        ("a.txt.gz", b"not gzip", None, "row 1: the file breaks off here: Not a gzipped file"),
        ("a.parquet", b"not parquet", "x", "is no Parquet file"),
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


def test_list_of_texts_is_a_table():
    assert TextTable(["a", "b"]).texts() == ["a", "b"]
    assert TextTable(["a", "b"]).fingerprint() != TextTable(["ab"]).fingerprint()


@pytest.mark.parametrize("nothing", [3, "text"[0].encode(), np.array(3)])
def test_other_objects_are_refused(nothing):
    with pytest.raises(InputError, match="table"):
        to_arrow(nothing)


def test_missing_values_of_pandas_are_empty():
    frame = pd.DataFrame({"text": ["a", np.nan, None], "number": [1.5, np.nan, 2.0]})
    assert TextTable(frame, "text").texts() == ["a", "", ""]
    assert TextTable(frame, "number").texts() == ["1.5", "", "2.0"]


def test_row_that_is_not_utf8_is_named(tmp_path: Path):
    table = tmp_path / "latin.csv"
    table.write_bytes("id,title\n1,plain\n2,café\n3,last\n".encode("latin-1"))
    first, second, third = read_rows(table)
    assert (first["title"], third["title"]) == ("plain", "last")
    assert isinstance(second, BadRowError)
    assert str(second) == "column title is not UTF-8: save the file as UTF-8"


def test_file_that_breaks_off_ends_with_a_bad_row(tmp_path: Path):
    whole = gzip.compress("".join(f"text {n}\n" for n in range(5000)).encode())
    (tmp_path / "a.txt.gz").write_bytes(whole[:-500])
    *rows, last = read_rows(tmp_path / "a.txt.gz")
    assert rows[0] == {"text": "text 0"}
    assert "breaks off here" in str(last)


def test_two_columns_of_one_name_are_refused(tmp_path: Path):
    (tmp_path / "a.csv").write_text("id,id\n1,2\n")
    for read in (read_columns, lambda path: list(read_rows(path))):
        with pytest.raises(InputError, match="two columns are called 'id'"):
            read(tmp_path / "a.csv")


def test_whole_table_names_its_bad_row(tmp_path: Path):
    (tmp_path / "a.csv").write_text("id,title\n1,x\n2\n")
    with pytest.raises(InputError, match=r"a\.csv: row 2: 1 fields where the header has 2"):
        read_table(tmp_path / "a.csv", ["id"])
    with pytest.raises(InputError, match="lacks the column year; it has: id, title"):
        read_table(tmp_path / "a.csv", ["year"])
