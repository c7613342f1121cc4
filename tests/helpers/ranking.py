"""The nearest papers of a matrix of vectors."""

from __future__ import annotations

from typing import Any

from sentence_experts.retrieval.closeness import Scale
from sentence_experts.retrieval.search_routes import Blend, SearchRoute
from sentence_experts.retrieval.searcher import Comparison
from sentence_experts.retrieval.vectors import RouteVectors


def nearest(
    vectors: RouteVectors, query: Any, top_k: int, passing: Any = None
) -> tuple[list[int], list[float]]:
    """Return the rows of the papers nearest to a query, and their scores."""
    blend = Blend((SearchRoute("", None, None),))
    compared = Comparison(blend, (query,), (vectors,), Scale(0, 1))
    rows = compared.nearest(top_k, passing)
    return rows.tolist(), [hit.score for hit in compared.hits(rows) if hit]
