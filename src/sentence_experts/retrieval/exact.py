"""Exact nearest neighbours by cosine, over a matrix that may be mapped into memory."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sentence_experts.encoding.chunks import Vectors
from sentence_experts.errors import UsageError
from sentence_experts.models.pooling import unit

ROWS_PER_BLOCK = 65_536
_MAX_SCORES = 1 << 25  # in memory at once
_GATHERED = 0.25  # share of places below which only their vectors are read

# Places in the matrix, best first, and their cosines.
Ranking: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.float32]]"


def nearest(
    vectors: Vectors,
    queries: Vectors,
    top_k: int,
    places: NDArray[np.int64] | None = None,
    papers: NDArray[np.int64] | None = None,
) -> list[Ranking]:
    """Find the nearest rows of a matrix for each query, best first; equal scores stand in the matrix's order.

    Args:
        vectors: (rows, dimensions), of length 1.
        queries: (queries, dimensions), of any length.
        top_k: maximum number of rows per query.
        places: the rows to look at, ascending; None for all.
        papers: (rows,), ascending: the paper of each passage; of each paper only the best passage is found.
    """
    if top_k < 1:
        raise UsageError(f"`top_k` must be at least 1, got {top_k}")
    if queries.ndim != 2 or queries.shape[1] != vectors.shape[1]:
        raise UsageError(
            f"the queries' vectors have the shape {queries.shape}, those of the papers {vectors.shape[1]} "
            "dimensions: they come from different models"
        )
    queries = unit(np.asarray(queries, np.float32))
    step = max(_MAX_SCORES // max(len(vectors), 1), 1)
    rankings: list[Ranking] = []
    starts = None if papers is None else starts_of(papers if places is None else papers[places])
    for start in range(0, len(queries), step):
        scores = all_scores(vectors, queries[start : start + step], places)
        rankings += (best_of(row, top_k, places, starts) for row in scores)
    return rankings


def best_of(
    scores: NDArray[np.float32],
    top_k: int,
    places: NDArray[np.int64] | None = None,
    starts: NDArray[np.int64] | None = None,
) -> Ranking:
    """Find the best of some scores, those of `places` if they are given.

    `starts` is where each paper's passages begin; with it, the best passage of each of the best papers.
    """
    best = _best(scores, top_k) if starts is None else _best_of_papers(scores, top_k, starts)
    return best if places is None else places[best], scores[best]


def all_scores(
    vectors: Vectors, queries: Vectors, places: NDArray[np.int64] | None = None
) -> NDArray[np.float32]:
    """Compute (queries, places) cosines, in blocks of rows that are read one after the other."""
    few = None if places is None or len(places) >= _GATHERED * len(vectors) else places
    count = len(vectors) if few is None else len(few)
    scores = np.empty((len(queries), count), np.float32)
    for start in range(0, count, ROWS_PER_BLOCK):
        block = slice(start, start + ROWS_PER_BLOCK)
        scores[:, block] = queries @ (vectors[block] if few is None else vectors[few[block]]).T
    return scores if few is not None or places is None else scores[:, places]


def _best(scores: NDArray[np.float32], top_k: int) -> NDArray[np.int64]:
    top_k = min(top_k, scores.size)
    if not top_k:
        return np.empty(0, np.int64)
    lowest = np.partition(scores, scores.size - top_k)[scores.size - top_k]
    candidates = np.flatnonzero(scores >= lowest)
    return candidates[np.argsort(-scores[candidates], kind="stable")][:top_k]


def _best_of_papers(scores: NDArray[np.float32], top_k: int, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    papers = _best(np.maximum.reduceat(scores, starts), top_k) if len(scores) else starts
    ends = np.append(starts, len(scores))
    best = [starts[one] + np.argmax(scores[starts[one] : ends[one + 1]]) for one in papers]
    return np.array(best, np.int64)


def starts_of(papers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each paper's passages begin in (passages,) papers."""
    return np.flatnonzero(np.diff(papers, prepend=-1))
