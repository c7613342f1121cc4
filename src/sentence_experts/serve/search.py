"""`/search`: the papers of the corpus under several routes, compared; best sentences; files of papers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from fastapi import APIRouter, Request, Response

from sentence_experts.retrieval.citation_export import export_papers, short_authors
from sentence_experts.retrieval.closeness import is_nothing_close
from sentence_experts.retrieval.filters import Filters
from sentence_experts.retrieval.searcher import Hit, sentence_spans
from sentence_experts.serve.engine import EmbeddingEngine
from sentence_experts.serve.errors import RequestError
from sentence_experts.serve.http import answered, body_of, json_answer, read
from sentence_experts.serve.library import CorpusView, Library, Vectors
from sentence_experts.serve.models import ServedModel
from sentence_experts.serve.search_requests import (
    CitationsRequest,
    ExportRequest,
    SearchRequest,
    SearchTarget,
    SentencesRequest,
)
from sentence_experts.serve.side_by_side import common_terms, found_by_one, planes, stems

NEAR = 200  # papers per route whose years are counted
# Of a text that is shown; hostile records hold megabytes.
MAX_ABSTRACT, MAX_TITLE, MAX_SENTENCES = 20_000, 1_000, 40
SHOWN = ("paper_id", "title", "abstract", "year", "journal", "article_type", "doi", "pmid", "pmcid", "link",
         "retracted", "domains", "kind", "authors", "volume", "issue", "pages", "keywords",
         "mesh")  # fmt: skip
MAX_LISTED = 40  # authors, keywords, ... of a paper; papers that cite one
FILES = {
    "ris": ("application/x-research-info-systems", "papers.ris"),
    "bibtex": ("application/x-bibtex", "papers.bib"),
    "csv": ("text/csv", "papers.csv"),
}

T = TypeVar("T")


class RouteResult(NamedTuple):
    """The papers near a query under one route.

    Attributes:
        view: the route.
        vector: the query's.
        compared: the cosine of every vector; None in a large corpus.
        hits: the papers found.
        near: the rows of the papers near the query in any year.
    """

    view: CorpusView
    vector: Vectors
    compared: Vectors | None
    hits: list[Hit]
    near: list[int]


router = APIRouter(tags=["Search"], prefix="/search")


@router.get("/corpus")
async def corpus(request: Request) -> Response:
    """The corpus, its routes, and the values that filters take."""
    library: Library = request.app.state.library
    library.follow()
    return await json_answer(await asyncio.to_thread(library.about))


@router.post("", openapi_extra=body_of(SearchRequest))
async def search(request: Request) -> Response:
    """The nearest papers under each route, and how the routes differ."""
    started = time.perf_counter()
    library: Library = request.app.state.library
    library.follow()
    body = await read(request, SearchRequest)
    views = library.find(body.routes)
    content = await answered(request, _search(request.app.state.engine, library, body, views))
    content["seconds"] = round(time.perf_counter() - started, 4)
    return await json_answer(content)


@router.post("/sentences", openapi_extra=body_of(SentencesRequest))
async def sentences(request: Request) -> Response:
    """The sentence of each abstract, or best passage, that is nearest to a query: its start and end."""
    library: Library = request.app.state.library
    body = await read(request, SentencesRequest)
    view, *others = library.find([body.route], "route")
    if others:
        known = ", ".join(each.name for each in (view, *others))
        raise RequestError(422, f"{body.route!r} has several routes, name one: {known}", "route")
    content = await answered(request, _sentences(request.app.state.engine, library, body, view))
    return await json_answer(content)


@router.post("/citations", openapi_extra=body_of(CitationsRequest))
async def citations(request: Request) -> Response:
    """The papers of the corpus that a paper cites, and those that cite it."""
    library: Library = request.app.state.library
    body = await read(request, CitationsRequest)
    (row,) = await asyncio.to_thread(library.rows, [body.paper], "paper")
    return await json_answer(await asyncio.to_thread(_citations, library, row))


@router.post("/export", openapi_extra=body_of(ExportRequest))
async def export(request: Request) -> Response:
    """Papers as RIS, BibTeX or CSV."""
    library: Library = request.app.state.library
    body = await read(request, ExportRequest)
    rows = await asyncio.to_thread(library.rows, body.papers, "papers")
    papers = await asyncio.to_thread(library.papers.facts, rows)
    kind, name = FILES[body.format]
    text = await asyncio.to_thread(export_papers, papers, body.format)
    return Response(text, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _citations(library: Library, row: int) -> dict[str, Any]:
    papers = library.papers
    return {
        name: [_shown(each) | {"abstract": None} for each in papers.facts(rows[:MAX_LISTED])]
        for name, rows in (("cites", papers.cites(row)), ("cited_by", papers.cited_by(row)))
    }


async def _search(
    engine: EmbeddingEngine, library: Library, body: SearchRequest, views: Sequence[CorpusView]
) -> dict[str, Any]:
    liked, vectors = await _query_vectors(engine, library, body, views)
    results = await _per_route(library, partial(_find, library, body, liked), views, vectors)
    rows = list(dict.fromkeys(hit.row for each in results for hit in each.hits))
    ranks = await _per_route(library, partial(_ranks, rows, body.filters(), liked), results)
    compare = partial(_compare, library, body, liked, rows, results, ranks)
    return await asyncio.get_running_loop().run_in_executor(library.pool, compare)


async def _per_route(library: Library, work: Callable[..., T], *of_routes: Sequence[Any]) -> list[T]:
    """Return the result of `work` for each route, side by side on the cores."""
    loop = asyncio.get_running_loop()
    routes = zip(*of_routes, strict=True)
    return list(await asyncio.gather(*(loop.run_in_executor(library.pool, work, *each) for each in routes)))


async def _query_vectors(
    engine: EmbeddingEngine, library: Library, body: SearchTarget, views: Sequence[CorpusView]
) -> tuple[list[int], list[Vectors]]:
    """Return the rows of the papers that others should be like, and the query's vector under each route."""
    if (body.query is None) == (body.like is None):
        raise RequestError(422, "give `query`, a text, or `like`, a list of papers", "query")
    if body.query is None:
        if not body.like:
            raise RequestError(422, "name a paper", "like")
        liked = await asyncio.to_thread(library.rows, body.like, "like")
        return liked, await _per_route(library, partial(_mean, library, liked), views)
    if not body.query.strip():
        raise RequestError(422, "is empty", "query")
    by_view: dict[str, Vectors] = {}
    for served in {id(view.served): view.served for view in views}.values():
        of_model = [view for view in views if view.served is served]
        routes = [view.route.query_route for view in of_model]
        vectors = await _embed(engine, served, [body.query] * len(of_model), routes, "query")
        by_view |= {view.name: vector for view, vector in zip(of_model, vectors, strict=True)}
    return [], [by_view[view.name] for view in views]


def _mean(library: Library, rows: Sequence[int], view: CorpusView) -> Vectors:
    with library.refusing("like"):
        mean: Vectors = view.searcher.mean_vector(rows, view.route)[0]
        return mean


async def _embed(
    engine: EmbeddingEngine, served: ServedModel, texts: list[str], routes: list[str | None], field: str
) -> Vectors:
    """Return vectors of length 1 by the model that encoded the papers, and no other."""
    embedded = await engine.embed(served, texts, routes, field)
    if embedded.served is not served:
        reason = f"{served.name} was replaced, and the papers are not encoded by the new model yet"
        raise RequestError(503, reason, retry_after=10)
    return embedded.finished(None, True)


def _find(
    library: Library, body: SearchRequest, liked: Sequence[int], view: CorpusView, vector: Vectors
) -> RouteResult:
    hybrid, texts = body.hybrid and body.query is not None, [body.query or ""]
    with library.refusing():
        wide, narrow = body.filters(any_year=True), body.filters()
        compared = view.vectors.compare(vector)

        def find(top_k: int, filters: Filters) -> list[Hit]:
            options: Any = (view.route, top_k, filters, hybrid, texts, compared, liked)
            return view.searcher.search(vector[None], *options)[0]

        near = find(max(NEAR, body.top_k), wide)
        hits = near[: body.top_k] if narrow == wide else find(body.top_k, narrow)
    return RouteResult(view, vector, compared, hits, [hit.row for hit in near])


def _ranks(
    rows: Sequence[int], filters: Filters, liked: Sequence[int], result: RouteResult
) -> list[dict[str, Any] | None]:
    """Return where each paper stands under a route; None for a paper that has no vector there."""
    view, by_row = result.view, {hit.row: hit for hit in result.hits}
    hits = view.searcher.ranks(result.vector, rows, view.route, filters, liked, result.compared)
    ranks: list[dict[str, Any] | None] = []
    for hit in hits:
        if hit is not None:  # with the words of the query, the order is not that of the cosines
            hit = by_row.get(hit.row) or replace(hit, rank=max(hit.rank, len(by_row) + 1))
        ranks.append(None if hit is None else hit.to_json())
    return ranks


def _compare(
    library: Library,
    body: SearchRequest,
    liked: Sequence[int],
    rows: Sequence[int],
    results: Sequence[RouteResult],
    ranks: Sequence[Sequence[dict[str, Any] | None]],
) -> dict[str, Any]:
    """Return the whole answer: hits of each route, and the papers with their ranks under every route."""
    table = library.papers
    like, known = (list(map(_shown, table.facts(each))) for each in (liked, rows))
    wanted = stems(body.query or " ".join(map(_text, like)))
    papers = [
        paper
        | {
            "terms": common_terms(wanted, _text(paper)),
            "cites": len(table.cites(row)),
            "cited_by": len(table.cited_by(row)),
            "ranks": {each.view.name: at[number] for each, at in zip(results, ranks, strict=True)},
        }
        for number, (row, paper) in enumerate(zip(rows, known, strict=True))
    ]
    place = {row: number for number, row in enumerate(rows)}
    alone = found_by_one([[hit.row for hit in each.hits] for each in results])
    maps = planes([(each.view.vectors.of_rows(rows), each.vector) for each in results])
    routes = [
        {
            "name": result.view.name,
            "label": result.view.label,
            "hits": [
                hit.to_json() | {"paper": place[hit.row], "only": hit.row in alone} for hit in result.hits
            ],
            "map": {"papers": points[:-1], "query": points[-1]},
        }
        for result, points in zip(results, maps, strict=True)
    ]
    return {
        "query": body.query,
        "like": like,
        "routes": routes,
        "papers": papers,
        "nothing_close": is_nothing_close(hit.to_json() for each in results for hit in each.hits),
        "hidden": table.hidden(body.filters()),
        "years": table.values("year", sorted({row for each in results for row in each.near})),
        "citations": [[place[citing], place[cited]] for citing, cited in table.citations(rows)],
    }


def _shown(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a paper that an answer holds, its texts cut to what is shown."""
    shown = {name: facts.get(name) for name in SHOWN}
    shown |= {"title": _cut(shown["title"], MAX_TITLE), "abstract": _cut(shown["abstract"], MAX_ABSTRACT)}
    shown["by"] = short_authors(facts.get("authors"))
    for name in ("authors", "keywords", "mesh"):
        shown[name] = [each[:200] for each in (shown[name] or [])[:MAX_LISTED]]
    return shown


def _cut(text: str | None, length: int) -> str | None:
    return text if text is None or len(text) <= length else f"{text[:length]}…"


def _text(paper: dict[str, Any]) -> str:
    return f"{paper['title'] or ''} {paper['abstract'] or ''}"


async def _sentences(
    engine: EmbeddingEngine, library: Library, body: SentencesRequest, view: CorpusView
) -> dict[str, Any]:
    (liked, (vector,)) = await _query_vectors(engine, library, body, [view])
    rows = await asyncio.to_thread(library.rows, body.papers, "papers")
    texts, places, passages = await asyncio.to_thread(_shown_texts, view, vector, rows)
    spans = [sentence_spans(text)[:MAX_SENTENCES] for text in texts]
    known = [library.cached_sentences(view, place) for place in places]
    wanted = [number for number, vectors in enumerate(known) if spans[number] and vectors is None]
    missing = [texts[number][start:end] for number in wanted for start, end in spans[number]]
    if missing:
        routes = [view.route.document_route] * len(missing)
        encoded = await _embed(engine, view.served, missing, routes, "papers")
        by_text = np.split(encoded, np.cumsum([len(spans[number]) for number in wanted])[:-1])
        for number, vectors in zip(wanted, by_text, strict=True):
            known[number] = vectors
            library.cache_sentences(view, places[number], vectors)
    about = body.query or " ".join(map(_text, await asyncio.to_thread(view.searcher.papers.facts, liked)))
    terms = stems(about) if passages else frozenset()
    best: dict[str, dict[str, Any] | None] = {}
    for paper, text, places_in, of_text in zip(body.papers, texts, spans, known, strict=True):
        if not places_in or of_text is None:
            best[paper] = None
            continue
        scores = of_text @ vector
        start, end = places_in[int(scores.argmax())]
        shown = {"passage": text, "terms": common_terms(terms, text)} if passages else {}
        best[paper] = {"start": start, "end": end, "score": float(scores.max()), **shown}
    return {"route": view.name, "sentences": best}


def _shown_texts(view: CorpusView, vector: Vectors, rows: Sequence[int]) -> tuple[list[str], list[int], bool]:
    """Return the text of each paper whose sentences are compared: its abstract, or its best passage.

    With the texts come the places of their vectors, and whether they are passages.
    """
    places = view.vectors.best_places(vector, rows)[0].tolist()
    passages = view.searcher.passages(rows, places, view.route)
    texts = (
        [each.get("abstract") for each in view.searcher.papers.facts(rows)] if passages is None else passages
    )
    return [_cut(text, MAX_ABSTRACT) or "" for text in texts], places, passages is not None
