"""Groups, linked rows, pairs of one label: the properties that every dataset relies on."""

from __future__ import annotations

from collections import Counter

import pytest

from sentence_experts.tasks.rows import Row, add_negative, text_key, thread
from sentence_experts.tasks.split import assign, number_linked, same_label_pairs, without

SHARES = (0.5, 0.25, 0.25)


def test_rows_that_are_linked_through_others() -> None:
    numbers = number_linked([("a", "b"), ("c",), ("b", "d"), ("d",), ("e",)])
    assert numbers[0] == numbers[2] == numbers[3]
    assert len({numbers[0], numbers[1], numbers[4]}) == 3


def test_a_group_is_in_the_same_set_in_every_dataset() -> None:
    titles = [Row(anchor=f"title {n}", positive=f"abstract {n}", group=f"paper {n}") for n in range(200)]
    some = [Row(anchor=f"title {n} abstract {n}", label="x", group=f"paper {n}") for n in range(0, 200, 3)]
    homes = {row.group: row.split for row in assign(titles, SHARES, seed=5)}
    assert all(homes[row.group] == row.split for row in assign(some, SHARES, seed=5))
    assert {row.group: row.split for row in assign(titles, SHARES, seed=6)} != homes
    shares = Counter(homes.values())
    assert 80 < shares["train"] < 120


def test_texts_of_two_groups_bring_them_together() -> None:
    rows = [
        Row(anchor="Same!", group="a"),
        Row(anchor="same", group="b"),
        *(Row(f"{n}", group="b") for n in range(9)),
    ]
    assert len({row.split for row in assign(rows, SHARES, seed=0)}) == 1


@pytest.mark.parametrize(
    ("subject", "of"),
    [
        ("Re: Rust in wheat", "rust in wheat"),
        ("RE: re: Fwd:  Rust  in wheat", "rust in wheat"),
        ("Re^2: Rust", "rust"),
        ("Re[3]: Rust", "rust"),
        ("Report: Rust", "report: rust"),
        ("Reading", "reading"),
    ],
)
def test_a_subject_names_a_thread(subject: str, of: str) -> None:
    assert thread(subject) == of


def test_equal_texts_but_for_case_and_punctuation() -> None:
    assert text_key("Rust, in wheat.") == text_key("rust in WHEAT")
    assert text_key("rust in wheat") != text_key("rust in rice")
    assert text_key("😡") != text_key("😀")
    assert text_key("café—au lait") == text_key("Cafe\u0301 au\u200b lait!")


@pytest.mark.parametrize(
    ("one", "other"), [("great 😀", "great 😡"), ("p < 0.05", "p > 0.05"), ("C++", "C#"), ("कि", "की")]
)
def test_texts_that_differ_in_symbols_or_vowel_signs_are_two(one: str, other: str) -> None:
    assert text_key(one) != text_key(other)


def test_each_text_is_anchor_and_positive_once() -> None:
    rows = [Row(f"text {n}", label="ab"[n % 2]) for n in range(11)] + [Row("alone", label="c")]
    pairs, lone = same_label_pairs(rows, seed=0)
    assert lone == ["c"]
    texts = sorted(row.anchor for row in rows if row.label != "c")
    assert sorted(pair.anchor for pair in pairs) == sorted(str(pair.positive) for pair in pairs) == texts
    labels = {row.anchor: row.label for row in rows}
    assert all(labels[pair.anchor] == labels[str(pair.positive)] == pair.label for pair in pairs)
    assert all(pair.anchor != pair.positive for pair in pairs)


def test_pairs_depend_on_the_seed_and_not_on_the_order_of_rows() -> None:
    rows = [Row(f"text {n}", label="a") for n in range(20)] + [Row("Text 1!", label="a")]
    assert same_label_pairs(rows[:20], seed=0) == same_label_pairs(rows[19::-1], seed=0)
    assert same_label_pairs(rows, seed=0) == same_label_pairs(rows[:20], seed=0)
    assert same_label_pairs(rows, seed=0) != same_label_pairs(rows, seed=1)


@pytest.mark.parametrize("order", [0, 1])
def test_a_pair_that_is_removed_counts_once_however_many_negatives_stand_beside_it(order: int) -> None:
    gone, kept = Row("a fruit", "in the test"), Row("a fruit", "an apple")
    rows = [gone, kept] if order else [kept, gone]
    for number in range(3):
        add_negative(rows, 0, f"no fruit {number}", None)
    rows = [row._replace(split="train") for row in rows]
    left, removed, _ = without(rows, "train", {text_key("in the test")}, set())
    assert removed == 1
    assert {(row.positive, row.negative) for row in left} == {("an apple", f"no fruit {n}") for n in range(3)}
