"""`Searcher`: searches a corpus under every route of a model, for the search page and the verb alike."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from sentence_experts.corpus.formats.sentences import find_sentence_starts
from sentence_experts.encoding.chunks import Vectors
from sentence_experts.encoding.encoder import BatchEncoder, check_own_vectors
from sentence_experts.errors import UsageError
from sentence_experts.models.pooling import unit as unit_length
from sentence_experts.retrieval.closeness import UNRELATED, Scale, describe_nearness
from sentence_experts.retrieval.head_cosines import TaughtMap, shared_encoder
from sentence_experts.retrieval.index import route_vectors
from sentence_experts.retrieval.keywords import FUSED, KeywordIndex, fused, keyword_index
from sentence_experts.retrieval.papers import Filters, Papers
from sentence_experts.retrieval.search_routes import Blend, SearchRoute, find_blend, list_search_routes
from sentence_experts.retrieval.texts import trimmed
from sentence_experts.retrieval.vectors import Passing, RouteVectors, Rows, best_of, scores_of

if TYPE_CHECKING:
    from sentence_experts.corpus.corpus_folder import CorpusFolder
    from sentence_experts.models.loading import LoadConfig
    from sentence_experts.retrieval.texts import PaperTexts

logger = logging.getLogger(__name__)

_ROUNDING = 1e-6  # possible difference between two computations of the same cosine

Route = str | Mapping[str, float] | SearchRoute | Blend | None


@dataclass(frozen=True)
class Hit:
    """A paper, as a search under one route or blend found it.

    Attributes:
        rank: place among the papers found, from 1.
        score: the cosine; for a blend, the weighted sum of cosines.
        row: the paper's row in papers.parquet.
        percentile: the share of the corpus's papers with a lower score, from 0 to 100. Unlike cosines,
            percentiles of two models or routes can be compared.
        nearness: standard deviations by which the score lies above unrelated texts'. Unlike cosines,
            it can be compared between models and routes.
        route: the route of a blend that contributed most to the score.
    """

    rank: int
    score: float
    row: int
    percentile: float
    nearness: float
    route: str | None = None

    @property
    def closeness(self) -> str:
        """The nearness as "close", "fair" or "weak"."""
        return describe_nearness(self.nearness)

    def to_json(self) -> dict[str, Any]:
        """Return the plain values that a reader needs to know."""
        return {
            "rank": self.rank,
            "score": self.score,
            "percentile": self.percentile,
            "closeness": self.closeness,
            "nearness": self.nearness,
            **({} if self.route is None else {"route": self.route}),
        }


@dataclass(frozen=True)
class Comparison:
    """A query, compared with the papers of a corpus under one route or a blend of routes.

    Attributes:
        blend: the routes.
        queries: the query's vector of length 1 under each of them.
        vectors: the papers' vectors under each of them.
        scale: the scale of nearness.
    """

    blend: Blend
    queries: tuple[Vectors, ...]
    vectors: tuple[RouteVectors, ...]
    scale: Scale

    @property
    def main(self) -> tuple[Vectors, RouteVectors]:
        """The query's vector and the papers' vectors under the route with the largest share."""
        number = self.blend.routes.index(self.blend.main)
        return self.queries[number], self.vectors[number]

    @cached_property
    def _shares(self) -> NDArray[np.float32]:
        """Each route's share of the scores of all papers, (routes, papers)."""
        shares: NDArray[np.float32] = scores_of(self.vectors, self.queries)
        shares *= np.array(self.blend.weights, np.float32)[:, None]
        return shares

    def nearest(self, top_k: int, passing: Passing | None = None) -> Rows:
        """Return the nearest papers, best first; equal scores stand in the order of the corpus."""
        papers, scores = self.vectors[0].papers, self._shares.sum(axis=0)
        if passing is not None:
            scores[~passing[papers]] = -np.inf
        return papers[best_of(scores, top_k)]

    def hits(self, rows: Sequence[int] | Rows, passing: Passing | None = None) -> list[Hit | None]:
        """Return the places of given papers as hits; None for one without text.

        Ranks are among the papers that pass a filter, percentiles among all.
        """
        papers, scores = self.vectors[0].papers, self._shares.sum(axis=0)
        everything = np.sort(scores)
        among = everything if passing is None else np.sort(scores[passing[papers]])
        wanted = np.asarray(rows, np.int64)
        hits: list[Hit | None] = []
        for row, place in zip(wanted.tolist(), np.searchsorted(papers, wanted).tolist(), strict=True):
            if place == len(papers) or papers[place] != row:
                hits.append(None)
                continue
            score = float(scores[place])
            rank = 1 + len(among) - int(np.searchsorted(among, score + _ROUNDING, side="right"))
            percentile = float(np.searchsorted(everything, score - _ROUNDING) / len(everything) * 100)
            best = self.blend.routes[int(self._shares[:, place].argmax())].name
            by = best if len(self.queries) > 1 else None
            hits.append(Hit(rank, score, row, percentile, self.scale.nearness(score), by))
        return hits


class Searcher:
    """A search of one corpus with one model, by any of its routes and their blends.

    Vectors are read or built when a route is first used. Once they are, several threads may search.

    Attributes:
        encoder: the model.
        papers: the table of the corpus's papers.
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
        check_own_vectors(encoder)
        self.encoder, self.corpus, self.unit = encoder, corpus, unit
        self.papers = papers or Papers(corpus)
        self.routes = list_search_routes(encoder.known_routes)
        self._vectors: dict[str | None, RouteVectors] = {}
        self._taught: WeakKeyDictionary[TaughtMap, RouteVectors] = WeakKeyDictionary()
        self._unrelated: dict[SearchRoute, tuple[Vectors, Vectors]] = {}  # queries, papers
        self._headless: dict[int, BatchEncoder | None] = {}  # by the id of their vectors

    @classmethod
    def open(
        cls,
        model: Any,
        corpus: CorpusFolder,
        texts: PaperTexts,
        load_config: LoadConfig | None = None,
        papers: Papers | None = None,
    ) -> Searcher:
        """Open a model, and the search of a corpus by the texts that the settings choose."""
        encoder = BatchEncoder.open(model, load_config)
        return cls(encoder, corpus, texts.texts_for({encoder.name: encoder.model}), papers)

    def blend(self, route: Route = None, taught: Mapping[str, SearchRoute] = MappingProxyType({})) -> Blend:
        """Return the route of this name, or the blend; None for the default route, or the only route.

        `taught` are taught routes by name.
        """
        if isinstance(route, Blend):
            return route
        if isinstance(route, SearchRoute):
            return Blend((route,))
        return find_blend(self.encoder.known_routes, route or None, taught)

    def one_route(self, on: str | None) -> SearchRoute:
        """Return the model's route of this name, which others can be taught on, as `blend` does.

        Raises:
            UsageError: it is a blend of several.
        """
        route, *others = self.blend(on).routes
        if others:
            raise UsageError(f"`on`: {on!r} is a blend: name one route")
        return route

    def vectors(self, route: SearchRoute) -> RouteVectors:
        """Return the papers' vectors under a route; read or built the first time."""
        name = route.document_route
        if name not in self._vectors:
            vectors = route_vectors(self.encoder, self.corpus, name, self.unit)
            self._tell_of_papers_without_text(len(vectors.papers))
            for other in self._vectors.values():  # routes with heads share them
                if other.head and vectors.head and other.vectors.filename == vectors.vectors.filename:  # type: ignore
                    vectors = replace(other, head=vectors.head)
            self._vectors[name] = vectors
        if (change := route.taught) is None:
            return self._vectors[name]
        if change not in self._taught:
            self._taught[change] = self._vectors[name].mapped(change.weight)
        return self._taught[change]

    def _tell_of_papers_without_text(self, found: int) -> None:
        if found < self.papers.count and not self._vectors and self.unit in ("title", "abstract"):
            logger.warning(
                f"{self.papers.count - found:,} of {self.papers.count:,} papers have no {self.unit} to "
                "compare, and are not compared; `unit` chooses another text"
            )

    def scale(self, blend: Blend, like: bool = False) -> Scale:
        """Return the scale of nearness, to a query or (`like`) to papers; measured at a route's first use."""
        cosines = []
        for route in blend.routes:
            model_route = replace(route, name="", taught=None)
            if model_route not in self._unrelated:
                queries = papers = self.encode(UNRELATED, Blend((model_route,)))[0]
                if route.document_route != route.query_route:
                    papers = self.encode_papers(UNRELATED, model_route)
                self._unrelated[model_route] = queries, papers
            queries, papers = self._unrelated[model_route]
            cosines.append(route.apply(papers if like else queries) @ route.apply(papers).T)
        shares = zip(blend.weights, cosines, strict=True)
        return Scale.of(np.sum([weight * each for weight, each in shares], axis=0))

    def check_files(self) -> None:
        """Refuse to go on with a corpus of which a file that is open was written to.

        Raises:
            InputError: one was.
        """
        self.papers.files.check()
        for vectors in [*self._vectors.values()]:
            if vectors.files is not None:
                vectors.files.check()
        if "keywords" in vars(self):
            self.keywords.files.check()

    @cached_property
    def keywords(self) -> KeywordIndex:
        """The words of the corpus, for BM25."""
        return keyword_index(self.corpus, self.unit)

    def encode(self, texts: Sequence[str], blend: Blend) -> list[Vectors]:
        """Encode queries: for each route, vectors of length 1, (texts, dimensions).

        In a blend they are encoded once for all heads that share the papers' vectors.
        """
        shared: dict[int, Vectors] = {}
        encoded = []
        for route in blend.routes:
            if route.taught is not None:
                (queries,) = self.encode(texts, Blend((replace(route, taught=None),)))
                encoded.append(route.apply(queries))
                continue
            papers = self.vectors(route) if len(blend.routes) > 1 else None
            if papers is None or papers.head is None or route.query_route != route.document_route:
                encoded.append(self.encoder.encode(list(texts), route.query_route, normalize=True))
                continue
            base = id(papers.vectors)
            if base not in self._headless:
                self._headless[base] = shared_encoder(self.encoder, route.query_route)
            if base not in shared:
                headless = self._headless[base]
                assert headless is not None  # the route owns a head
                shared[base] = headless.encode(list(texts), route.query_route)
            encoded.append(papers.head.vectors(shared[base]))
        return encoded

    def encode_papers(self, texts: Sequence[str], route: SearchRoute) -> Vectors:
        """Encode texts as papers are: vectors of length 1, (texts, dimensions)."""
        return route.apply(self.encoder.encode(list(texts), route.document_route, normalize=True))

    def mean_vectors(self, rows: Sequence[int], blend: Blend) -> list[Vectors]:
        """Return the mean of some papers' vectors, for each route (1, dimensions), as a query for others.

        A paper counts once, however often it is named.
        """
        rows = list(dict.fromkeys(rows))
        vectors = [self.vectors(each).of_rows(rows) for each in blend.routes]
        means = [each.mean(axis=0, keepdims=True) for each in vectors]
        if not all(mean.any() for mean in means):
            raise UsageError("these papers have no text that could be compared")
        for row in np.array(rows)[~vectors[0].any(axis=1)].tolist():
            paper = self.papers.column("paper_id")[row]
            logger.warning(f"{paper} has no {self.unit} to compare, and counts for nothing")
        return list(map(unit_length, means))

    def compare(self, queries: Sequence[Vectors], blend: Blend, like: bool = False) -> Iterator[Comparison]:
        """Compare queries with the papers.

        Args:
            queries: for each route of the blend their vectors, (queries, dimensions).
            blend: the routes.
            like: whether the queries are means of papers (`mean_vectors`).
        """
        vectors, scale = tuple(map(self.vectors, blend.routes)), self.scale(blend, like)
        for query in zip(*queries, strict=True):
            yield Comparison(blend, query, vectors, scale)

    def find(
        self, compared: Comparison, top_k: int, passing: Passing | None = None, words: str | None = None
    ) -> list[Hit]:
        """Return the papers nearest to a query, best first.

        With `words`, a text, by the reciprocal ranks of both the cosine and these words (BM25).
        """
        if words is None:
            rows = compared.nearest(top_k, passing)
        else:
            depth = max(top_k, FUSED)
            by_words = self.keywords.search(words, depth, passing)
            rows = fused([compared.nearest(depth, passing), by_words], top_k)
        hits = [hit for hit in compared.hits(rows, passing) if hit is not None]
        return [replace(hit, rank=rank) for rank, hit in enumerate(hits, start=1)]

    def passing(self, filters: Filters | None, without: Sequence[int] = ()) -> Passing | None:
        """Return whether each paper passes the filters and is not one of some others; None for all."""
        passing = self.papers.places(filters)
        if len(without):
            passing = np.ones(self.papers.count, bool) if passing is None else passing.copy()
            passing[list(without)] = False
        return passing

    def passages(self, compared: Comparison, rows: Sequence[int]) -> list[str] | None:
        """Return the best passage of each of some papers under the main route; "" without text.

        None where papers are not cut into passages.
        """
        query, vectors = compared.main
        if vectors.spans is None:
            return None
        texts = zip(
            vectors.best_places(query, rows).tolist(), self.papers.texts(rows, self.unit), strict=True
        )
        return [text[slice(*vectors.spans[place].tolist())] if place >= 0 else "" for place, text in texts]

    def best_sentences(self, compared: Comparison, texts: Sequence[str]) -> list[tuple[int, int] | None]:
        """Return the sentence of each text that is nearest to a query, as (start, end); None for no text.

        The sentences are encoded as papers are, with the model and the main route.
        """
        spans = [sentence_spans(text) for text in texts]
        sentences = [text[start:end] for text, each in zip(texts, spans, strict=True) for start, end in each]
        if not sentences:
            return [None] * len(texts)
        scores = iter(self.encode_papers(sentences, compared.blend.main) @ compared.main[0])
        best = [max(((next(scores), span) for span in each), default=None) for each in spans]
        return [None if one is None else one[1] for one in best]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of each sentence of a text, without the white space around it."""
    return [
        trimmed(text, start, end)
        for start, end in pairwise([0, *find_sentence_starts(text), len(text)])
        if text[start:end].strip()
    ]
