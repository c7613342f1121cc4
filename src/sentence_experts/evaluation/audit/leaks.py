"""Find what training and test pairs share: papers, texts, near-duplicates, pairs, contradictory labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sentence_experts.evaluation.audit.near_duplicates import near_duplicates, signatures
from sentence_experts.pairs.splits import fold_texts

ENDS = ("anchor", "positive")
# Kinds of leaks of a test pair, in the order of the report.
LEAKS = {
    "shared_paper": "a paper is in training pairs",
    "both_papers": "both papers are in training pairs",
    "shared_text": "a text is in training pairs",
    "near_duplicate": "a text has a near-duplicate in training pairs",
    "same_pair": "the pair is in training pairs",
    "linked_in_training": "not linked here, but linked in training",
}
# Name of a set of test pairs -> the leaks that its pairs do not have.
WITHOUT = {
    "all pairs": (),
    "without pairs of two training papers": ("both_papers",),
    "without training papers and texts": ("shared_paper", "shared_text"),
    "without near-duplicates either": ("shared_paper", "shared_text", "near_duplicate"),
}
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Overlap:
    """Numbers of papers, texts and near-duplicate texts of `second` that `first` has too."""

    first: str
    second: str
    papers: int
    texts: int
    near_duplicates: int


@dataclass(frozen=True)
class Leaks:
    """The leaks between splits.

    Attributes:
        overlaps: of every two splits.
        masks: kind (`LEAKS`) -> whether each test pair has it, shape (test pairs,).
        contradictions: number of pairs of the whole dataset that are both linked and not linked.
    """

    overlaps: tuple[Overlap, ...]
    masks: Mapping[str, Mask]
    contradictions: int

    def left(self, kinds: tuple[str, ...]) -> Mask:
        """Return the test pairs that have none of these leaks."""
        left = np.ones_like(self.masks["shared_paper"])
        for kind in kinds:
            left &= ~self.masks[kind]
        return left

    def leaked(self) -> Mask:
        """Return the test pairs that have any leak."""
        return np.asarray(np.any(list(self.masks.values()), axis=0))


def find_leaks(
    sets: Mapping[str, pa.Table], threshold: float = 0.7, known_links: pa.Table | None = None
) -> Leaks:
    """Compare the splits of a dataset.

    Args:
        sets: split -> pairs; at least `train` and `test`.
        threshold: similarity from which two texts count as near-duplicates.
        known_links: columns `left_id`, `right_id`: links of training papers, sampled as pairs or not.
    """
    texts = {split: _distinct_texts(table) for split, table in sets.items()}
    bands = {split: signatures(of_split) for split, of_split in texts.items()}
    overlaps, near_training = [], np.array([], dtype=object)
    for first, second in combinations(sets, 2):
        rows, *_ = near_duplicates(texts[second], texts[first], threshold, bands[second], bands[first])
        near = np.array(texts[second], dtype=object)[np.unique(rows)]
        if (first, second) == ("train", "test"):
            near_training = near
        papers = int(_in(_papers(sets[second]), _papers(sets[first])).sum())
        shared = len(set(texts[first]).intersection(texts[second]))
        overlaps.append(Overlap(first, second, papers, shared, len(near) - shared))
    masks = _masks(sets["train"], sets["test"], texts["train"], near_training.tolist(), known_links)
    return Leaks(tuple(overlaps), masks, _contradictions(sets))


def _masks(
    train: pa.Table, test: pa.Table, texts: list[str], near: list[str], known_links: pa.Table | None
) -> dict[str, Mask]:
    papers = _papers(train)
    ids = [_in(test[f"{end}_id"], papers) for end in ENDS]
    folded = [fold_texts(test[end]) for end in ENDS]
    pairs = set().union(*_keys(train))
    linked = set().union(*_keys(train.filter(pc.equal(train["label"], 1))))
    if known_links is not None:
        linked |= set(_unordered("id", known_links["left_id"], known_links["right_id"]))
    own = list(zip(*_keys(test), strict=True))
    unlinked = pc.equal(test["label"], 0).to_numpy(zero_copy_only=False)
    return {
        "shared_paper": ids[0] | ids[1],
        "both_papers": ids[0] & ids[1],
        "shared_text": np.any([_in(column, pa.array(texts)) for column in folded], axis=0),
        "near_duplicate": np.any([_in(column, pa.array(near, pa.string())) for column in folded], axis=0),
        "same_pair": np.array([not pairs.isdisjoint(keys) for keys in own]),
        "linked_in_training": unlinked & np.array([not linked.isdisjoint(keys) for keys in own]),
    }


def _distinct_texts(table: pa.Table) -> list[str]:
    columns = [fold_texts(table[end]).combine_chunks() for end in ENDS]
    return sorted(pa.concat_arrays(columns).unique().to_pylist())


def _papers(table: pa.Table) -> pa.Array:
    return pa.concat_arrays([table[f"{end}_id"].combine_chunks() for end in ENDS]).unique()


def _in(values: pa.ChunkedArray | pa.Array, known: pa.Array) -> Mask:
    return np.asarray(pc.is_in(values, known).to_numpy(zero_copy_only=False), dtype=bool)


def _keys(table: pa.Table) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return keys of each pair, by its ids and by its texts; the order of the two ends does not matter."""
    by_id = _unordered("id", *(table[f"{end}_id"] for end in ENDS))
    return by_id, _unordered("text", *(fold_texts(table[end]) for end in ENDS))


def _unordered(kind: str, left: pa.ChunkedArray, right: pa.ChunkedArray) -> list[tuple[str, ...]]:
    return [(kind, *sorted(ends)) for ends in zip(left.to_pylist(), right.to_pylist(), strict=True)]


def _contradictions(sets: Mapping[str, pa.Table]) -> int:
    everything = pa.concat_tables(sets.values())
    linked, unlinked = (everything.filter(pc.equal(everything["label"], label)) for label in (1, 0))
    known = set().union(*_keys(linked))
    own = zip(*_keys(unlinked), strict=True)
    return len({by_id for by_id, by_text in own if by_id in known or by_text in known})
