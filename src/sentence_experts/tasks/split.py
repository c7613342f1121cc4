"""Train, validation and test: by group, by text, across all datasets; and pairs of texts of one label."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from sentence_experts.storage import sha256_text
from sentence_experts.tasks.rows import Row, text_key

TRAIN, VALIDATION, TEST = SPLITS = ("train", "validation", "test")


def assign(rows: Sequence[Row], fractions: tuple[float, float, float], seed: int) -> list[Row]:
    """Give each row a split; rows that share a group or a text get the same one.

    The split depends only on the seed and the name of the group (without groups: on the texts). So a paper is
    in the same split in every dataset made of its corpus, and rows that are added later do not move others;
    the shares hold on average.
    """
    if not rows:
        return []
    bounds = np.cumsum(fractions)[:2]
    together = linked([_keys(row) for row in rows])
    names: dict[int, str] = {}
    for row, component in zip(rows, together, strict=True):
        name = row.group if row.group is not None else min(map(text_key, row.texts()))
        names[component] = min(name, names.get(component, name))
    homes = {
        component: SPLITS[int(np.searchsorted(bounds, uniform(seed, name), side="right"))]
        for component, name in names.items()
    }
    return [replace(row, split=homes[component]) for row, component in zip(rows, together, strict=True)]


def uniform(seed: int, name: str) -> float:
    """A number in [0, 1) that depends only on the seed and the name."""
    return int(sha256_text(str(seed), name)[:13], 16) / 16**13


def linked(keys: Sequence[Sequence[Hashable]]) -> list[int]:
    """A number per row: the same for rows that share a key, also through other rows."""
    numbers: dict[Hashable, int] = {}
    ends = [(row, numbers.setdefault(key, len(numbers))) for row, own in enumerate(keys) for key in own]
    left, right = np.array(ends, dtype=np.int64).reshape(-1, 2).T
    size = len(keys) + len(numbers)
    graph = coo_array((np.ones(len(ends), dtype=np.int8), (left, right + len(keys))), shape=(size, size))
    components: list[int] = connected_components(graph, directed=False)[1][: len(keys)].tolist()
    return components


def _keys(row: Row) -> list[Hashable]:
    texts: list[Hashable] = [("text", text_key(text)) for text in row.texts()]
    return texts if row.group is None else [*texts, ("group", row.group)]


def keys_of(rows: Sequence[Row], split: str) -> set[str]:
    """The keys of all texts of a split."""
    return {text_key(text) for row in rows if row.split == split for text in row.texts()}


def without(rows: Sequence[Row], split: str, seen: set[str]) -> tuple[list[Row], int, int]:
    """Remove the rows of `split` that hold a text whose key is in `seen`; of a negative, only the negative.

    Returns:
        The rows, the number of removed rows, and the number of removed negatives.
    """
    others: list[Row] = []
    removed = negatives = 0
    for row in rows:
        if row.split == split:
            if any(text_key(text) in seen for text in row.texts()):
                removed += 1
                continue
            if row.negative is not None and text_key(row.negative) in seen:
                row = replace(row, negative=None)
                negatives += 1
        others.append(row)
    return others, removed, negatives


def sample(rows: Sequence[Row], maximum: int | None, seed: int) -> list[Row]:
    """Sample at most `maximum` rows, in their order; the choice depends only on the seed and their texts."""
    if maximum is None or len(rows) <= maximum:
        return list(rows)
    order = sorted(
        range(len(rows)), key=lambda number: (uniform(seed, "\0".join(rows[number].texts())), number)
    )
    return [rows[number] for number in sorted(order[:maximum])]


def same_label_pairs(rows: Sequence[Row], pairs_per_text: int, seed: int) -> tuple[list[Row], list[str]]:
    """Make pairs of the labelled texts of one split; also returns the labels of one text, which have no pair.

    Each text is the anchor of `pairs_per_text` pairs (fewer in a smaller class) and the positive of as many:
    the texts of a class form a circle, in an order given by the seed and their words, and each is paired with
    those that follow. Texts that differ only in punctuation count as one.

    Source: MoTE, section 2.1 (pairs for each downstream task) and appendix D.2. Its pairs come from datasets
    published as pairs; here they are made from the labels.
    """
    classes: dict[str, dict[str, Row]] = {}
    for row in rows:
        classes.setdefault(str(row.label), {}).setdefault(text_key(row.anchor), row)
    pairs: list[Row] = []
    for label, texts in sorted(classes.items()):
        circle = [texts[key] for key in sorted(texts, key=lambda key: (uniform(seed, key), key))]
        for step in range(1, min(pairs_per_text, len(circle) - 1) + 1):
            turned = circle[step:] + circle[:step]
            pairs += [
                Row(anchor=row.anchor, positive=other.anchor, label=label)
                for row, other in zip(circle, turned, strict=True)
            ]
    return pairs, sorted(label for label, texts in classes.items() if len(texts) == 1)
