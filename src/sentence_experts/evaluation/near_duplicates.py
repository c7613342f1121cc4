"""Near-duplicate texts: MinHash finds candidates, their exact similarity decides.

The similarity of two texts is the Jaccard similarity of their sets of five-character pieces. A MinHash
signature holds the minimum of each of 128 hash functions over the set; two signatures agree in a place with a
probability equal to the similarity of the sets. Texts that agree in one of 32 bands of four places are
candidates: 99.98% of those with similarity 0.7, 0.3% of those with 0.1 (Broder 1997; Indyk & Motwani 1998).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import HashingVectorizer

from sentence_experts.progress import progress

PIECE = 5
BANDS, PLACES = 32, 4
TEXTS_AT_ONCE = 500
CANDIDATES_AT_ONCE = 5_000
PRIME = np.uint64(2**31 - 1)
NO_PIECES = np.uint64(2**63)

_pieces = HashingVectorizer(
    analyzer="char_wb", ngram_range=(PIECE, PIECE), binary=True, norm=None, alternate_sign=False
)
Rows = NDArray[np.int64]


def signatures(texts: Sequence[str]) -> NDArray[np.uint64]:
    """Return the bands of each text's MinHash signature: shape (texts, BANDS), one number per band."""
    rng = np.random.default_rng(0)
    factors, shifts = rng.integers(1, int(PRIME), size=(2, BANDS * PLACES), dtype=np.uint64)
    bands = np.full((len(texts), BANDS), NO_PIECES)
    with progress("near-duplicates: signatures", len(texts)) as advance:
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            sets = _pieces.transform(texts[start : start + TEXTS_AT_ONCE])
            filled = np.flatnonzero(np.diff(sets.indptr))
            places = np.empty((len(filled), BANDS, PLACES), dtype=np.uint64)
            for place, (factor, shift) in enumerate(zip(factors, shifts, strict=True)):
                hashed = (sets.indices.astype(np.uint64) * factor + shift) % PRIME
                places[:, place // PLACES, place % PLACES] = np.minimum.reduceat(hashed, sets.indptr[filled])
            # Wraps around by design; the exact similarity tells texts apart that collide by chance.
            joined = np.zeros((len(filled), BANDS), dtype=np.uint64)
            for place in range(PLACES):
                joined = joined * np.uint64(0x9E3779B97F4A7C15) + places[..., place]
            bands[start + filled] = joined
            advance(sets.shape[0])
    return bands


def near_duplicates(
    texts: Sequence[str],
    others: Sequence[str],
    threshold: float,
    bands: NDArray[np.uint64] | None = None,
    other_bands: NDArray[np.uint64] | None = None,
    min_bands: int = 1,
) -> tuple[Rows, Rows, NDArray[np.float64]]:
    """Return rows of `texts`, rows of `others` and similarity of all pairs of at least `threshold`.

    The bands of `signatures` may be given if they are known. Candidates agree in at least `min_bands` bands;
    3 instead of 1 loses less than one in 10,000 of the pairs with similarity 0.8.
    """
    bands = signatures(texts) if bands is None else bands
    other_bands = signatures(others) if other_bands is None else other_bands
    by_band = [_find_equal(bands[:, band], other_bands[:, band]) for band in range(BANDS)]
    candidates, agreeing = np.unique(np.concatenate(by_band), axis=0, return_counts=True)
    left, right = candidates[agreeing >= min_bands].T
    similarity = np.empty(len(left))
    with progress("near-duplicates: candidates", len(left)) as advance:
        for start in range(0, len(left), CANDIDATES_AT_ONCE):
            part = slice(start, start + CANDIDATES_AT_ONCE)
            one, other = _sets(texts, left[part]), _sets(others, right[part])
            shared = one.multiply(other).sum(axis=1)
            similarity[part] = shared / (one.sum(axis=1) + other.sum(axis=1) - shared)
            advance(len(shared))
    near = similarity >= threshold
    return left[near], right[near], similarity[near]


def _sets(texts: Sequence[str], rows: Rows) -> csr_array:
    """Return the pieces of the texts of these rows, which may repeat: (rows, pieces)."""
    distinct, places = np.unique(rows, return_inverse=True)
    return csr_array(_pieces.transform([texts[row] for row in distinct]))[places]


def _find_equal(keys: NDArray[np.uint64], others: NDArray[np.uint64]) -> Rows:
    """Return all (row, row of others) with the same key: shape (matches, 2)."""
    order = np.argsort(others, kind="stable")
    ordered = others[order]
    first, last = np.searchsorted(ordered, keys, "left"), np.searchsorted(ordered, keys, "right")
    times = np.where(keys == NO_PIECES, 0, last - first)
    rows = np.repeat(np.arange(len(keys)), times)
    within = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    return np.stack([rows, order[np.repeat(first, times) + within]], axis=1)
