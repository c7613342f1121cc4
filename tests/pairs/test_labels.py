"""Label columns: what counts as a label, which pairs are drawn, and which conflict."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentence_experts.corpus.formats.mesh import MeshTree
from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.labels import (
    LabelColumn,
    Labels,
    read_labels,
    split_groups,
)


def read(cells: list[Any], column: str = "topic", branch: str | None = None, **options: Any) -> Labels:
    return read_labels(cells, LabelColumn(column, branch, branch or column), **options)


def sets_of(labels: Labels) -> list[set[str]]:
    return [
        {labels.names[place] for place in labels.matrix[[row]].indices}
        for row in range(len(labels.matrix.indptr) - 1)
    ]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["a", "b", "a"], [{"a"}, {"b"}, {"a"}]),
        ([["a; b", 1], ["01", 1.0], [None, "a; b"]], [{"a; b", "1"}, {"01", "1"}, {"a; b"}]),
        (['["a|b"]', "a|b", '["a|b", "b"]'], [{"a|b"}, {"a", "b"}, {"a|b", "b"}]),
        (["01", "1", "1", "01"], [{"01"}, {"1"}, {"1"}, {"01"}]),
        (["0", "0.5", "0.50"], [{"0"}, {"0.5"}, {"0.5"}]),
        (["1.0", "2.0", "1.00"], [{"1"}, {"2"}, {"1"}]),
        (["1.1", "1.10", "1.2"] * 2, [{"1.1"}, {"1.10"}, {"1.2"}] * 2),
        (["1", "1.1", "1.10"] * 2, [{"1"}, {"1.1"}, {"1.10"}] * 2),
        (["2.5", "?", ".", "3.0", "2.50", "-2"], [{"2.5"}, set(), set(), {"3"}, {"2.5"}, {"-2"}]),
        (["1_10", "11_0"] * 2, [{"1_10"}, {"11_0"}] * 2),
        (["a; b", "b|c", "a", None, " "], [{"a", "b"}, {"b", "c"}, {"a"}, set(), set()]),
        ([["a", "b"], ["b"], []], [{"a", "b"}, {"b"}, set()]),
        (['["a", "b"]', '["b"]'], [{"a", "b"}, {"b"}]),
        ([np.array(["a", "b"]), np.array(["b"])], [{"a", "b"}, {"b"}]),
        ([1999, 2000, 1999.0, float("nan")], [{"1999"}, {"2000"}, {"1999"}, set()]),
        ([True, False, True], [{"true"}, {"false"}, {"true"}]),
        (["1", "2", "1"], [{"1"}, {"2"}, {"1"}]),
        (["1", "NA", "2", "nan", "1.0"], [{"1"}, set(), {"2"}, set(), {"1"}]),
        ([20200115, 20200116, 20200115], [{"20200115"}, {"20200116"}, {"20200115"}]),
        (["['a', 'b']", "['b']"], [{"a", "b"}, {"b"}]),
        ([1000001, 1000002, 1000001], [{"1000001"}, {"1000002"}, {"1000001"}]),
        ([0.0, -0.0, 1], [{"0"}, {"0"}, {"1"}]),
        ([10**18, 10**18 + 1, 10**18], [{str(10**18)}, {str(10**18 + 1)}, {str(10**18)}]),
        ([10**400, 3**900, 10**400], [{str(10**400)}, {str(3**900)}, {str(10**400)}]),
        (["10000000000000000", "10000000000000001"] * 2, [{"10000000000000000"}, {"10000000000000001"}] * 2),
        (["inf", "nan", "inf", "NA", " null ", "x"], [{"inf"}, set(), {"inf"}, set(), set(), {"x"}]),
        (
            ["NA; x", "x; y", "y; nan ", ["x", "nan"], [float("nan")]],
            [{"x"}, {"x", "y"}, {"y"}, {"x"}, set()],
        ),
        (["none", "na; a", "na", "none"], [{"none"}, {"a", "na"}, {"na"}, {"none"}]),
        (["[" * 100_000 + "]" * 100_000, "a"] * 2, [{"[" * 100_000 + "]" * 100_000}, {"a"}] * 2),
    ],
)
def test_a_cell_holds_one_label_or_several(cells: list[Any], expected: list[set[str]]) -> None:
    assert sets_of(read(cells)) == expected


def test_cells_that_say_that_nothing_is_known_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        read(["a", "NA", "a", "NA", "b", "null"])
    assert "3 values are 'NA' or alike, which is no label" in caplog.text


def test_labels_in_two_unicode_forms_are_one_label() -> None:
    assert read(["caf\u00e9", "cafe\u0301", ["caf\u00e9"], "tea"] * 2).counts.tolist() == [6, 2]


def test_case_may_be_ignored() -> None:
    cells = ["Mouse; rice", "mouse", "Mouse", "RICE", "rice"]
    expected = [{"Mouse", "rice"}, {"Mouse"}, {"Mouse"}, {"rice"}, {"rice"}]
    assert sets_of(read(cells, ignore_case=True)) == expected
    assert len(read(cells).names) == 4


def test_a_separator_of_the_users_own() -> None:
    assert sets_of(read(["a, b; c", "b; c"], separator=",")) == [{"a", "b; c"}, {"b; c"}]


def test_many_numbers_are_cut_into_bins_of_equal_size() -> None:
    labels = read(list(range(100)), bins=4)
    assert len(labels.names) == 4
    assert set(labels.counts.tolist()) == {25}
    assert sets_of(read([str(n) for n in range(100)], bins=4)) == sets_of(labels)
    assert set(read([1e7 + n for n in range(100)], bins=4).counts.tolist()) == {25}
    assert labels.names == ("0 to 24", "25 to 49", "50 to 74", "75 to 99")
    assert set(read(list(range(25)) * 4).counts.tolist()) == {20}


def test_it_is_said_where_numbers_are_binned(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "sentence_experts")
    read(["1", "2", "1"])
    assert not caplog.messages
    read(list(range(100)), "year")
    assert caplog.messages == ["column 'year': cut into 5 ranges"]
    caplog.clear()
    read_labels([f"{n % 30},5" for n in range(60)], LabelColumn("score", None, "score"))
    told = "column 'score': numbers with a comma ({}) are labels; write a decimal point, or none"
    assert caplog.messages == [told.format("0,5")]
    caplog.clear()
    read([f"{100 * (n % 30):,}" for n in range(60)], "score")
    assert caplog.messages == [told.format("1,000")]


@pytest.mark.parametrize("cell", [lambda n: [n], lambda n: [str(n)], "[{}]".format, "{:03}".format])
def test_items_of_lists_and_codes_are_not_binned(cell: Callable[[int], Any]) -> None:
    assert len(read([cell(n) for n in range(100)] * 2).names) == 100


def test_numbers_of_which_most_are_equal_are_cut_into_bins_too() -> None:
    counts = read([0] * 90 + list(range(1, 31)))
    assert counts.names == ("0 to 0", "1 to 6", "7 to 30")
    assert counts.counts.tolist() == [90, 6, 24]


@pytest.mark.parametrize(
    ("branch", "cells", "expected"),
    [
        ("use", ["use::view; use::edit:image", "u::x", "use::view:x"], [{"view", "edit"}, set(), {"view"}]),
        ("C", [["C14.280", "C14"], ["E02.1"], ["C14.907", "C04"]], [{"C14"}, set(), {"C04", "C14"}]),
        ("C14", [["C14.280.647", "C04"], ["C14.280"], ["C14.907"]], [{"280"}, {"280"}, {"907"}]),
        ("1", ["1.10", "1.2", "1.1.5", "1.2.1"], [{"10"}, {"2"}, {"1"}, {"2"}]),
        ("biology", ["biology/cell", "biology/cell/yeast", "biology/plant"], [{"cell"}, {"cell"}, {"plant"}]),
    ],
)  # fmt: skip
def test_a_branch_has_the_labels_right_below_it(
    branch: str, cells: list[Any], expected: list[set[str]]
) -> None:
    assert sets_of(read(cells, branch=branch)) == expected


def test_mesh_headings_stand_in_the_tree(caplog: pytest.LogCaptureFixture) -> None:
    numbers = {"asthma": ("C08.127.108", "C20.543"), "heart failure": ("C14.280",), "mice": ("B01.050",)}
    tree = MeshTree(numbers)
    cells = [["*Asthma/drug therapy", "Mice"], ["Heart Failure"], ["C14.907", "unknown"], ["Asthma"]]
    assert sets_of(read(cells, "mesh", "C", tree=tree)) == [{"C08", "C20"}, {"C14"}, {"C14"}, {"C08", "C20"}]
    assert "1 of 6 values are headings that the descriptor file lacks, and so no labels" in caplog.text


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([None, "", float("nan")], "column 'topic' has no label in any of 3 texts"),
        (["a", "a", None], "2 of 3 texts have a label, 1 different ones ('a')"),
        (["a", "b", "c"], "3 different ones, and no two texts share one"),
        (
            [f"x{n}" for n in range(2000)],
            "2,000 different ones, and no two",
        ),
        (["a", 3, "b", 4.5], "column 'topic' mixes kinds of labels: 2 numbers and 2 texts"),
        (["a", 3, ["b"], True], "column 'topic' mixes kinds of labels: 1 numbers and 2 texts"),
        (["a", {"a": 1}], "column 'topic' holds an object ({'a': 1}), not labels (in 1 of 2 texts)"),
    ],
)
def test_a_useless_column_is_named_with_its_counts(cells: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        read(cells)


def test_columns_and_branches_are_named() -> None:
    columns: dict[str, list[Any]] = {"tags": [], "use-of:it": [], "year": []}
    assert LabelColumn.parse("tags:use", columns) == LabelColumn("tags", "use", "use")
    assert LabelColumn.parse("aim=tags:use", columns) == LabelColumn("tags", "use", "aim")
    assert LabelColumn.parse("tags:C", columns) == LabelColumn("tags", "C", "tags-C")
    assert LabelColumn.parse("use-of:it", columns) == LabelColumn("use-of:it", None, "use-of-it")
    with pytest.raises(InputError, match="no column 'tag'; the columns are tags, use-of:it, year"):
        LabelColumn.parse("tag", columns)
    for wrong in ("", ":use", "tags:", "=tags"):
        with pytest.raises(UsageError, match="not of the form"):
            LabelColumn.parse(wrong, columns)
    with pytest.raises(UsageError, match="letters, digits"):
        LabelColumn.parse("5=tags", columns)


def test_the_name_of_a_branch_finds_its_column() -> None:
    columns = {
        "subjects": [["use::view", "role::x"], []], "kind": ["role::y"], "year": [1], "object": [{"a": 1}],
    }  # fmt: skip
    assert LabelColumn.parse("use", columns) == LabelColumn("subjects", "use", "use")
    assert LabelColumn.parse("aim=use", columns) == LabelColumn("subjects", "use", "aim")
    known = "the columns are subjects, kind, year, object"
    with pytest.raises(InputError, match=f"no column 'tags'; {known}; subjects:use has such labels"):
        LabelColumn.parse("tags:use", columns)
    of_two = f"no column 'role'; {known}; subjects:role has such labels; kind:role has such labels"
    with pytest.raises(InputError, match=of_two):
        LabelColumn.parse("role", columns)
    with pytest.raises(InputError, match=f"no column 'view'; {known}$"):
        LabelColumn.parse("view", columns)


LABELLED = st.lists(st.lists(st.sampled_from("abcdef"), max_size=3), min_size=6, max_size=40)


@given(LABELLED, st.integers(1, 6), st.integers(0, 9))
def test_drawn_pairs_share_a_label_and_no_group(cells: list[list[str]], size: int, seed: int) -> None:
    try:
        labels = read(cells)
    except InputError:
        return
    groups = np.arange(len(cells)) // size
    first, second = labels.draw_pairs(200, np.random.default_rng(seed), groups)
    sets = sets_of(labels)
    for one, other in zip(first, second, strict=True):
        assert sets[one] & sets[other]
        assert groups[one] != groups[other]


def test_rare_labels_are_drawn_more_often_than_their_share_of_pairs() -> None:
    labels = read(["often"] * 900 + ["rare"] * 100)
    first, _ = labels.draw_pairs(20_000, np.random.default_rng(0), np.arange(1000))
    share = (first >= 900).mean()
    assert 0.14 < share < 0.18  # 100 ** 0.75 / (100 ** 0.75 + 900 ** 0.75) = 0.161; of all pairs it is 0.012


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200), st.integers(0, 9))
def test_a_group_is_in_one_set(groups: list[int], seed: int) -> None:
    numbers = np.array(groups)
    sets = split_groups(numbers, {"train": 0.7, "validation": 0.1, "test": 0.2}, seed)
    assert sorted(np.concatenate(list(sets.values())).tolist()) == list(range(len(groups)))
    of_sets = [set(numbers[rows].tolist()) for rows in sets.values()]
    assert sum(map(len, of_sets)) == len(set(groups))


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ([*(f"{n} mg" for n in range(30)), "none"], "31 of 31 values are a number with 'mg', such as '0 mg'"),
        ([f"${n}" for n in range(30)], "31 of 31 values are a number with '$'"),
        ([f"{n / 2}%" for n in range(30)], "31 of 31 values are a number with '%'"),
        ([*(f"{n % 9} mg" for n in range(30))], ""),
        ([f"-{n}\xa0°C" for n in range(30)], "31 of 31 values are a number with '°C'"),
        ([f"{n}th" for n in range(30)], ""),
        ([f"{n}A" for n in range(30)], ""),
        ([f"{n}00s" for n in range(30)], ""),
        ([*map(str, range(40)), "c1990", "3-4"], "41 of 43 values are numbers, but 'c1990'"),
        ([*map(str, range(980, 1002)), "1,003"], "numbers with a comma (1,003) are labels"),
        ([*map(str, range(80)), *["unknown"] * 20], "81 of 101 values are numbers, but 'unknown'"),
        ([*[f"{n:04}" for n in range(40)], "01A3"], ""),
        ([*[str((1 << 60) + n) for n in range(40)], "none given"], ""),
        ([f"{n} rooms to let" for n in range(30)], ""),
    ],
)
def test_texts_among_numbers_are_told_but_not_among_codes(
    cells: list[str], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    read([*cells, cells[0]])
    assert told in caplog.text
    assert bool(told) == bool(caplog.text)


def test_white_space_inside_labels_does_not_tell_them_apart() -> None:
    assert read(["sleep  apnea", "sleep\u00a0apnea", ["sleep apnea"], "rice"]).names == (
        "rice",
        "sleep apnea",
    )


@pytest.mark.parametrize("cell", ["2O01", "in press", "'2001"])
def test_a_typing_error_among_numbers_is_told(cell: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "sentence_experts")
    years = [str(1960 + n % 40) for n in range(119)]
    assert len(read([*years, cell]).names) == 41
    assert f"119 of 120 values are numbers, but {cell!r} is none" in caplog.text
    caplog.clear()
    assert len(read([*years, ""]).names) == 5
    read([*years[:8], *[f"class {n % 3}" for n in range(9)]])
    assert not caplog.text


def test_labels_that_differ_in_case_are_told(caplog: pytest.LogCaptureFixture) -> None:
    cells = ["Image", "image", "Image", "Text", "Text"]
    assert read(cells).names == ("Image", "Text", "image")
    assert "labels differ in case alone (1), such as 'Image' and 'image'" in caplog.text
    caplog.clear()
    assert read(cells, ignore_case=True).names == ("Image", "Text")
    assert not caplog.text


def test_bytes_are_no_labels() -> None:
    with pytest.raises(
        InputError, match=r"column 'topic' holds bytes \(b'x'\), not labels \(in 2 of 3 texts"
    ):
        read([b"x", b"x", "y"])
