"""Which routes encode the papers and the queries of a search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.samples import write_corpus
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import RouteError, UsageError
from sentence_experts.models.loading import load
from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.retrieval.search_routes import (
    Blend,
    SearchRoute,
    find_blend,
    find_search_route,
    list_search_routes,
)
from sentence_experts.retrieval.searcher import Searcher


@pytest.mark.parametrize("document", [{"document": ""}, {"passage": ""}, {}])
@pytest.mark.parametrize("query", ["query", "search_query", "s2p_query"])
def test_papers_have_no_prompt_where_only_queries_have_one(query: str, document: dict[str, str]) -> None:
    known = KnownRoutes.of("m", {query: "q: ", "clustering": "c: ", **document}, None)
    pair, other = SearchRoute(query, None, query), SearchRoute("clustering", "clustering", "clustering")
    assert list_search_routes(known) == (pair, other)
    assert [find_search_route(known, route) for route in (None, query)] == [pair, pair]
    assert find_search_route(known, "clustering") == other
    assert known.choose(None) is None
    with pytest.raises(RouteError, match="its routes: clustering"):
        known.choose("x")


@pytest.mark.parametrize(
    ("query", "document"),
    [
        *(
            ("query", "document"),
            ("search_query", "search_document"),
            ("retrieval_query", "retrieval_passage"),
            ("query", "corpus"),
        ),
        *(("retrieval.query", "retrieval.passage"), ("Retrieval-query", "Retrieval-document")),
    ],
)
def test_routes_of_queries_and_documents_that_are_named_alike_are_pairs(query: str, document: str) -> None:
    known = KnownRoutes.of("m", {query: "q: ", document: "d: ", "my_subquery": "s: "}, None)
    for route in (None, query, document):
        found = find_search_route(known, route)
        assert (found.document_route, found.query_route) == (document, query)


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ({"query": "q: ", "code.query": "c: ", "code.passage": "p: "}, (None, "query")),
        ({"query": "q: ", "retrieval.query": "c: ", "retrieval.passage": "p: "}, (None, "query")),
        ({"query": "q: ", "clustering": "c: ", "summarize_document": "d: "}, (None, "query")),
        (
            {"query": "q: ", "document": "d: ", "code_query": "c: ", "code_document": "e: "},
            ("document", "query"),
        ),
        (
            {"Retrieval-query": "r: ", "Retrieval-document": "s: ", "query": "q: ", "document": "d: "},
            ("document", "query"),
        ),
        ({"s2s_query": "s: ", "s2p_query": "p: "}, (None, "s2p_query")),
        ({"query": "q: ", "document": "q: ", "passage": "p: "}, ("passage", "query")),
        ({"query": "rice ", "Retrieval-query": "rice ", "Retrieval-document": "d: "}, (None, "query")),
    ],
)
def test_the_route_of_searches_where_none_is_named(
    prompts: dict[str, str], expected: tuple[str | None, str]
) -> None:
    found = find_search_route(KnownRoutes.of("m", prompts, None))
    assert (found.document_route, found.query_route) == expected


@pytest.mark.parametrize("documents", [{"document": "d: "}, {"document": ""}, {"passage": "p: "}])
@pytest.mark.parametrize("other", [{}, {"other": "o: "}])
def test_a_default_route_of_queries_is_not_that_of_papers(
    documents: dict[str, str], other: dict[str, str]
) -> None:
    prompts = {"query": "q: ", **documents, **other}
    (named,) = (name if prompt else None for name, prompt in documents.items())
    found = find_search_route(KnownRoutes.of("m", prompts, "query"))
    assert (found.document_route, found.query_route) == (named, "query")
    assert found == find_search_route(KnownRoutes.of("m", prompts, None), "query")


def test_experts_need_no_unprompted_papers() -> None:
    experts = KnownRoutes.of("m", {"query": "q: ", "document": "", "a": "a: "}, None, {"experts": ["e", "f"]})
    assert [route.document_route for route in list_search_routes(experts)] == ["query", "a"]


@pytest.mark.parametrize(
    ("default", "document"),
    [(None, ""), (None, "passage: "), ("query", ""), ("query", "passage: "), ("sts", "passage: ")],
)
def test_prompts_of_queries_and_papers_are_those_of_sentence_transformers(
    tmp_path: Path, plain_model: Path, default: str | None, document: str
) -> None:
    model = load(plain_model, device="cpu")
    model.prompts = {"query": "find passages: ", "document": document, "sts": "is it the same: "}
    model.default_prompt_name = default
    searcher = Searcher(BatchEncoder(model), write_corpus(tmp_path), "title")
    blend = searcher.blend()
    (compared,) = searcher.compare(searcher.encode(["rice drought"], blend), blend)
    rows = searcher.vectors(blend.main).rows.tolist()
    titles = [each["title"] for each in searcher.papers.facts(rows)]
    expected = model.encode_document(titles, normalize_embeddings=True) @ model.encode_query(
        "rice drought", normalize_embeddings=True
    )
    assert [hit.score for hit in compared.hits(rows)] == pytest.approx(expected.tolist(), abs=1e-5)
    prompted = searcher.encode_papers(titles, SearchRoute("query", "query", "query"))
    assert not np.allclose(expected, prompted @ compared.queries[0], atol=1e-3)


def test_an_unknown_route_is_refused_in_a_blend_also_with_weight_0() -> None:
    known = KnownRoutes.of("m", {"a": "a: ", "b": "b: "}, None)
    assert find_blend(known, "a=1,b=0") == Blend((SearchRoute("a", "a", "a"),), (1.0,))
    for route in ("a=1,x=0", {"a": 1, "x": 0}):
        with pytest.raises(UsageError, match="no route 'x'"):
            find_blend(known, route)


def test_each_kind_of_queries_of_the_same_documents_is_a_search_route() -> None:
    prompts = {"query": "search: ", "document": "document: ", "claim": "claim: "}
    known = KnownRoutes("m", prompts, None, (), {"query": "document", "claim": "document"})
    query, claim = (SearchRoute(name, "document", name) for name in ("query", "claim"))
    assert list_search_routes(known) == (query, claim)
    assert [find_search_route(known, route.name) for route in (query, claim)] == [query, claim]
    assert find_search_route(known) == find_search_route(known, "document") == query
    assert find_blend(known, "query=0.5,claim=0.5").routes == (query, claim)
