"""The vectors of a corpus under one route, and the papers that are nearest to a query."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.encoding.chunks import Vectors
from sentence_experts.models.pooling import unit as unit_length
from sentence_experts.retrieval.approximate import LanceVectors
from sentence_experts.retrieval.exact import Ranking, all_scores, best_of, nearest, starts_of

_SAMPLE = 10_000  # vectors that percentiles are estimated from
_PASSAGES = 8  # candidates for each paper wanted, where papers have several passages


@dataclass(frozen=True)
class RouteVectors:
    """The vectors of a corpus under one route: one per paper, or one per passage.

    Attributes:
        vectors: (texts, dimensions), of length 1, mapped into memory.
        rows: (texts,), ascending: the row of each in papers.parquet.
        near: finds neighbours approximately, in a large corpus.
        spans: (texts, 2) where each passage begins and ends in its paper's text; None without passages.
    """

    vectors: Vectors
    rows: NDArray[np.int64]
    near: LanceVectors | None = None
    spans: NDArray[np.int64] | None = None

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return starts_of(self.rows)

    @cached_property
    def papers(self) -> NDArray[np.int64]:
        """(papers,), ascending: the rows in papers.parquet of the papers that have vectors."""
        return self.rows if self.spans is None else self.rows[self._starts]

    def search(self, queries: Vectors, top_k: int, allowed: NDArray[np.bool_] | None = None) -> list[Ranking]:
        """Find the nearest papers for each query of shape (queries, dimensions): their rows and cosines.

        A paper has the cosine of its best passage. Papers with equal scores stand in the order of the corpus.
        `allowed`, of shape (papers of the corpus,), selects the papers to search.

        Raises:
            UsageError: `top_k` is less than 1, or the queries come from another model.
        """
        return [(self.rows[best], scores) for best, scores in self.nearest(queries, top_k, allowed)]

    def nearest(
        self,
        queries: Vectors,
        top_k: int,
        allowed: NDArray[np.bool_] | None = None,
        compared: NDArray[np.float32] | None = None,
    ) -> list[Ranking]:
        """Find as `search` does, with the places of the vectors instead of rows: those of the best passages.

        `compared` is the result of `compare` for a single query, which saves computing the cosines again.
        """
        places = None if allowed is None else np.flatnonzero(allowed[self.rows])
        papers = None if self.spans is None else self.rows
        if compared is not None and top_k >= 1:
            starts = None if papers is None else starts_of(papers if places is None else papers[places])
            return [best_of(compared if places is None else compared[places], top_k, places, starts)]
        if self.near is None or top_k < 1 or queries.shape[-1] != self.vectors.shape[1]:
            return nearest(self.vectors, queries, top_k, places, papers)
        if papers is None:
            return self.near.search(queries, top_k, places)
        rankings = []
        for query, (passages, scores) in zip(
            queries, self.near.search(queries, _PASSAGES * top_k, places), strict=True
        ):
            first = np.sort(np.unique(papers[passages], return_index=True)[1])[:top_k]
            enough = len(first) == top_k
            exact = () if enough else nearest(self.vectors, query[None], top_k, places, papers)
            rankings += exact or [(passages[first], scores[first])]
        return rankings

    def compare(self, query: Vectors) -> NDArray[np.float32] | None:
        """Compute the cosine of every vector with a query of shape (dimensions,), for `nearest` and `scores`.

        None in a large corpus, where a query is not compared with all.
        """
        return None if self.near is not None else all_scores(self.vectors, unit_length(query[None]))[0]

    def scores(self, query: Vectors, compared: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Compute the cosine of every paper with a query of shape (dimensions,): (papers,), as `papers`."""
        cosines = all_scores(self.vectors, unit_length(query[None]))[0] if compared is None else compared
        return cosines if self.spans is None else np.maximum.reduceat(cosines, self._starts)

    def best_places(self, query: Vectors, rows: Any) -> Ranking:
        """Find the place of the best passage of each of some papers, and its cosine; -1, 0 without text."""
        query, wanted = unit_length(query.reshape(1, -1))[0], np.asarray(rows, np.int64)
        begins, ends = (np.searchsorted(self.rows, wanted, side) for side in ("left", "right"))
        places, scores = np.full(len(wanted), -1, np.int64), np.zeros(len(wanted), np.float32)
        for number in np.flatnonzero(ends > begins):
            of_paper = self.vectors[begins[number] : ends[number]] @ query
            best = int(np.argmax(of_paper))
            places[number], scores[number] = begins[number] + best, of_paper[best]
        return places, scores

    def of_rows(self, rows: Any) -> Vectors:
        """Return one vector per paper, (papers, dimensions): the mean of its passages; zeros without text."""
        wanted = np.asarray(rows, np.int64)
        begins, ends = (np.searchsorted(self.rows, wanted, side) for side in ("left", "right"))
        means = np.zeros((len(wanted), self.vectors.shape[1]), np.float32)
        for number in np.flatnonzero(ends > begins):
            means[number] = self.vectors[begins[number] : ends[number]].mean(axis=0)
        several = ends - begins > 1
        means[several] = unit_length(means[several])
        return means

    @cached_property
    def sample(self) -> RouteVectors:
        """Papers evenly spread over the corpus, in memory: at most 10,000 vectors, or 100 papers."""
        count = len(self.papers)
        papers = min(count, max(_SAMPLE * count // len(self.rows), 100))
        rows = self.papers[np.linspace(0, count - 1, papers).astype(np.int64)]
        places = np.flatnonzero(np.isin(self.rows, rows, assume_unique=self.spans is None))
        spans = None if self.spans is None else self.spans[places]
        return RouteVectors(np.array(self.vectors[places]), self.rows[places], spans=spans)
