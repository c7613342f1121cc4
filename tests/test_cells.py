"""Cells of tables as texts, identifiers and lists."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sentence_experts.cells import identifiers, parse_list
from sentence_experts.errors import InputError
from sentence_experts.tables import read_table
from sentence_experts.text_table import TextTable


@pytest.mark.parametrize(
    "items", [["a"], ["it's", "b"], ['say "x", y', "a"], ["the 'a' 'b'", "c"], ["5'", "3', 2'"], [], ["a, b"]]
)
def test_lists_in_cells_are_read_as_they_were_written(items: list[str]) -> None:
    for written in (str(items), json.dumps(items), str(np.array(items, object)), f"  {items} "):
        assert parse_list(written) == items
    for text in (f"{tuple(items)}", f"frozenset({set(items)})", str([*items, np.nan]), repr(np.array(items))):
        if items:
            assert sorted(parse_list(text)) == sorted(items)
    for text in ("(a)", "Title (see 'x')", "{a}", "{'a': 1}", "[a] b [c]", "[a", "plain", "[review]"):
        assert parse_list(text) is None


@pytest.mark.parametrize("value", [["a"], {"a": 1}, b"caf\xe9"])
def test_lists_objects_and_bytes_are_no_texts(value):
    with pytest.raises(InputError, match="row 2: a text is expected"):
        TextTable(pa.table({"text": [None, value]}), "text").texts()


def test_half_a_surrogate_pair_is_refused(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"text": "a\\ud800"}\n')
    with pytest.raises(InputError, match="row 1: half of a surrogate pair"):
        TextTable(tmp_path / "a.jsonl", "text").texts()
    with pytest.raises(InputError, match="row 1: half of a surrogate pair"):
        read_table(tmp_path / "a.jsonl", ["text"])


def test_whole_floats_are_identifiers_and_fractions_none():
    frame = pd.DataFrame({"id": [11, None], "text": ["a", "b"]})
    assert [row.id for row in TextTable(frame, "text", "id").rows()] == ["11", None]
    with pytest.raises(InputError, match=r"row 1: 11\.5 is not an identifier"):
        TextTable({"id": [11.5], "text": ["a"]}, "text", "id").texts()
    column = pa.chunked_array([[11.0, None, float("nan")]])
    assert identifiers(column, "x").to_pylist() == ["11", None, None]
    assert identifiers(pa.chunked_array([["11.0", "v1.0"]]), "x").to_pylist() == ["11", "v1.0"]
    for wrong in ([0.5], [True], [[1]]):
        with pytest.raises(InputError, match="x: "):
            identifiers(pa.chunked_array([wrong]), "x")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_texts_of_an_id_column_stay_as_they_are(tmp_path: Path, name: str) -> None:
    ids = ["7.0", "7", "1.00", "007", "12345678901234567890.0"]
    frame = pd.DataFrame({"id": ids, "text": list("abcde")})
    if name.endswith("csv"):
        frame.to_csv(tmp_path / name, index=False)
    elif name.endswith("jsonl"):
        frame.to_json(tmp_path / name, orient="records", lines=True)
    else:
        frame.to_parquet(tmp_path / name)
    assert [row.id for row in TextTable(tmp_path / name, "text", "id").rows()] == ids
