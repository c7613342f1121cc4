"""Questions in words, answered with papers of a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.retrieval.index import corpus_index, shown_papers

if TYPE_CHECKING:
    from sentence_experts.corpus.tables import CorpusFolder


def find_papers(
    encoder: BatchEncoder,
    corpus: CorpusFolder,
    queries: Sequence[str],
    route: str | None = None,
    unit: str = "title+abstract",
    k: int = 10,
) -> list[dict[str, Any]]:
    """The k papers nearest to each query, papers and queries encoded with the same route.

    Returns:
        One dict a query: `query` and `papers`, each paper with `rank`, `score` (cosine) and what the corpus
        tells of it (`paper_id`, `title`, `year`, `doi`, `retracted`).

    Raises:
        UsageError, InputError, RouteError: as `corpus_index` and `CorpusIndex.search`.
    """
    chosen = encoder.chosen_route(route)
    index = corpus_index(encoder, corpus, chosen, unit)
    hits = index.search(encoder.encode(queries, chosen), k)
    encoder.say_unsure()
    papers = iter(shown_papers(corpus, [hit.row for found in hits for hit in found]))
    return [
        {"query": query, "papers": [{"rank": hit.rank, "score": hit.score, **next(papers)} for hit in found]}
        for query, found in zip(queries, hits, strict=True)
    ]
