"""`Searcher`: searches a corpus under every route of a model, for the search page and the verb alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from sentence_experts.retrieval.closeness import UNRELATED, Scale, describe_nearness
from sentence_experts.retrieval.filters import Filters
from sentence_experts.retrieval.index import route_vectors
from sentence_experts.retrieval.keywords import FUSED, KeywordIndex, fused, keyword_index
from sentence_experts.retrieval.papers import Papers
from sentence_experts.retrieval.passages import trimmed
from sentence_experts.retrieval.search_routes import SearchRoute, find_search_route, list_search_routes
from sentence_experts.retrieval.vectors import RouteVectors

if TYPE_CHECKING:
    from sentence_experts.corpus.corpus_folder import CorpusFolder

_ROUNDING = 1e-6  # by which the same cosine may differ between one product and the other


@dataclass(frozen=True)
class Hit:
    """A paper, as a search under one route found it.

    Attributes:
        rank: from 1.
        score: the cosine.
        row: its row in papers.parquet.
        percentile: the share of the corpus's papers with a lower cosine, from 0 to 100. Unlike cosines,
            percentiles of two models or routes can be compared. Estimated above 10,000 papers.
        place: the place of its vector, or its best passage's, among those of the route.
        nearness: how many standard deviations the cosine lies above that of unrelated texts. Unlike cosines,
            it can be compared between models and routes.
    """

    rank: int
    score: float
    row: int
    percentile: float
    place: int
    nearness: float

    @property
    def closeness(self) -> str:
        """The nearness as "close", "fair" or "weak"."""
        return describe_nearness(self.nearness)

    def to_json(self) -> dict[str, Any]:
        """Return what a reader needs to know, as plain values."""
        return {
            "rank": self.rank,
            "score": self.score,
            "percentile": self.percentile,
            "closeness": self.closeness,
            "nearness": self.nearness,
        }


class Searcher:
    """Searches one corpus with one model, by any of its routes.

    Vectors are read or built when a route is first used. Once they are, several threads may search.

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
        self.encoder, self.corpus, self.unit = encoder, corpus, unit
        self.papers = papers or Papers(corpus)
        self.routes = list_search_routes(encoder.known_routes)
        self._vectors: dict[str | None, RouteVectors] = {}
        self._scales: dict[SearchRoute, Scale] = {}

    def route(self, name: str | SearchRoute | None = None) -> SearchRoute:
        """Return the route of this name; None for the default route, or the only route."""
        if isinstance(name, SearchRoute):
            return name
        return find_search_route(self.encoder.known_routes, name or None)

    def vectors(self, route: str | SearchRoute | None = None) -> RouteVectors:
        """Return the papers' vectors under a route; read or built the first time."""
        document_route = self.route(route).document_route
        if document_route not in self._vectors:
            vectors = route_vectors(self.encoder, self.corpus, document_route, self.unit)
            vectors.sample  # noqa: B018  # read now: threads search afterwards
            self.scale(route)
            self._vectors[document_route] = vectors
        return self._vectors[document_route]

    def scale(self, route: str | SearchRoute | None = None) -> Scale:
        """Return the scale of nearness under a route; measured the first time."""
        route = self.route(route)
        if route not in self._scales:
            queries = self.encode(UNRELATED, route)
            papers = queries
            if route.document_route != route.query_route:
                papers = self.encoder.encode(list(UNRELATED), route.document_route, normalize=True)
            self._scales[route] = Scale.of(queries, papers)
        return self._scales[route]

    @cached_property
    def keywords(self) -> KeywordIndex:
        """The words of the corpus, for BM25."""
        return keyword_index(self.corpus, self.unit)

    def encode(self, texts: Sequence[str], route: str | SearchRoute | None = None) -> Vectors:
        """Encode queries with the route for queries: vectors of length 1, (texts, dimensions)."""
        return self.encoder.encode(list(texts), self.route(route).query_route, normalize=True)

    def mean_vector(self, rows: Sequence[int], route: str | SearchRoute | None = None) -> Vectors:
        """Return the mean of some papers' vectors, (1, dimensions), of length 1, as a query for others."""
        mean = self.vectors(route).of_rows(rows).mean(axis=0, keepdims=True)
        if not mean.any():
            raise UsageError("these papers have no text that could be compared")
        return unit_length(mean)

    def search(
        self,
        queries: str | Sequence[str] | Vectors,
        route: str | SearchRoute | None = None,
        top_k: int = 10,
        filters: Filters | None = None,
        hybrid: bool = False,
        texts: Sequence[str] | None = None,
        compared: NDArray[np.float32] | None = None,
        without: Sequence[int] = (),
    ) -> list[list[Hit]]:
        """Find the nearest papers for each query, best first.

        Args:
            queries: texts, or vectors of shape (queries, dimensions) from `encode`.
            route: its name; None for the default route, or the only route.
            top_k: maximum number of papers per query.
            filters: which papers to look at.
            hybrid: order papers by the reciprocal ranks of both the cosine and the words of the query (BM25).
            texts: the queries' texts, for `hybrid` where `queries` are vectors.
            compared: the result of `RouteVectors.compare` for a single query; it is not computed again.
            without: rows of papers to leave out.

        Raises:
            UsageError: `top_k` is less than 1, vectors of another model, or `hybrid` without texts.
            InputError: a filter names what no paper has.
            RouteError: the model needs a route, or does not know this one.
        """
        allowed = self._allowed(filters, without)
        route = self.route(route)
        if not isinstance(queries, np.ndarray):
            texts = [queries] if isinstance(queries, str) else list(queries)
            queries = self.encode(texts, route)
        vectors = self.vectors(route)
        if not hybrid:
            rankings = vectors.nearest(queries, top_k, allowed, compared)
        else:
            if texts is None:
                raise UsageError("`hybrid` needs the texts of the queries: give `texts` too")
            depth = max(top_k, FUSED)
            rankings = []
            by_vectors = vectors.nearest(queries, depth, allowed, compared)
            for query, text, (places, _) in zip(queries, texts, by_vectors, strict=True):
                by_words = self.keywords.search(text, depth, allowed)
                rows = fused([vectors.rows[places], by_words], top_k)
                rankings.append(vectors.best_places(query, rows))
        hits = []
        for query, (places, scores) in zip(queries, rankings, strict=True):
            sample = np.sort(vectors.sample.scores(query))
            percentiles = np.searchsorted(sample, scores - _ROUNDING) / len(sample) * 100
            rows = vectors.rows[places]
            hits.append(_hits(range(1, len(rows) + 1), scores, rows, percentiles, places, self.scale(route)))
        return hits

    def ranks(
        self,
        query: Vectors,
        rows: Sequence[int],
        route: str | SearchRoute | None = None,
        filters: Filters | None = None,
        without: Sequence[int] = (),
        compared: NDArray[np.float32] | None = None,
    ) -> list[Hit | None]:
        """Return where given papers stand for a query of shape (dimensions,); None for one without text.

        The rank is among the papers that pass the filters, but for those `without`; the percentile is among
        all. Both are estimated from 10,000 papers in a large corpus. `compared` is as in `search`.
        """
        vectors = self.vectors(route)
        allowed, papers = self._allowed(filters, without), vectors.papers
        among = vectors if vectors.near is None else vectors.sample
        cosines = among.scores(query, compared)
        places, scores = vectors.best_places(query, rows)
        if among is vectors:  # as in the search, to the last bit
            scores = cosines[np.minimum(np.searchsorted(papers, rows), len(papers) - 1)]
        passing = cosines if allowed is None else cosines[allowed[among.papers]]
        count = len(papers) if allowed is None else int(allowed[papers].sum())
        better = len(passing) - np.searchsorted(np.sort(passing), scores + _ROUNDING, side="right")
        ranks = 1 + np.rint(better * (count / max(len(passing), 1))).astype(int)
        percentiles = np.searchsorted(np.sort(cosines), scores - _ROUNDING) / len(cosines) * 100
        hits = _hits(ranks.tolist(), scores, np.asarray(rows), percentiles, places, self.scale(route))
        return [None if hit.place < 0 else hit for hit in hits]

    def _allowed(self, filters: Filters | None, without: Sequence[int]) -> NDArray[np.bool_] | None:
        """Return whether each paper passes the filters and is not one of some others."""
        allowed = self.papers.places(filters)
        if len(without):
            allowed = np.ones(self.papers.count, bool) if allowed is None else allowed
            allowed[list(without)] = False
        return allowed

    def passages(
        self, rows: Sequence[int], places: Sequence[int], route: str | SearchRoute | None = None
    ) -> list[str] | None:
        """Return the text of the passage at each of these places, of the paper in this row; "" for -1.

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

    def best_sentences(
        self, query: Vectors, texts: Sequence[str], route: str | SearchRoute | None = None
    ) -> list[tuple[int, int] | None]:
        """Return the sentence of each text that is nearest to a query, as (start, end); None for no text.

        The sentences are encoded as papers are, with the model.
        """
        spans = [sentence_spans(text) for text in texts]
        sentences = [text[start:end] for text, each in zip(texts, spans, strict=True) for start, end in each]
        if not sentences:
            return [None] * len(texts)
        vectors = self.encoder.encode(sentences, self.route(route).document_route, normalize=True)
        scores = iter(vectors @ query.reshape(-1))
        best = [max(((next(scores), span) for span in each), default=None) for each in spans]
        return [None if one is None else one[1] for one in best]


def _hits(
    ranks: Iterable[int],
    scores: NDArray[np.float32],
    rows: NDArray[np.int64],
    percentiles: NDArray[np.float64],
    places: NDArray[np.int64],
    scale: Scale,
) -> list[Hit]:
    columns = [each.tolist() for each in (scores, rows, percentiles, places)]
    nearness = map(scale.nearness, columns[0])
    return [Hit(*hit) for hit in zip(ranks, *columns, nearness, strict=True)]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of each sentence of a text, without the white space around it."""
    spans = []
    for start, end in pairwise([0, *sentence_starts(text), len(text)]):
        if text[start:end].strip():
            spans.append(trimmed(text, start, end))
    return spans
