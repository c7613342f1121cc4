"""Which works are linked: looked up by number, in either order."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.samples import make_pairs_folder, replace_table
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.training.data import LinkedPairs
from sentence_experts.training.losses import KnownPositives
from sentence_experts.training.training_set import number_texts


def linked(known: KnownPositives, works: int) -> set[tuple[int, int]]:
    numbers = torch.arange(works)
    mask = known(numbers[:, None], numbers[None, :])
    assert mask.diagonal().all()
    assert torch.equal(mask, mask.T)
    return {(i, j) for i, j in itertools.combinations(range(works), 2) if mask[i, j]}


def test_links_are_found_in_either_order() -> None:
    known = KnownPositives(torch.tensor([4, 0, 4, 1]), torch.tensor([1, 3, 1, 4]), count=5)
    assert linked(known, 5) == {(1, 4), (0, 3)}
    assert len(known.keys) == 2
    none = torch.tensor([])
    assert linked(KnownPositives(none, none, count=2**40), 3) == set(), "without links, no memory per number"


LABELS = st.lists(st.sets(st.integers(0, 5), max_size=4), min_size=1, max_size=12)


@given(LABELS)
def test_numbers_that_share_a_label_are_linked(labels: list[set[int]]) -> None:
    entries = [(number, label) for number, own in enumerate(labels) for label in own]
    known = KnownPositives(
        torch.tensor([0]),
        torch.tensor([len(labels) - 1]),
        len(labels),
        torch.tensor(entries).reshape(-1, 2).T,
    )
    ends = {(0, len(labels) - 1)} if len(labels) > 1 else set()
    expected = {(i, j) for i, j in itertools.combinations(range(len(labels)), 2) if labels[i] & labels[j]}
    assert linked(known, len(labels)) == expected | ends


def test_large_numbers_do_not_overflow() -> None:
    works = 3_000_000
    known = KnownPositives(torch.tensor([0, 2_999_998]), torch.tensor([2_999_999, 2_999_999]), works)
    left, right = torch.tensor([2_999_999, 2_999_998, 1, 0]), torch.tensor([0, 2_999_999, 2_999_999, 1])
    assert known(left, right).tolist() == [True, True, False, False]


def test_links_of_a_dataset_come_from_its_file(tmp_path: Path) -> None:
    folder = Pairs.open(make_pairs_folder(tmp_path / "pairs", pairs=6))
    train = folder.split("train")
    ids = sorted({*train["anchor_id"].to_pylist(), *train["positive_id"].to_pylist()})
    named = zip(train["anchor_id"].to_pylist(), train["positive_id"].to_pylist(), strict=True)
    pairs = {tuple(sorted((ids.index(a), ids.index(b)))) for a, b in named}
    assert linked(known_of(folder), len(ids)) == pairs

    rows = [{"left_id": ids[0], "right_id": ids[2]}, {"left_id": ids[1], "right_id": "of no training pair"}]
    replace_table(folder.path, "known_links.parquet", pa.Table.from_pylist(rows))
    assert linked(known_of(Pairs.open(folder.path)), len(ids)) == {(0, 2)}


def known_of(pairs: Pairs) -> KnownPositives:
    part = LinkedPairs(pairs)
    return number_texts([(part, part.routes)])[2]
