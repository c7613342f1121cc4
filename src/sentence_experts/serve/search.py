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
from numpy.typing import NDArray

from sentence_experts.errors import SentenceExpertsError
from sentence_experts.retrieval.citation_export import export_papers, short_authors
from sentence_experts.retrieval.filters import Filters
from sentence_experts.retrieval.searcher import Hit, describe_nearness, is_nothing_close, sentence_spans
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
from sentence_experts.serve.side_by_side import common_terms, found_by_one, plane, stems

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
    """What is near a query under one route.

    Attributes:
        hits: the papers found.
        near: the rows of the papers near the query in any year.
        compared: the cosine of every vector; None in a large corpus.
    """

    hits: list[Hit]
    near: list[int]
    compared: Vectors | None


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
    return await json_answer(
        await answered(request, _sentences(request.app.state.engine, library, body, view))
    )


@router.post("/citations", openapi_extra=body_of(CitationsRequest))
async def citations(request: Request) -> Response:
    """The papers of the corpus that a paper cites, and those that cite it."""
    library: Library = request.app.state.library
    body = await read(request, CitationsRequest)
    (row,) = await asyncio.to_thread(_rows, library, [body.paper], "paper")
    return await json_answer(await asyncio.to_thread(_citations, library, row))


@router.post("/export", openapi_extra=body_of(ExportRequest))
async def export(request: Request) -> Response:
    """Papers as RIS, BibTeX or CSV."""
    library: Library = request.app.state.library
    body = await read(request, ExportRequest)
    rows = await asyncio.to_thread(_rows, library, body.papers, "papers")
    papers = await asyncio.to_thread(library.searcher.facts, rows)
    kind, name = FILES[body.format]
    text = await asyncio.to_thread(export_papers, papers, body.format)
    return Response(text, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _citations(library: Library, row: int) -> dict[str, Any]:
    papers = library.searcher.papers
    return {
        name: [_shown(each) | {"abstract": None} for each in papers.facts(rows[:MAX_LISTED])]
        for name, rows in (("cites", papers.cites(row)), ("cited_by", papers.cited_by(row)))
    }


async def _search(
    engine: EmbeddingEngine, library: Library, body: SearchRequest, views: Sequence[CorpusView]
) -> dict[str, Any]:
    liked, vectors = await _vectors(engine, library, body, views)
    one_route = partial(_one_route, library, body, liked)
    results = await _per_route(library, one_route, views, vectors)
    rows = list(dict.fromkeys(hit.row for each in results for hit in each.hits))
    filters = body.filters()
    standings = partial(_standings, rows, filters, liked)
    ranks = await _per_route(library, standings, views, vectors, results)
    compare = partial(_compared, library, body, views, vectors, results, rows, ranks, liked)
    return await asyncio.get_running_loop().run_in_executor(library.pool, compare)


async def _per_route(library: Library, work: Callable[..., T], *of_routes: Sequence[Any]) -> list[T]:
    """The result of `work` for each route, side by side on the cores."""
    loop = asyncio.get_running_loop()
    routes = zip(*of_routes, strict=True)
    return list(await asyncio.gather(*(loop.run_in_executor(library.pool, work, *each) for each in routes)))


async def _vectors(
    engine: EmbeddingEngine, library: Library, body: SearchTarget, views: Sequence[CorpusView]
) -> tuple[list[int], list[Vectors]]:
    """The rows of the papers that others should be like, and the query's vector under each route."""
    if (body.query is None) == (body.like is None):
        raise RequestError(422, "give `query`, a text, or `like`, a list of papers", "query")
    if body.like is not None:
        if not body.like:
            raise RequestError(422, "name a paper", "like")
        liked = await asyncio.to_thread(_rows, library, body.like, "like")
        means = [asyncio.to_thread(_mean, library, view, liked) for view in views]
        return liked, list(await asyncio.gather(*means))
    assert body.query is not None
    if not body.query.strip():
        raise RequestError(422, "is empty", "query")
    by_view: dict[str, Vectors] = {}
    for served in {id(view.served): view.served for view in views}.values():
        of_model = [view for view in views if view.served is served]
        routes = [view.route.query_route for view in of_model]
        rows = await _embed(engine, served, [body.query] * len(of_model), routes, "query")
        by_view |= {view.name: row for view, row in zip(of_model, rows, strict=True)}
    return [], [by_view[view.name] for view in views]


async def _embed(
    engine: EmbeddingEngine, served: ServedModel, texts: list[str], routes: list[str | None], field: str
) -> Vectors:
    """Vectors of length 1 by the model that encoded the papers, and no other.

    Raises:
        RequestError: 503, only the model that took its place could encode them.
    """
    embedded = await engine.embed(served, texts, routes, field)
    if embedded.served is not served:
        reason = f"{served.name} was replaced, and the papers are not encoded by the new model yet"
        raise RequestError(503, reason, retry_after=10)
    return embedded.finished(None, True)


def _rows(library: Library, ids: Sequence[str], field: str) -> list[int]:
    try:
        return library.searcher.find(ids)
    except SentenceExpertsError as error:
        raise library.refusal(error, field) from None


def _mean(library: Library, view: CorpusView, rows: Sequence[int]) -> Vectors:
    try:
        mean: Vectors = view.searcher.mean_vector(rows, view.route)[0]
    except SentenceExpertsError as error:
        raise library.refusal(error, "like") from None
    return mean


def _one_route(
    library: Library, body: SearchRequest, liked: Sequence[int], view: CorpusView, vector: Vectors
) -> RouteResult:
    try:
        wide, narrow = body.filters(any_year=True), body.filters()
        compared = view.searcher.vectors(view.route).compare(vector)
        find = partial(_hits, view, vector, compared, liked, body)
        near = find(max(NEAR, body.top_k), wide)
        hits = near if narrow == wide else find(body.top_k, narrow)
    except SentenceExpertsError as error:
        raise library.refusal(error) from None
    return RouteResult(hits[: body.top_k], [hit.row for hit in near], compared)


def _hits(
    view: CorpusView,
    vector: Vectors,
    compared: Vectors | None,
    liked: Sequence[int],
    body: SearchRequest,
    top_k: int,
    filters: Filters,
) -> list[Hit]:
    hybrid = body.hybrid and body.query is not None
    hits = view.searcher.search(
        vector[None], view.route, top_k + len(liked), filters, hybrid, [body.query or ""], compared
    )[0]
    rest = [hit for hit in hits if hit.row not in liked][:top_k]
    return [replace(hit, rank=rank) for rank, hit in enumerate(rest, start=1)]


def _compared(
    library: Library,
    body: SearchRequest,
    views: Sequence[CorpusView],
    vectors: Sequence[Vectors],
    results: Sequence[RouteResult],
    rows: Sequence[int],
    ranks: Sequence[Sequence[dict[str, Any] | None]],
    liked: Sequence[int],
) -> dict[str, Any]:
    searcher = library.searcher
    place = {row: number for number, row in enumerate(rows)}
    alone = found_by_one([[hit.row for hit in each.hits] for each in results])
    facts = searcher.facts([*liked, *rows])
    like = [_shown(each) for each in facts[: len(liked)]]
    wanted = stems(body.query or " ".join(_text(each) for each in like))
    papers: list[dict[str, Any]] = []
    for row, each in zip(rows, map(_shown, facts[len(liked) :]), strict=True):
        cites, cited_by = len(searcher.papers.cites(row)), len(searcher.papers.cited_by(row))
        known = {"cites": cites, "cited_by": cited_by, "ranks": {}}
        papers.append({**each, "terms": common_terms(wanted, _text(each)), **known})
    routes, maps = [], _maps(views, vectors, rows)
    for view, (hits, *_), of_route, where in zip(views, results, ranks, maps, strict=True):
        for paper, standing in zip(papers, of_route, strict=True):
            paper["ranks"][view.name] = standing
        routes.append({
            "name": view.name,
            "label": view.label,
            "hits": [
                {"paper": place[hit.row], "rank": hit.rank, "score": round(hit.score, 5),
                 "percentile": round(hit.percentile, 3), "only": hit.row in alone,
                 "closeness": hit.closeness,
                 "nearness": None if hit.nearness is None else round(hit.nearness, 2)}
                for hit in hits
            ],
            "map": where,
        })  # fmt: skip
    near = sorted({row for each in results for row in each.near})
    return {
        "query": body.query,
        "like": like,
        "routes": routes,
        "papers": papers,
        "nothing_close": is_nothing_close([hit for each in results for hit in each.hits]),
        "hidden": searcher.papers.hidden(body.filters()),
        "years": searcher.values("year", near),
        "citations": [[place[citing], place[cited]] for citing, cited in searcher.citations(rows)],
    }


def _standings(
    rows: Sequence[int],
    filters: Filters,
    liked: Sequence[int],
    view: CorpusView,
    vector: Vectors,
    result: RouteResult,
) -> list[dict[str, Any] | None]:
    """Rank, percentile and cosine of each paper under a route; None for a paper that it has no vector of."""
    by_row = {hit.row: hit for hit in result.hits}
    of_route = view.searcher.vectors(view.route)
    cosines = of_route.best_places(vector, rows)[1]
    words = map(describe_nearness, of_route.nearness(cosines))
    standings: list[dict[str, Any] | None] = []
    ranks = view.searcher.ranks(vector, rows, view.route, filters, liked, result.compared)
    for row, cosine, word, (rank, share) in zip(rows, cosines.tolist(), words, ranks, strict=True):
        if rank is None or share is None:
            standings.append(None)
            continue
        if row in by_row:  # with the words of the query, the order is not that of the cosines
            rank, share = by_row[row].rank, by_row[row].percentile
        else:
            rank = max(rank, len(by_row) + 1)
        standings.append(
            {"rank": rank, "percentile": round(share, 3), "score": round(cosine, 5), "closeness": word}
        )
    return standings


def _maps(
    views: Sequence[CorpusView], vectors: Sequence[Vectors], rows: Sequence[int]
) -> list[dict[str, Any]]:
    """Places of the papers and the query in a plane, per route, each as much like the first as it can be."""
    maps: list[dict[str, Any]] = []
    first: NDArray[np.float64] | None = None
    for view, vector in zip(views, vectors, strict=True):
        each = plane(view.searcher.vectors(view.route).of_rows(rows), vector, first)
        first = each if first is None else first
        rounded = [[round(x, 4) for x in pair] for pair in each.tolist()]
        maps.append({"papers": rounded[:-1], "query": rounded[-1]})
    return maps


def _shown(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts of a paper that an answer holds, its texts cut to what is shown."""
    shown = {name: facts.get(name) for name in SHOWN} | {"abstract": _cut(facts.get("abstract"))}
    shown["by"] = short_authors(facts.get("authors"))
    for name in ("authors", "keywords", "mesh"):
        shown[name] = [each[:200] for each in (shown[name] or [])[:MAX_LISTED]]
    if (title := shown["title"]) and len(title) > MAX_TITLE:
        shown["title"] = f"{title[:MAX_TITLE]}…"
    return shown


def _cut(abstract: str | None) -> str | None:
    return abstract if abstract is None or len(abstract) <= MAX_ABSTRACT else f"{abstract[:MAX_ABSTRACT]}…"


def _text(paper: dict[str, Any]) -> str:
    return f"{paper['title'] or ''} {paper['abstract'] or ''}"


async def _sentences(
    engine: EmbeddingEngine, library: Library, body: SentencesRequest, view: CorpusView
) -> dict[str, Any]:
    (liked, (vector,)) = await _vectors(engine, library, body, [view])
    rows = await asyncio.to_thread(_rows, library, body.papers, "papers")
    texts, keys, passages = await asyncio.to_thread(_shown_texts, view, vector, rows)
    spans = [sentence_spans(text)[:MAX_SENTENCES] for text in texts]
    wanted = [n for n, key in enumerate(keys) if spans[n] and library.cached_sentences(view, key) is None]
    pieces = [texts[n][start:end] for n in wanted for start, end in spans[n]]
    if pieces:
        routes = [view.route.document_route] * len(pieces)
        vectors_of = await _embed(engine, view.served, pieces, routes, "papers")
        by_text = np.split(vectors_of, np.cumsum([len(spans[n]) for n in wanted])[:-1])
        for n, vectors in zip(wanted, by_text, strict=True):
            library.cache_sentences(view, keys[n], vectors)
    about = body.query or " ".join(map(_text, await asyncio.to_thread(view.searcher.facts, liked)))
    terms = stems(about) if passages else frozenset()
    best: dict[str, dict[str, Any] | None] = {}
    for given, text, key, of_text in zip(body.papers, texts, keys, spans, strict=True):
        vectors_now = library.cached_sentences(view, key)
        if not of_text or vectors_now is None:
            best[given] = None
            continue
        scores = vectors_now @ vector
        start, end = of_text[int(scores.argmax())]
        shown = {"passage": text, "terms": common_terms(terms, text)} if passages else {}
        best[given] = {"start": start, "end": end, "score": round(float(scores.max()), 5), **shown}
    return {"route": view.name, "sentences": best}


def _shown_texts(view: CorpusView, vector: Vectors, rows: Sequence[int]) -> tuple[list[str], list[int], bool]:
    """The text of each paper whose sentences are compared: its abstract, or its best passage.

    With them, what their vectors are cached by: the paper's row or the passage's place; and whether they are
    passages.
    """
    of_route = view.searcher.vectors(view.route)
    if of_route.spans is None:
        facts = view.searcher.facts(rows)
        return [_cut(each.get("abstract")) or "" for each in facts], list(rows), False
    places = of_route.best_places(vector, rows)[0].tolist()
    passages = view.searcher.passages(rows, places, view.route) or []
    return [_cut(each) or "" for each in passages], places, True
