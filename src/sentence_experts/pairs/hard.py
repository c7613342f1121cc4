"""Hard negatives: matched negatives whose texts are near each other by TF-IDF.

The ends of the linked pairs are paired anew, as in `matched`, so that neither a work's frequency nor one text
alone tells the class; but the nearest texts are paired first. What words alone can tell is then little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.sparse import csr_array

from sentence_experts.pairs.matched import Allowed, keys_of

NEAREST = 10  # a text's neighbours that count as near it, of those that can be a negative with it
LINKED_TOO = 8  # times as many candidates are checked, since near texts are often linked
MAX_ROUNDS = 20
CELLS_AT_ONCE = 4_000_000  # similarities in memory
DIGITS = 6  # of a similarity: machines may round further ones differently


def near_first(
    ends: np.ndarray, texts: Sequence[str], allowed: Allowed, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Pair the ends of linked pairs so that texts near each other meet, where they may be a negative.

    The most similar of all near pairs comes first, and so on; works whose neighbours have no free end left
    get new neighbours among those that have one. What is then left is paired at random.

    Args:
        ends: works of the linked pairs, shape (pairs, 2).
        texts: of `np.unique(ends)`.
        allowed: tells which two works may be a negative.

    Returns:
        All ends in new pairs, of shape (pairs, 2), and the keys (`keys_of`) of those that are near.
    """
    works, free = np.unique(ends, return_counts=True)
    vectors = _vectors(texts)
    near = [np.empty((0, 2), dtype=np.int64)]
    for _ in range(MAX_ROUNDS):
        some, used = np.flatnonzero(free), keys_of(works[np.concatenate(near)])
        candidates = some[_near_pairs(vectors[some], works[some], allowed, used)]
        if not len(chosen := _taken_in_order(candidates, free)):
            break
        near.append(chosen)
    pairs = works[np.concatenate(near)]
    rest = rng.permutation(np.repeat(works, free)).reshape(-1, 2)
    return np.concatenate([pairs, rest]), keys_of(pairs)


def _vectors(texts: Sequence[str]) -> csr_array:
    """TF-IDF vectors of length one, shape (texts, words); words of one text alone make nothing similar."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    try:
        return csr_array(TfidfVectorizer(min_df=min(2, len(texts))).fit_transform(texts))
    except ValueError:  # no word at all
        return csr_array((len(texts), 1))


def _near_pairs(vectors: csr_array, works: np.ndarray, allowed: Allowed, used: np.ndarray) -> np.ndarray:
    """Indices, (pairs, 2), of similar texts that may be a negative, the most similar pair first.

    Pairs with a key in `used` are left out.
    """
    places, similarities = [np.empty((0, 2), dtype=np.int64)], [np.empty(0)]
    transposed = vectors.T.tocsr()
    step = max(1, CELLS_AT_ONCE // max(1, len(works)))
    for start in range(0, len(works), step):
        products = csr_array(vectors[start : start + step] @ transposed)
        rows, columns, values = _largest(products, LINKED_TOO * NEAREST + 1)
        rows += start
        fits = allowed(works[rows], works[columns])
        fits &= ~np.isin(keys_of(np.stack([works[rows], works[columns]], axis=1)), used)
        rows, columns, values = rows[fits], columns[fits], values[fits]
        # Sorted by row, the most similar first: the number of each within its row.
        rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
        nearest = rank < NEAREST
        places.append(np.sort(np.stack([rows, columns], axis=1)[nearest], axis=1))
        similarities.append(values[nearest])
    pairs, first = np.unique(np.concatenate(places), axis=0, return_index=True)
    order = np.lexsort((pairs[:, 1], pairs[:, 0], -np.concatenate(similarities)[first]))
    ordered: np.ndarray = pairs[order]
    return ordered


def _largest(products: csr_array, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row, column, value) of the `count` largest values of each row, by row, the largest first."""
    rows, columns, values = [], [], []
    for row in range(products.shape[0]):
        inside = slice(products.indptr[row], products.indptr[row + 1])
        own, at = np.round(products.data[inside], DIGITS), products.indices[inside]
        order = np.lexsort((at, -own))[:count]
        rows.append(np.full(len(order), row))
        columns.append(at[order])
        values.append(own[order])
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(values)


def _taken_in_order(pairs: np.ndarray, free: np.ndarray) -> np.ndarray:
    """The pairs, in their order, whose works both have a free end yet; `free` is lowered by theirs."""
    chosen = []
    for number, (left, right) in enumerate(pairs.tolist()):
        if free[left] and free[right]:
            free[left] -= 1
            free[right] -= 1
            chosen.append(number)
    return pairs[chosen]


def describe_near(counts: Mapping[str, Mapping[str, Mapping[str, int]]] | None) -> str | None:
    """A sentence about how many negatives (`DrawnNegatives.near`) are near; None if they are not hard."""
    if not counts:
        return None
    of_sets = [each for by_split in counts.values() for each in by_split.values()]
    near, every = (sum(each[name] for each in of_sets) for name in ("near", "all"))
    rest = "; the other works had no unlinked text near them and were matched at random"
    return (
        f"hard negatives: {near:,} of {every:,} join texts that are near each other by TF-IDF"
        f"{rest if near < every else ''}"
    )
