"""A search by a `Searcher`, in one call."""

from __future__ import annotations

from typing import Any

from sentence_experts.retrieval.searcher import Hit, Searcher


def find_papers(
    searcher: Searcher, text: str, route: Any = None, filters: Any = None, hybrid: bool = False
) -> list[Hit]:
    """Find the nine nearest papers, best first."""
    blend = searcher.blend(route)
    (compared,) = searcher.compare(searcher.encode([text], blend), blend)
    return searcher.find(compared, 9, searcher.passing(filters), text if hybrid else None)
