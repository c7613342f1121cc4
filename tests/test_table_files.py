"""Files of tables: encodings, separators, quotes, and what is broken."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.text_tables import write_texts
from sentence_experts.cells import BadRowError
from sentence_experts.errors import InputError
from sentence_experts.table_files import holds_rows
from sentence_experts.tables import read_columns, read_rows, read_table
from sentence_experts.text_table import TextTable

LATIN = [
    ("a.csv", "id,title\n1,plain\n2,café\n"),
    ("a.tsv", "id\ttitle\n1\tplain\n2\tcafé\n"),
    ("a.jsonl", '{"title": "plain"}\n{"title": "café"}\n'),
    ("a.txt", "plain\ncafé\n"),
]


def test_line_breaks_inside_csv_cells_and_windows_line_ends(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbfabstract,n\r\n"two\nlines",1\r\nplain,2\r\n')
    assert [row.text for row in TextTable(tmp_path / "a.csv", "abstract").rows()] == ["two\nlines", "plain"]
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo")
    assert [row.text for row in TextTable(tmp_path / "a.txt").rows()] == ["one", "two"]


@pytest.mark.parametrize("sign", [";", ",", "\t", "|"])
def test_the_separator_that_excel_names_in_the_first_line(sign: str, tmp_path: Path) -> None:
    rows = f"id{sign}title\r\n1{sign}Rice, and; roots\r\n".replace("Rice, and; roots", '"Rice, and; roots"')
    starts = [f"sep={sign}\r\n", f"\ufeffsep={sign}\n", f"\n\nSEP={sign}\n\n", f'"sep={sign}"\n']
    for number, start in enumerate([*starts, f"sep={sign}{sign} \n"]):
        path = tmp_path / f"{number}.csv"
        path.write_text(start + rows, encoding="utf-8", newline="")
        assert list(read_rows(path)) == [{"id": "1", "title": "Rice, and; roots"}]
        assert read_columns(path) == ["id", "title"]


@pytest.mark.parametrize("sign", [";", "\t"])
def test_csv_with_the_separator_of_other_countries(sign: str, tmp_path: Path) -> None:
    lines = [f"id{sign}title", f'1{sign}"Rice, {sign} roots"', f"2{sign}Sleep"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    assert list(read_rows(tmp_path / "a.csv")) == [
        {"id": "1", "title": f"Rice, {sign} roots"}, {"id": "2", "title": "Sleep"},
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "content"), LATIN)
def test_a_file_in_another_encoding_is_refused_with_row_and_byte(tmp_path: Path, name, content):
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=rf"{name}: line [23]: the byte 0xe9 is not UTF-8.*save the file as"):
        list(read_rows(tmp_path / name))


def test_a_header_in_another_encoding_is_refused(tmp_path: Path):
    (tmp_path / "a.csv").write_bytes("id,café\n1,x\n".encode("latin-1"))
    with pytest.raises(InputError, match="line 1: the byte 0xe9 is not UTF-8"):
        read_columns(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_bytes("id,title\n1,x\n".encode("utf-16-le"))
    with pytest.raises(InputError, match="zero bytes in the header"):
        read_columns(tmp_path / "a.csv")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize(("name", "content"), LATIN)
def test_files_with_a_byte_order_mark_are_read(tmp_path: Path, name, content, encoding):
    (tmp_path / name).write_bytes(content.encode(encoding))
    column = "text" if name == "a.txt" else "title"
    assert read_table(tmp_path / name, [column])[column].to_pylist() == ["plain", "café"]


@pytest.mark.parametrize("name", ["a.txt.gz", "a.csv.gz", "a.jsonl.gz", "a.parquet", "a.parquet.gz"])
def test_a_truncated_file_is_refused_by_name(tmp_path: Path, name):
    texts = [f"{'text' * 20} {n}" for n in range(5000)]
    path = write_texts(tmp_path, name.removesuffix(".gz") if "parquet" in name else name, texts)
    if name == "a.parquet.gz":
        path = tmp_path / name
        path.write_bytes(gzip.compress((tmp_path / "a.parquet").read_bytes()))
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(InputError, match=rf"{name}.*(truncated|not a Parquet file)"):
        list(read_rows(path))


def test_folders_and_pipes_are_no_tables(tmp_path: Path):
    (tmp_path / "a.csv").mkdir()
    os.mkfifo(tmp_path / "b.csv")
    for name in ("a.csv", "b.csv"):
        with pytest.raises(InputError, match="not a file"):
            read_columns(tmp_path / name)


def test_lines_have_a_limit(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("sentence_experts.table_files._MAX_LINE", 1000)
    for name in ("a.txt", "a.csv", "a.jsonl"):
        (tmp_path / name).write_text("x\n" + "y" * 2000)
        with pytest.raises(InputError, match="line 2 has more than 1,000 characters"):
            list(read_rows(tmp_path / name))


def test_a_quote_that_is_not_closed_swallows_no_rows(tmp_path: Path, caplog):
    (tmp_path / "a.csv").write_text('id,title\n1,"open\n2,x\n3,y\n')
    with pytest.raises(InputError, match="row 1: a quote is opened and never closed"):
        list(read_rows(tmp_path / "a.csv"))
    (tmp_path / "a.tsv").write_text('id\ttitle\n1\t"a" b\n2\tx\n')
    first, second = read_rows(tmp_path / "a.tsv")
    assert isinstance(first, BadRowError)
    assert second == {"id": "2", "title": "x"}
    (tmp_path / "raw.tsv").write_text('id\ttitle\n1\t"open\n2\tx\n3\ty"\n4\tz\n')
    *swallowed, last = read_rows(tmp_path / "raw.tsv")
    assert all("opens in one row and closes in another" in str(row) for row in swallowed)
    assert (len(swallowed), last) == (3, {"id": "4", "title": "z"})
    (tmp_path / "b.csv").write_text('id,title,year\n1,"5 inch,2001\n2,x,2002\n3,6",2003\n')
    with caplog.at_level("WARNING"):
        assert len([*read_rows(tmp_path / "b.csv")]) == 1
    assert "row 1 may be several" in caplog.text
    caplog.clear()
    text = "We saw 1,000 rice plants,\noak, ash\nand 1,000 elms, which grew,"
    pd.DataFrame({"id": [1], "title": [text], "year": [2]}).to_csv(tmp_path / "c.csv", index=False)
    assert [row["title"] for row in read_rows(tmp_path / "c.csv")] == [text]
    assert not caplog.text
    for row in ('"a,b\nc,d\ne,f\ng",h', 'a,"b\nc,d\ne,f\ng,h"', 'a,"b\nc,d\ne, f\ng,h"', 'a,"b\nc,d\ng,h"'):
        (tmp_path / "g.csv").write_text(f"anchor,positive\n{row}\n")
        assert len([*read_rows(tmp_path / "g.csv")]) == 1
        assert ("row 1 may be several" in caplog.text) is ("e,f" in row)
        caplog.clear()
    for text in ("Eggs,\nmilk, flour,\noil, salt\nrum, ice", "Oak\nand elm,\nash, yew\n1,000 firs, or so"):
        pd.DataFrame({"text": ["x"], "label": [text]}).to_csv(tmp_path / "h.csv", index=False)
        assert [row["label"] for row in read_rows(tmp_path / "h.csv")] == [text]
    assert not caplog.text
    for inside in ("2\tx\t2", "", "2\tx", "2\tx\t2\t"):  # lines of all widths inside the quote
        for last in "3", "":
            (tmp_path / "d.tsv").write_text(f'id\ta\tb\n1\t"x\ty\n{inside}\n{last}\tz"\tw\n')
            rows = [*read_rows(tmp_path / "d.tsv")]
            assert all(isinstance(row, BadRowError) for row in rows) or "may be several" in caplog.text
        caplog.clear()
    rows = "\n".join(["label\ttext", 'heart\t"a', *["\ttext"] * 60, 'oak"\tb', "\tx", ""])
    (tmp_path / "f.tsv").write_text(rows.replace("\n", "\r\n"))
    assert len([*read_rows(tmp_path / "f.tsv")]) > 60  # soon
    code = "def f(x):\n\ty = x\nif y:\n\treturn y"
    for frame in (pd.DataFrame({"code": [code], "label": [1]}), pd.DataFrame({"label": [1], "code": [code]})):
        frame.to_csv(tmp_path / "e.tsv", sep="\t", index=False)
        assert [row["code"] for row in read_rows(tmp_path / "e.tsv")] == [code]
    caplog.clear()
    text = "Aims:\n\tto test x.\n\n\tResults: y."
    pd.DataFrame({"id": [1], "title": [text], "year": [2]}).to_csv(tmp_path / "a.tsv", sep="\t", index=False)
    assert [row["title"] for row in read_rows(tmp_path / "a.tsv")] == [text]


def test_two_columns_of_one_name_are_refused(tmp_path: Path):
    (tmp_path / "a.csv").write_text("id,id\n1,2\n")
    for read in (read_columns, lambda path: list(read_rows(path))):
        with pytest.raises(InputError, match="two columns are called 'id'"):
            read(tmp_path / "a.csv")
    pq.write_table(pa.table([[1], [2]], names=["id", "id"]), tmp_path / "a.parquet")
    for source in (tmp_path / "a.parquet", pd.DataFrame([[1, 2]], columns=["id", "id"])):
        with pytest.raises(InputError, match=r"two columns are called 'id'|Duplicate column names"):
            read_columns(source)


def test_columns_of_json_lines_may_begin_in_any_row(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    rows = [
        {"anchor": f"a {n}", "positive": f"b {n}"} | ({"label": 0} if n > 120 else {}) for n in range(240)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_columns(file) == ["anchor", "positive", "label"]
    assert read_table(file, ["label"])["label"].null_count == 121
    file.write_text(file.read_text() + json.dumps(rows[0] | {"count": 2}) + "\n")
    assert read_columns(file) == ["anchor", "positive", "label", "count"], "the file has changed"


def test_lines_of_code_in_a_cell_are_no_rows() -> None:
    assert holds_rows(["one", "a\nb,no\nc,no\nd"], 1, ",") is False
    assert holds_rows(["a\nb,no\nc,no\nd", "no"], 0, ",") is False
    assert holds_rows(["a,no\nb,no\nc,no\nd", "no"], 0, ",") is True
    assert holds_rows(["k(a,b)\n g(a,b)\n h(c,d)\n x", "code"], 0, ",") is False
