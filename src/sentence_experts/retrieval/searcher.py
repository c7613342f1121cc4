"""`Searcher`: searches a corpus under every route of a model, for the search page and the verb alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.corpus.formats.sentences import sentence_starts
from sentence_experts.encoding.chunks import Vectors
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import UsageError
from sentence_experts.models.pooling import unit as unit_length
from sentence_experts.retrieval.exact import Ranking
from sentence_experts.retrieval.filters import Filters
from sentence_experts.retrieval.index import route_vectors
from sentence_experts.retrieval.keywords import FUSED, KeywordIndex, fused, keyword_index
from sentence_experts.retrieval.papers import Papers
from sentence_experts.retrieval.search_routes import SearchRoute, find_search_route, list_search_routes
from sentence_experts.retrieval.vectors import RouteVectors

if TYPE_CHECKING:
    from sentence_experts.corpus.corpus_folder import CorpusFolder

# In `Hit.nearness`. The best papers of 95 in 100 queries that a corpus answers lie above `FAIR`, those of
# queries from another field below (docs/search.md).
FAIR, CLOSE = 1.5, 2.5
_ROUNDING = 1e-6  # by which the same cosine may differ between one product and the other


@dataclass(frozen=True)
class Hit:
    """A paper found: `rank` from 1, `score` the cosine, `row` its row in papers.parquet.

    `place` is that of the vector, of the best passage where papers have several, among those of the route.

    `percentile` is the share of the corpus's papers with a lower cosine, from 0 to 100: cosines of two models
    or routes cannot be compared, percentiles can. It is exact up to 10,000 papers, and estimated from as many
    above.

    `nearness` is how many standard deviations the cosine lies above that of two papers at random, None in a
    corpus of a few papers; `closeness` says it in a word.
    """

    rank: int
    score: float
    row: int
    percentile: float
    place: int
    nearness: float | None = None

    @property
    def closeness(self) -> str | None:
        """The nearness as "close", "fair" or "weak"."""
        return describe_nearness(self.nearness)


def describe_nearness(nearness: float | None) -> str | None:
    """A nearness as "close", "fair" or "weak"; None where there is none."""
    if nearness is None:
        return None
    return "close" if nearness >= CLOSE else "fair" if nearness >= FAIR else "weak"


def is_nothing_close(hits: Sequence[Hit]) -> bool:
    """Whether all papers found are as far as papers are from a query that the corpus has no answer to."""
    return bool(hits) and all(hit.closeness == "weak" for hit in hits)


class Searcher:
    """Searches one corpus with one model, by any of its routes.

    Attributes:
        encoder: the model.
        papers: the corpus's table.
        unit: the text of a paper, or "passages".
        routes: the search routes of the model (`list_search_routes`).
    """

    def __init__(
        self,
        encoder: BatchEncoder,
        corpus: CorpusFolder,
        unit: str = "title+abstract",
        papers: Papers | None = None,
    ) -> None:
        """Prepare a search; vectors are read or built when a route is first used, or by `prepare`.

        Once they are, several threads may search.
        """
        self.encoder, self.corpus, self.unit = encoder, corpus, unit
        self.papers = papers or Papers(corpus)
        self.routes = list_search_routes(encoder.known_routes)
        self._vectors: dict[str | None, RouteVectors] = {}

    def route(self, name: str | SearchRoute | None = None) -> SearchRoute:
        """The route of this name; None for the default route, or the only route.

        Raises:
            RouteError: the model needs a route, or does not know this one.
        """
        if isinstance(name, SearchRoute):
            return name
        return find_search_route(self.encoder.known_routes, name or None)

    def prepare(self, names: Sequence[str | SearchRoute] | None = None) -> None:
        """Read, or else build, the vectors of these routes, by default of all.

        Raises:
            InputError: no paper has text, or the vectors cannot be written beside the corpus.
        """
        for name in self.routes if names is None else names:
            self.vectors(name)

    def vectors(self, route: str | SearchRoute | None = None) -> RouteVectors:
        """The papers' vectors under a route; read or built the first time."""
        of_papers = self.route(route).document_route
        if of_papers not in self._vectors:
            vectors = route_vectors(self.encoder, self.corpus, of_papers, self.unit)
            vectors.sample  # noqa: B018  # read now: threads search afterwards
            self._vectors[of_papers] = vectors
        return self._vectors[of_papers]

    def encode(self, texts: Sequence[str], route: str | SearchRoute | None = None) -> Vectors:
        """Queries as vectors of length 1, (texts, dimensions), under a route, by the one for queries.

        Raises:
            UsageError: a text is empty.
        """
        if not all(text.strip() for text in texts):
            raise UsageError("a query is empty")
        return self.encoder.encode(list(texts), self.route(route).query_route, normalize=True)

    def search(
        self,
        queries: str | Sequence[str] | Vectors,
        route: str | SearchRoute | None = None,
        top_k: int = 10,
        filters: Filters | None = None,
        hybrid: bool = False,
        texts: Sequence[str] | None = None,
        compared: NDArray[np.float32] | None = None,
    ) -> list[list[Hit]]:
        """The nearest papers for each query, best first.

        Args:
            queries: texts, or vectors of shape (queries, dimensions) from `encode`.
            route: its name; None for the default route, or the only route.
            top_k: maximum number of papers per query.
            filters: which papers to look at.
            hybrid: order papers by the reciprocal ranks of both the cosine and the words of the query (BM25).
            texts: the queries' texts, for `hybrid` where `queries` are vectors.
            compared: the result of `RouteVectors.compare` for a single query; it is not computed again.

        Raises:
            UsageError: an empty query, `top_k` is less than 1, vectors of another model, or `hybrid` without
                texts.
            InputError: a filter names what no paper has.
            RouteError: the model needs a route, or does not know this one.
        """
        allowed = self.papers.places(filters)
        route = self.route(route)
        if not isinstance(queries, np.ndarray):
            texts = [queries] if isinstance(queries, str) else list(queries)
            queries = self.encode(texts, route)
        if hybrid and texts is None:
            raise UsageError("`hybrid` needs the texts of the queries: give `texts` too")
        depth = max(top_k, FUSED) if hybrid else top_k
        rankings = self.vectors(route).nearest(queries, depth, allowed, compared)
        if hybrid:
            together = zip(queries, texts or (), rankings, strict=True)
            rankings = [self._fused(route, *each, depth, top_k, allowed) for each in together]
        return [self._hits(route, ranking, query) for ranking, query in zip(rankings, queries, strict=True)]

    def _fused(
        self,
        route: SearchRoute,
        query: Vectors,
        text: str,
        ranking: Ranking,
        depth: int,
        top_k: int,
        allowed: NDArray[np.bool_] | None,
    ) -> Ranking:
        vectors = self.vectors(route)
        by_words = self.keywords.search(text, depth, allowed)
        return vectors.best_places(query, fused([vectors.rows[ranking[0]], by_words], top_k))

    @cached_property
    def keywords(self) -> KeywordIndex:
        """The words of the corpus, for BM25."""
        return keyword_index(self.corpus, self.unit)

    def ranks(
        self,
        query: Vectors,
        rows: Sequence[int],
        route: str | SearchRoute | None = None,
        filters: Filters | None = None,
        without: Sequence[int] = (),
        compared: NDArray[np.float32] | None = None,
    ) -> list[tuple[int | None, float | None]]:
        """The rank (from 1) and percentile of given papers for a query of shape (dimensions,).

        The rank is among the papers that pass the filters, but for those `without`; the percentile is among
        all. Both are None for a paper without text, and estimated from 10,000 papers in a large corpus.
        `compared` is as in `search`.
        """
        vectors, route = self.vectors(route), self.route(route)
        allowed, texts = self._allowed(filters, without), vectors.papers
        places = np.minimum(np.searchsorted(texts, rows), len(texts) - 1)
        among = vectors if vectors.near is None else vectors.sample
        scores = among.scores(query, compared)
        own = scores[places] if among is vectors else vectors.best_places(query, rows)[1]
        passing, count = scores, len(texts)
        if allowed is not None:
            passing, count = scores[allowed[among.papers]], int(allowed[texts].sum())
        everything = np.sort(scores)
        passing = everything if allowed is None else np.sort(passing)
        better = len(passing) - np.searchsorted(passing, own + _ROUNDING, side="right")
        ranks = 1 + np.rint(better * (count / max(len(passing), 1))).astype(int)
        lower = np.searchsorted(everything, own - _ROUNDING) / len(everything) * 100
        return [
            (int(rank), float(share)) if texts[place] == row else (None, None)
            for row, place, rank, share in zip(rows, places, ranks, lower, strict=True)
        ]

    def like(
        self,
        ids: Sequence[str],
        route: str | SearchRoute | None = None,
        top_k: int = 10,
        filters: Filters | None = None,
    ) -> list[Hit]:
        """The papers nearest to the mean vector of some papers of the corpus, which are left out.

        Args:
            ids: DOIs, PMIDs, PMCIDs or paper ids.
            route, top_k, filters: as in `search`.

        Raises:
            InputError: the corpus has no such paper, or it has no text.
        """
        rows = self.papers.find(ids)
        allowed = self._allowed(filters, rows)
        route = self.route(route)
        query = self.mean_vector(rows, route)
        return self._hits(route, self.vectors(route).nearest(query, top_k, allowed)[0], query[0])

    def _allowed(self, filters: Filters | None, without: Sequence[int]) -> NDArray[np.bool_] | None:
        """Whether each paper passes the filters and is not one of some others."""
        allowed = self.papers.places(filters)
        if len(without):
            allowed = np.ones(self.papers.count, bool) if allowed is None else allowed
            allowed[list(without)] = False
        return allowed

    def mean_vector(self, rows: Sequence[int], route: str | SearchRoute | None = None) -> Vectors:
        """The mean of some papers' vectors, of length 1, (1, dimensions).

        Raises:
            UsageError: none of them has text.
        """
        mean = self.vectors(route).of_rows(rows).mean(axis=0, keepdims=True)
        if not mean.any():
            raise UsageError("these papers have no text that could be compared")
        return unit_length(mean)

    def _hits(self, route: SearchRoute, ranking: Ranking, query: Vectors) -> list[Hit]:
        (places, scores), vectors = ranking, self.vectors(route)
        sample = np.sort(vectors.sample.scores(query))
        lower = np.searchsorted(sample, scores - _ROUNDING) / len(sample) * 100
        hits = zip(
            scores.tolist(), vectors.rows[places].tolist(), lower.tolist(), places.tolist(),
            vectors.nearness(scores), strict=True,
        )  # fmt: skip
        return [Hit(rank, *hit) for rank, hit in enumerate(hits, start=1)]

    def passages(
        self, rows: Sequence[int], places: Sequence[int], route: str | SearchRoute | None = None
    ) -> list[str] | None:
        """The text of the passage at each of these places, of the paper in this row; "" for the place -1.

        None where papers are not cut into passages.
        """
        spans = self.vectors(route).spans
        if spans is None:
            return None
        texts = self.papers.texts(rows, self.unit)
        return [
            text[slice(*spans[place].tolist())] if place >= 0 else ""
            for place, text in zip(places, texts, strict=True)
        ]

    def find(self, ids: Sequence[str]) -> list[int]:
        """The rows of papers by DOI, PMID, PMCID or paper id. Raises InputError for an unknown one."""
        return self.papers.find(ids)

    def facts(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """What the corpus knows of papers (`Papers.facts`)."""
        return self.papers.facts(rows)

    def citations(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """(citing row, cited row) of each citation between two of these papers."""
        return self.papers.citations(rows)

    def values(self, column: str, rows: Sequence[int] | None = None) -> dict[str, int]:
        """The values of a filter (`Papers.values`)."""
        return self.papers.values(column, rows)

    def best_sentences(
        self, query: str | Vectors, texts: Sequence[str], route: str | SearchRoute | None = None
    ) -> list[tuple[int, int] | None]:
        """The sentence of each text, an abstract or a passage, that is nearest to a query, as (start, end).

        None for an empty text. The sentences are encoded as papers are, with the model.
        """
        route = self.route(route)
        vector = self.encode([query], route)[0] if isinstance(query, str) else query.reshape(-1)
        spans = [sentence_spans(text) for text in texts]
        sentences = [text[start:end] for text, each in zip(texts, spans, strict=True) for start, end in each]
        if not sentences:
            return [None] * len(texts)
        scores = iter(self.encoder.encode(sentences, route.document_route, normalize=True) @ vector)
        best = [max(((next(scores), span) for span in each), default=None) for each in spans]
        return [None if one is None else one[1] for one in best]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of each sentence of a text, without the white space around it."""
    spans = []
    for start, end in pairwise([0, *sentence_starts(text), len(text)]):
        piece = text[start:end]
        if piece.strip():
            spans.append((start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())))
    return spans
