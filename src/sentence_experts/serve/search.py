"""`/search`: the papers of the corpus under several routes, best sentences, and files of papers."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import numpy as np
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray
from pydantic import Field

from sentence_experts.retrieval.citation_export import export_papers, short_authors
from sentence_experts.retrieval.closeness import is_nothing_close
from sentence_experts.retrieval.papers import Filters
from sentence_experts.retrieval.search import Notices
from sentence_experts.retrieval.searcher import Comparison, Hit, sentence_spans
from sentence_experts.serve.common_terms import common_terms, stems
from sentence_experts.serve.engine import EmbeddingEngine
from sentence_experts.serve.errors import RequestError
from sentence_experts.serve.http import Schema, answered, body_of, json_answer, read
from sentence_experts.serve.library import CorpusView, Library, LibraryRoute, profile_of
from sentence_experts.serve.models import ServedModel

NEAR = 200  # number of papers per route whose years are counted
# Maximum number of characters of a text that is shown; hostile records hold megabytes.
MAX_ABSTRACT, MAX_TITLE, MAX_SENTENCES = 20_000, 1_000, 500
SHOWN = ("paper_id", "title", "abstract", "year", "journal", "article_type", "doi", "pmid", "pmcid", "link",
         "retracted", "domains", "kind", "authors", "volume", "issue", "pages", "keywords",
         "mesh", "entry", "file")  # fmt: skip
MAX_LISTED = 40  # maximum number of authors, keywords, ... of a paper, and of papers that cite it
FILES = {
    "ris": ("application/x-research-info-systems", "papers.ris"),
    "bibtex": ("application/x-bibtex", "papers.bib"),
    "csv": ("text/csv", "papers.csv"),
}

T = TypeVar("T")
PaperId = Annotated[str, Field(description="DOI, PMID, PMCID or `paper_id`")]
Ids = Annotated[list[str], Field(description="Papers, by DOI, PMID, PMCID or `paper_id`")]
Values = Annotated[list[str], Field(max_length=100)]  # values of a filter


class SearchTarget(Schema):
    """A query: a text, or papers."""

    query: str | None = Field(None, description="A text")
    like: Annotated[list[str] | None, Field(max_length=20)] = Field(
        None, description="Papers instead of a text, by DOI, PMID, PMCID or `paper_id`"
    )


class SearchRequest(SearchTarget):
    """A request for the nearest papers under several routes."""

    routes: list[str] | None = Field(
        None,
        description="NAME:ROUTE each, NAME:ROUTE=0.7,OTHER=0.3 for a blend, or NAME for all routes of a "
        "model. Default: those of the first model, its base, and the three that were taught last",
    )
    top_k: Annotated[int, Field(ge=1, le=100)] = Field(10, description="Papers per route")
    year: str | None = Field(None, description='"2015", "2015..2020", "2015.." or "..2020"')
    types: Values = Field([], description="Types of article")
    journals: Values = Field([], description="Journals")
    domains: Values = Field([], description="Domains of a fetched corpus, else subjects")
    keywords: Values = Field([], description="Keywords")
    mesh: Values = Field([], description="MeSH headings")
    notices: Notices = False
    hybrid: bool = Field(False, description="Rank by the words of the query too (BM25)")

    def filters(self, any_year: bool = False) -> Filters:
        """Return the filters of papers."""
        return Filters.of(
            None if any_year else self.year,
            self.notices,
            type=self.types,
            journal=self.journals,
            domain=self.domains,
            keyword=self.keywords,
            mesh=self.mesh,
        )


class SentencesRequest(SearchTarget):
    """A request for the sentences of papers that are nearest to a query under one route."""

    route: str = Field(description="One route, or a blend")
    papers: Annotated[Ids, Field(max_length=50)]


class CitationsRequest(Schema):
    """A request for a paper and its citations."""

    paper: PaperId


class ExportRequest(Schema):
    """A request for papers in the format of a reference manager or a spreadsheet."""

    papers: Annotated[Ids, Field(max_length=10_000)]
    format: Literal["ris", "bibtex", "csv"] = Field(description="Form of the file")


class RouteResult(NamedTuple):
    """The papers near a query under one route.

    Attributes:
        view: route of the search.
        compared: comparison of the query with the papers.
        hits: papers found.
        ranked: these and those that come next.
        near: rows of the papers near the query in any year.
    """

    view: CorpusView
    compared: Comparison
    hits: list[Hit]
    ranked: list[Hit]
    near: list[int]


router = APIRouter(tags=["Search"], prefix="/search", route_class=LibraryRoute)


@router.get("/corpus")
async def corpus(request: Request) -> Response:
    """Describe the corpus, its routes and taught routes, and the values that filters take."""
    library: Library = request.app.state.library
    library.follow()
    return await json_answer(await asyncio.to_thread(library.about, profile_of(request)))


@router.post("", openapi_extra=body_of(SearchRequest))
async def search(request: Request) -> Response:
    """Find the nearest papers under each route, and the differences between the routes."""
    started = time.perf_counter()
    library: Library = request.app.state.library
    library.follow()
    body = await read(request, SearchRequest)
    views = await asyncio.to_thread(library.find, body.routes, profile=profile_of(request))
    content = await answered(request, _search(request.app.state.engine, library, body, views))
    content["seconds"] = round(time.perf_counter() - started, 4)
    return await json_answer(content)


@router.post("/sentences", openapi_extra=body_of(SentencesRequest))
async def sentences(request: Request) -> Response:
    """Find the sentence of each abstract, or best passage, that is nearest to a query: its start and end."""
    library: Library = request.app.state.library
    body = await read(request, SentencesRequest)
    view = await asyncio.to_thread(library.find_one, body.route, "route", profile_of(request))
    content = await answered(request, _sentences(request.app.state.engine, library, body, view))
    return await json_answer(content)


@router.post("/citations", openapi_extra=body_of(CitationsRequest))
async def citations(request: Request) -> Response:
    """Show a paper, the papers of the corpus that it cites, and those that cite it: at most 40 of each, and
    in `paper` how many there are."""
    library: Library = request.app.state.library
    body = await read(request, CitationsRequest)
    (row,) = await asyncio.to_thread(library.rows, [body.paper], "paper")
    papers = library.papers

    def listed(rows: list[int]) -> list[dict[str, Any]]:
        return [shown_facts(each) | {"abstract": None} for each in papers.facts(rows[:MAX_LISTED])]

    def found() -> dict[str, Any]:
        links = {"cites": papers.cites(row), "cited_by": papers.cited_by(row)}
        paper = shown_facts(*papers.facts([row])) | {name: len(rows) for name, rows in links.items()}
        return {"paper": paper} | {name: listed(rows) for name, rows in links.items()}

    return await json_answer(await asyncio.to_thread(found))


@router.post("/export", openapi_extra=body_of(ExportRequest))
async def export(request: Request) -> Response:
    """Write papers as RIS, BibTeX or CSV."""
    library: Library = request.app.state.library
    body = await read(request, ExportRequest)
    rows = await asyncio.to_thread(library.rows, body.papers, "papers")
    papers = await asyncio.to_thread(library.papers.facts, rows)
    kind, name = FILES[body.format]
    text = await asyncio.to_thread(export_papers, papers, body.format)
    return Response(text, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


async def _search(
    engine: EmbeddingEngine, library: Library, body: SearchRequest, views: Sequence[CorpusView]
) -> dict[str, Any]:
    liked, compared = await _compare_query(engine, library, body, views)
    results = await _per_route(library, partial(_find, library, body, liked), views, compared)
    rows = list(dict.fromkeys(hit.row for each in results for hit in each.hits))
    ranks = await _per_route(library, partial(_ranks, rows, body, liked), results)
    describe = partial(_describe, library, body, liked, rows, results, ranks)
    return await asyncio.get_running_loop().run_in_executor(library.pool, describe)


async def _per_route(library: Library, work: Callable[..., T], *of_routes: Sequence[Any]) -> list[T]:
    """Return the result of `work` for each route, side by side on the cores."""
    loop = asyncio.get_running_loop()
    routes = zip(*of_routes, strict=True)
    return list(await asyncio.gather(*(loop.run_in_executor(library.pool, work, *each) for each in routes)))


async def _compare_query(
    engine: EmbeddingEngine, library: Library, body: SearchTarget, views: Sequence[CorpusView]
) -> tuple[list[int], list[Comparison]]:
    """Return the rows of the papers that hits should be like, and the query under each route."""
    if body.like is not None and getattr(body, "hybrid", False):
        raise RequestError(422, "needs the words of a query, which `like` does not have", "hybrid")
    if (body.query is None) == (body.like is None):
        raise RequestError(422, "give `query`, a text, or `like`, a list of papers", "query")
    liked: list[int] = []
    if body.query is None:
        if not body.like:
            raise RequestError(422, "name a paper", "like")
        liked = await asyncio.to_thread(library.rows, body.like, "like")
        queries = await _per_route(library, partial(_mean, library, liked), views)
    elif not body.query.strip():
        raise RequestError(422, "is empty", "query")
    else:
        vectors: dict[tuple[ServedModel, str | None], Any] = {}
        for served in dict.fromkeys(view.served for view in views):
            blends = [view.blend for view in views if view.served is served]
            routes = list(dict.fromkeys(route.query_route for blend in blends for route in blend.routes))
            encoded = await _embed(engine, served, [body.query] * len(routes), routes, "query")
            vectors |= {(served, route): vector for route, vector in zip(routes, encoded, strict=True)}
        queries = [
            [each.apply(vectors[view.served, each.query_route][None]) for each in view.blend.routes]
            for view in views
        ]
    pairs = zip(views, queries, strict=True)
    is_like = body.like is not None
    return liked, [next(view.searcher.compare(query, view.blend, is_like)) for view, query in pairs]


def _mean(library: Library, rows: Sequence[int], view: CorpusView) -> list[NDArray[np.float32]]:
    with library.refusing("like"):
        return view.searcher.mean_vectors(rows, view.blend)


async def _embed(
    engine: EmbeddingEngine, served: ServedModel, texts: list[str], routes: list[str | None], field: str
) -> NDArray[np.float32]:
    """Return vectors of length 1 by the model that encoded the papers, and no other."""
    return (await engine.embed(served, texts, routes, field)).by(served).finished(None, True)


def _find(
    library: Library, body: SearchRequest, liked: Sequence[int], view: CorpusView, compared: Comparison
) -> RouteResult:
    searcher, words = view.searcher, body.query if body.hybrid else None
    with library.refusing():
        wide, narrow = body.filters(any_year=True), body.filters()
        depth = max(NEAR, body.top_k)
        near = ranked = searcher.find(compared, depth, searcher.passing(wide, liked), words)
        if narrow != wide:
            ranked = searcher.find(compared, depth, searcher.passing(narrow, liked), words)
    return RouteResult(view, compared, ranked[: body.top_k], ranked, [hit.row for hit in near])


def _ranks(
    rows: Sequence[int], body: SearchRequest, liked: Sequence[int], result: RouteResult
) -> list[dict[str, Any] | None]:
    """Return the rank of each paper under a route; None for a paper that has no vector there.

    With the words of the query, where the order is not the cosines', papers far down have no rank.
    """
    by_row = {hit.row: hit for hit in result.ranked}
    passing = result.view.searcher.passing(body.filters(), liked)
    ranks: list[dict[str, Any] | None] = []
    for hit in result.compared.hits(rows, passing):
        if hit is None:
            ranks.append(None)
        elif hit.row in by_row:
            ranks.append(by_row[hit.row].to_json())
        else:
            ranks.append(hit.to_json() | {"rank": None if body.hybrid else max(hit.rank, len(by_row) + 1)})
    return ranks


def _describe(
    library: Library,
    body: SearchRequest,
    liked: Sequence[int],
    rows: Sequence[int],
    results: Sequence[RouteResult],
    ranks: Sequence[Sequence[dict[str, Any] | None]],
) -> dict[str, Any]:
    """Return the whole answer: hits of each route, and the papers with their ranks under every route."""
    table = library.papers
    like, known = (list(map(shown_facts, table.facts(each))) for each in (liked, rows))
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
    found = Counter(hit.row for each in results for hit in each.hits)
    routes = [
        {
            "name": result.view.name,
            "label": result.view.label,
            "hits": [
                hit.to_json() | {"paper": place[hit.row], "only": len(results) > 1 and found[hit.row] == 1}
                for hit in result.hits
            ],
        }
        for result in results
    ]
    return {
        "query": body.query,
        "like": like,
        "routes": routes,
        "papers": papers,
        "nothing_close": is_nothing_close(hit.to_json() for each in results for hit in each.hits),
        "hidden": table.hidden(body.filters()),
        "without_year": table.without_year(body.filters()),
        "years": table.values("year", sorted({row for each in results for row in each.near})),
        "citations": [[place[citing], place[cited]] for citing, cited in table.citations(rows)],
    }


def shown_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a paper that an answer holds, its texts cut for display."""
    shown = {name: facts.get(name) for name in SHOWN}
    shown |= {"title": _cut(shown["title"], MAX_TITLE), "abstract": _cut(shown["abstract"], MAX_ABSTRACT)}
    shown["by"] = short_authors(facts.get("authors"))
    for name in ("authors", "keywords", "mesh"):
        values = shown[name] or []
        shown[name] = [each[:200] for each in values[:MAX_LISTED]] + ["…"] * (len(values) > MAX_LISTED)
    return shown


def _cut(text: str | None, length: int) -> str | None:
    return text if text is None or len(text) <= length else f"{text[:length]}…"


def _text(paper: dict[str, Any]) -> str:
    return f"{paper['title'] or ''} {paper['abstract'] or ''}"


async def _sentences(
    engine: EmbeddingEngine, library: Library, body: SentencesRequest, view: CorpusView
) -> dict[str, Any]:
    liked, (compared,) = await _compare_query(engine, library, body, [view])
    searcher, route = view.searcher, view.blend.main
    rows = await asyncio.to_thread(library.rows, body.papers, "papers")
    passages = await asyncio.to_thread(searcher.passages, compared, rows)
    facts = await asyncio.to_thread(searcher.papers.facts, rows + liked)
    texts = passages or [_cut(each.get("abstract"), MAX_ABSTRACT) or "" for each in facts[: len(rows)]]
    spans = [sentence_spans(text)[:MAX_SENTENCES] for text in texts]
    parts = [text[start:end] for text, each in zip(texts, spans, strict=True) for start, end in each]
    scores: list[float] = []
    if parts:
        encoded = await _embed(engine, view.served, parts, [route.document_route] * len(parts), "papers")
        scores = (route.apply(encoded) @ compared.main[0]).tolist()
    terms = stems(body.query or " ".join(map(_text, facts[len(rows) :]))) if passages else frozenset()
    best: dict[str, dict[str, Any] | None] = {}
    for paper, text, of_paper in zip(body.papers, texts, spans, strict=True):
        own, scores = scores[: len(of_paper)], scores[len(of_paper) :]
        score, (start, end) = max(zip(own, of_paper, strict=True), default=(0.0, (0, 0)))
        shown = {"passage": text, "terms": common_terms(terms, text)} if passages else {}
        best[paper] = {"start": start, "end": end, "score": score, **shown} if own else None
    return {"route": view.name, "sentences": best}
