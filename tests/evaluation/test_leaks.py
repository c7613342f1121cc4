"""Each leak is found where it was planted, and nowhere else."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sentence_experts.evaluation.audit import LEAKS, Overlap, find_leaks

TITLES = {
    "a": "Rust of wheat in dry fields of the north",
    "b": "Sleep strengthens the memory of mice at night",
    "c": "Axons grow along glia in the young retina",
    "d": "Millet harvests fail where the monsoon is late",
    "e": "Chromosomes segregate along the mitotic spindle",
    "f": "Viruses enter cells through a receptor for lipids",
    "g": "A kinase phosphorylates the channel of the membrane",
    "h": "Stem cells of the gut renew themselves each week",
}


def table(*rows: tuple[str, str, int], **titles: str) -> pa.Table:
    known = TITLES | titles
    return pa.table(
        {
            "anchor": [known[one] for one, _, _ in rows],
            "positive": [known[other] for _, other, _ in rows],
            "label": [label for *_, label in rows],
            "domain": ["all"] * len(rows),
            "anchor_id": [one for one, _, _ in rows],
            "positive_id": [other for _, other, _ in rows],
        }
    )


TRAIN = table(("a", "b", 1), ("b", "c", 1))
NEAR = TITLES["a"].replace("fields", "field")
TESTS = {
    "clean": (table(("e", "f", 1)), set()),
    "one paper": (table(("e", "a", 1)), {"shared_paper", "shared_text", "near_duplicate"}),
    "two papers": (
        table(("c", "a", 1)),
        {"shared_paper", "both_papers", "shared_text", "near_duplicate"},
    ),
    "the pair, turned": (
        table(("b", "a", 1)),
        {"shared_paper", "both_papers", "shared_text", "near_duplicate", "same_pair"},
    ),
    "contradicted": (table(("b", "a", 0)), set(LEAKS)),
    "a text under another id": (
        table(("e", "x", 1), x=f"  {TITLES['a'].upper()}"),
        {"shared_text", "near_duplicate"},
    ),
    "a pair of texts under other ids": (
        table(("y", "x", 0), x=TITLES["a"], y=TITLES["b"]),
        {"shared_text", "near_duplicate", "same_pair", "linked_in_training"},
    ),
    "nearly a text": (table(("e", "x", 1), x=NEAR), {"near_duplicate"}),
    "another text under one id": (table(("e", "a", 1), a=TITLES["g"]), {"shared_paper"}),
}


@pytest.mark.parametrize("name", TESTS)
def test_each_leak_is_found(name: str) -> None:
    test, expected = TESTS[name]
    # A clean pair behind it has no leak whatever the first one has.
    test = pa.concat_tables([test, table(("g", "h", 1))])
    _, masks, _ = find_leaks({"train": TRAIN, "test": test})
    assert {kind for kind, mask in masks.items() if mask[0]} == expected
    assert list(masks) == list(LEAKS)
    assert not any(mask[1] for mask in masks.values())


def test_links_that_were_not_sampled_count_as_linked_in_training() -> None:
    test = table(("a", "c", 0), ("e", "f", 0))
    links = pa.table({"left_id": ["a"], "right_id": ["c"]})
    assert find_leaks({"train": TRAIN, "test": test})[1]["linked_in_training"].tolist() == [False, False]
    found = find_leaks({"train": TRAIN, "test": test}, known_links=links)
    assert found[1]["linked_in_training"].tolist() == [True, False]


def test_overlaps_are_counted_for_every_two_splits() -> None:
    sets = {
        "train": TRAIN,
        "validation": table(("c", "d", 1)),
        "test": table(("d", "x", 1), ("c", "e", 0), x=NEAR),
    }
    assert find_leaks(sets)[0] == (
        Overlap("train", "validation", papers=1, texts=1, near_duplicates=0),
        Overlap("train", "test", papers=1, texts=1, near_duplicates=1),
        Overlap("validation", "test", papers=2, texts=2, near_duplicates=0),
    )


def test_pair_with_both_labels_is_a_contradiction() -> None:
    noisy = table(("e", "f", 1), ("f", "e", 0), ("g", "h", 0))
    assert find_leaks({"train": TRAIN, "test": noisy})[2] == 1
    assert find_leaks({"train": TRAIN, "test": table(("e", "f", 1))})[2] == 0
