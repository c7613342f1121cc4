"""The vectors of a corpus under one route, and the papers that are nearest to a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.encoding.chunks import Vectors
from sentence_experts.errors import UsageError
from sentence_experts.models.pooling import unit as unit_length
from sentence_experts.retrieval.head_cosines import Head
from sentence_experts.storage import OpenFiles

_NUMBERS_PER_PRODUCT = 400_000  # multiplications at once, if several queries meet the same vectors

Rows = NDArray[np.int64]
Passing = NDArray[np.bool_]  # (papers of the corpus,): whether each may be found


@dataclass(frozen=True)
class RouteVectors:
    """The vectors of a corpus under one route: one per paper, or one per passage.

    Attributes:
        vectors: vectors of length 1, (texts, dimensions), mapped into memory; those that a `head` maps are of
            any length.
        rows: row of each text in papers.parquet, (texts,), ascending.
        spans: begin and end of each passage in its paper's text, (texts, 2); None without passages.
        head: head of the route, if it has one.
        files: the files behind `vectors` and `spans`.
    """

    vectors: Vectors
    rows: Rows
    spans: NDArray[np.int64] | None = None
    head: Head | None = None
    files: OpenFiles | None = None

    @property
    def dimension(self) -> int:
        """The length of a query's vector."""
        return self.vectors.shape[1] if self.head is None else len(self.head.bias)

    def mapped(self, weight: Vectors) -> RouteVectors:
        """Return the vectors under a linear map of these, (dimensions, dimensions); both share the memory."""
        head, shared = self.head, np.asarray(self.vectors)
        bias = np.zeros(len(weight), np.float32) if head is None else weight @ head.bias
        return replace(self, head=Head.over(weight if head is None else weight @ head.weight, bias, shared))

    @cached_property
    def _starts(self) -> Rows:
        return np.flatnonzero(np.diff(self.rows, prepend=-1))

    @cached_property
    def papers(self) -> Rows:
        """The rows in papers.parquet of the papers that have vectors, (papers,), ascending."""
        return self.rows if self.spans is None else self.rows[self._starts]

    def scores(self, query: Vectors) -> NDArray[np.float32]:
        """Compute the cosine of a query of shape (dimensions,) with every paper, (papers,)."""
        scores: NDArray[np.float32] = scores_of([self], [query])[0]
        return scores

    def _project(self, query: Vectors) -> Vectors:
        """Return the factor of the vectors for a query, (width,): the query before the head.

        Raises:
            UsageError: the query comes from another model.
        """
        if query.shape != (self.dimension,):
            raise UsageError(
                f"the query's vector has the shape {query.shape}, those of the papers {self.dimension} "
                "dimensions: they come from different models"
            )
        query = unit_length(np.asarray(query, np.float32)[None])[0]
        projected: Vectors = query if self.head is None else query @ self.head.weight
        return projected

    def _cosines(
        self, products: NDArray[np.float32], query: Vectors, texts: slice = slice(None)
    ) -> NDArray[np.float32]:
        """Return the cosines of some texts with a query from the products of their vectors."""
        if self.head is None:
            return products
        return self.head.only(texts).cosines(products, unit_length(query[None])[0])

    def _bounds(self, rows: Any) -> zip[tuple[int, int]]:
        """Return the places where the vectors of some papers begin and end."""
        ends = (np.searchsorted(self.rows, np.asarray(rows, np.int64), side) for side in ("left", "right"))
        return zip(*(each.tolist() for each in ends), strict=True)

    def best_places(self, query: Vectors, rows: Any) -> Rows:
        """Return the place of the best passage of each of some papers; -1 without text."""
        places = np.full(len(rows), -1, np.int64)
        projected = self._project(query)
        for number, (first, last) in enumerate(self._bounds(rows)):
            if last > first:
                cosines = self._cosines(self.vectors[first:last] @ projected, query, slice(first, last))
                places[number] = first + int(np.argmax(cosines))
        return places

    def of_rows(self, rows: Any) -> Vectors:
        """Return one vector per paper, (papers, dimensions): the mean of its passages; zeros without text."""
        nothing = np.zeros((1, self.dimension), np.float32)
        means = [nothing[:0]]
        for first, last in self._bounds(rows):
            texts = np.asarray(self.vectors[first:last], np.float32)
            texts = texts if self.head is None or last == first else self.head.vectors(texts)
            means.append(unit_length(texts.mean(axis=0, keepdims=True)) if last > first + 1 else texts)
            means += [nothing] * (last == first)
        return np.concatenate(means)


def scores_of(several: Sequence[RouteVectors], queries: Sequence[Vectors]) -> NDArray[np.float32]:
    """Compute the cosines of papers under several routes with the query under each, (routes, papers).

    A paper has the cosine of its best passage. Routes that share vectors are computed in one product.
    """
    groups: dict[int, list[int]] = {}
    for number, each in enumerate(several):
        groups.setdefault(id(each.vectors), []).append(number)
    scores: dict[int, NDArray[np.float32]] = {}
    for numbers in groups.values():
        projected = np.stack([several[number]._project(queries[number]) for number in numbers])
        products = _products(projected, np.asarray(several[numbers[0]].vectors))
        for number, route_products in zip(numbers, products, strict=True):
            route = several[number]
            cosines = route._cosines(route_products, queries[number])
            if route.spans is not None and len(route.rows):
                cosines = np.maximum.reduceat(cosines, route._starts)
            scores[number] = cosines
    return np.stack([scores[number] for number in range(len(several))])


def _products(queries: Vectors, vectors: Vectors) -> NDArray[np.float32]:
    """Multiply vectors, (texts, width), with queries, (queries, width), to (queries, texts)."""
    products: NDArray[np.float32]
    if len(queries) == 1:
        products = queries @ vectors.T
        return products
    # BLAS copies large matrices first, which takes three times as long with few queries.
    size = max(_NUMBERS_PER_PRODUCT // queries.size, 1)
    products = np.empty((len(queries), len(vectors)), np.float32)
    for start in range(0, len(vectors), size):
        products[:, start : start + size] = (vectors[start : start + size] @ queries.T).T
    return products


def best_of(scores: NDArray[np.float32], top_k: int) -> Rows:
    """Return the places of the best scores, best first; equal ones in their order, -inf never."""
    if top_k < 1:
        raise UsageError(f"`top_k` must be at least 1, got {top_k}")
    places = np.flatnonzero(scores > -np.inf)
    if len(places) > top_k:
        places = places[scores[places] >= np.partition(scores[places], -top_k)[-top_k]]
    return places[np.argsort(-scores[places], kind="stable")][:top_k]
