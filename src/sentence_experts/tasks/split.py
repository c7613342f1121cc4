"""Train, validation and test: by group, by text, across all datasets; and pairs of texts of one label."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence

import numpy as np

from sentence_experts.pairs.splits import find_components
from sentence_experts.storage import sha256_text
from sentence_experts.tasks.rows import Row, add_negative, text_key
from sentence_experts.tasks.task_file import Kind

logger = logging.getLogger(__name__)
Counted = tuple[tuple[str, ...], int | None]

TRAIN, VALIDATION, TEST = SPLITS = ("train", "validation", "test")


def assign(rows: Sequence[Row], fractions: tuple[float, float, float], seed: int) -> list[Row]:
    """Give each row a split; rows that share a group or a text get the same one.

    The split depends only on the seed and the name of the group (without groups: on the texts). So a paper is
    in the same split in every dataset made of its corpus, and rows that are added later do not move others;
    the shares hold on average.
    """
    if not rows:
        return []
    keys = [list(map(text_key, row.texts())) for row in rows]
    groups = [[] if row.group is None else [("group", row.group)] for row in rows]
    together = number_linked([[*texts, *own] for texts, own in zip(keys, groups, strict=True)])
    names: dict[int, str] = {}
    for row, texts, component in zip(rows, keys, together, strict=True):
        name = row.group if row.group is not None else min(texts)
        names[component] = min(name, names.get(component, name))
    bounds = np.cumsum(fractions)[:2]
    homes = {
        component: SPLITS[int(np.searchsorted(bounds, uniform(seed, name), side="right"))]
        for component, name in names.items()
    }
    return [row._replace(split=homes[component]) for row, component in zip(rows, together, strict=True)]


def uniform(seed: int, name: str) -> float:
    """Return a number in [0, 1) that depends only on the seed and the name."""
    return int(sha256_text(str(seed), name)[:13], 16) / 16**13


def number_linked(keys: Sequence[Sequence[Hashable]]) -> list[int]:
    """Return a number per row: the same for rows that share a key, also through other rows."""
    numbers: dict[Hashable, int] = {}
    ends = [(row, numbers.setdefault(key, len(numbers))) for row, own in enumerate(keys) for key in own]
    left, right = np.array(ends, dtype=np.int64).reshape(-1, 2).T
    components = find_components(left, right + len(keys), len(keys) + len(numbers))
    return [int(number) for number in components[: len(keys)]]


def keys_of(rows: Sequence[Row], split: str, negatives: bool = False) -> set[str]:
    """Return the keys of all texts of a split, with `negatives` theirs too."""
    own = [row for row in rows if row.split == split]
    keys = {text_key(text) for row in own for text in row.texts()}
    return keys | {text_key(row.negative) for row in own if negatives and row.negative}


def _keys(row: Row) -> tuple[str, ...]:
    return tuple(map(text_key, row.texts()))


def without(rows: Sequence[Row], split: str, seen: set[str], groups: set[str]) -> tuple[list[Row], int, int]:
    """Remove the rows of `split` that are of one of the `groups` or hold a text whose key is in `seen`.

    Of a negative of which this is true, only the negative is removed; a pair stays once, with its other
    negatives if it has any. A negative that was a row goes to another row of its anchor.

    Returns:
        The rows, the number of removed rows, and the number of removed negatives.
    """
    others: list[Row] = []
    bare: dict[tuple[str, ...], Row] = {}
    torn = {_keys(row) for row in rows if row.split == split and row.group in groups}
    removed = negatives = 0
    gone: set[tuple[str, ...]] = set()  # removed pairs
    left: list[Row] = []  # removed rows of which the negatives may stay
    for row in rows:
        if row.split != split:
            others.append(row)
        elif (keys := _keys(row)) in torn or not seen.isdisjoint(keys):
            # The same pair, beside another negative that was a row, is no second one.
            removed += not (row.negative_is_row and row.texts() in gone)
            gone.add(row.texts())
            left += [row] if row.negative_is_row else []
        elif row.negative and (row.negative_group in groups or text_key(row.negative) in seen):
            bare.setdefault(
                row.texts(), row._replace(negative=None, negative_group=None, negative_is_row=False)
            )
            negatives += 1
        else:
            others.append(row)
    paired = {row.texts() for row in others if row.split == split} if bare else set()
    others += [row for texts, row in bare.items() if texts not in paired]
    places = {text_key(row.anchor): at for at, row in reversed([*enumerate(others)]) if row.split == split}
    for row in left:
        negative, at = str(row.negative), places.get(text_key(row.anchor))
        if at is not None and row.negative_group not in groups and text_key(negative) not in seen:
            add_negative(others, at, negative, row.negative_group)
    return others, removed, negatives


def sample(rows: Sequence[Row], maximum: int | None, seed: int, kind: Kind) -> list[Row]:
    """Sample at most `maximum` labelled or scored texts, pairs with their negatives, or queries to re-rank.

    A query stays with all its pairs, unless most have too many: a text that is left out would be taken for a
    wrong answer where it is that of another query. The rows stay in their order; the choice depends only on
    the seed and their texts.
    """
    if maximum is None or len(rows) <= maximum:
        return list(rows)
    is_query, has_queries = kind.mteb_type == "Reranking", "negative" in kind.optional
    counted = [
        ((row.anchor,) if is_query else row.texts(), None if has_queries else number)
        for number, row in enumerate(rows)
    ]
    units: Sequence[Hashable] = [row.anchor for row in rows] if has_queries else counted
    chosen, size = _draw(units, counted, maximum, seed)
    if has_queries and size < min(maximum, len({*counted})) / 2:  # queries with more pairs than fit
        logger.warning(
            f"most queries have too many pairs for a maximum of {maximum:,}, so they lose some of them: the "
            "texts of these may count as wrong answers, or as negatives"
        )
        units, (chosen, _) = counted, _draw(counted, counted, maximum, seed)
    return [row for row, unit in zip(rows, units, strict=True) if unit in chosen]


def _draw(
    units: Sequence[Hashable], counted: Sequence[Counted], maximum: int, seed: int
) -> tuple[set[Hashable], int]:
    """Draw units of at most `maximum` parts together; also returns their number."""
    parts: dict[Hashable, set[Counted]] = {}
    for unit, each in zip(units, counted, strict=True):
        parts.setdefault(unit, set()).add(each)
    drawn = {}
    for unit, own in parts.items():
        texts = min(own, key=str)[0] if len(own) == 1 else (str(unit),)
        drawn[unit] = uniform(seed, "\0".join(texts))
    chosen, size = set[Hashable](), 0
    for unit in sorted(drawn, key=drawn.__getitem__):
        if size + len(parts[unit]) <= maximum:
            chosen.add(unit)
            size += len(parts[unit])
    return chosen, size


def same_label_pairs(rows: Sequence[Row], seed: int) -> tuple[list[Row], list[str]]:
    """Make pairs of the labelled texts of one split; also returns the labels of one text, which have no pair.

    Each text is the anchor of one pair and the positive of one: the texts of a class form a circle, in an
    order given by the seed and their words. Texts that differ only in punctuation count as one.

    Source: MoTE, section 2.1 (pairs for each downstream task) and appendix D.2. Its pairs come from datasets
    published as pairs; here they are made from the labels.
    """
    classes: dict[str, dict[str, Row]] = {}
    for row in rows:
        classes.setdefault(str(row.label), {}).setdefault(text_key(row.anchor), row)
    pairs: list[Row] = []
    for label, texts in sorted(classes.items()):
        circle = [texts[key] for key in sorted(texts, key=lambda key: (uniform(seed, key), key))]
        if len(circle) > 1:
            following = [*circle[1:], circle[0]]
            for row, other in zip(circle, following, strict=True):
                pairs.append(Row(row.anchor, other.anchor, label=label))
    return pairs, sorted(label for label, texts in classes.items() if len(texts) == 1)
