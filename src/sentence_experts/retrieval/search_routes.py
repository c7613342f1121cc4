"""Search routes: the route of a corpus's papers, together with the route of the queries."""

from __future__ import annotations

from dataclasses import dataclass

from sentence_experts.models.routes.known_routes import AUTO, KnownRoutes
from sentence_experts.models.routes.task_types import DOCUMENT, QUERY

# Routes of queries and of documents, as models name them whose task file is not known.
PAIRS = (
    (QUERY, DOCUMENT),
    (QUERY, "passage"),
    ("search_query", "search_document"),
    ("retrieval_query", "retrieval_document"),
)


@dataclass(frozen=True)
class SearchRoute:
    """The route of the papers and the route of the queries of one search.

    Attributes:
        name: the route of the papers; "" for a model without routes.
        document_route: the route that papers are encoded with.
        query_route: the route that queries are encoded with.
    """

    name: str
    document_route: str | None
    query_route: str | None


def list_search_routes(known: KnownRoutes) -> tuple[SearchRoute, ...]:
    """List the search routes of a model: its routes, and its pairs of routes for queries and documents.

    Left out are a route that only repeats another one's prompt under a role's name, and "auto", which gives
    each paper the vector of one of the others.
    """
    if not known.prompts:
        return (SearchRoute("", None, None),)
    prompts = dict(known.prompts)
    pairs = _pairs(known)
    paired = {document: query for query, document in pairs.items()}
    own = {prompt for name, prompt in prompts.items() if name not in (QUERY, DOCUMENT)}
    names = [
        name
        for name, prompt in prompts.items()
        if name not in (*pairs, AUTO)
        and (name in paired or name not in (QUERY, DOCUMENT) or prompt not in own)
    ]
    return tuple(SearchRoute(name, name, paired.get(name, name)) for name in names)


def find_search_route(
    known: KnownRoutes,
    route: str | None = None,
    query_route: str | None = None,
    document_route: str | None = None,
) -> SearchRoute:
    """Find the search route that these settings name.

    `route` is for both sides; a route of a pair means the pair. With none given it is the model's default
    route, or the only search route that there is, or the only pair.
    """
    pairs = _pairs(known)
    documents = {document: query for query, document in pairs.items()}
    for each in (route, query_route, document_route):
        if each is not None:
            known.choose(each)
    if route is None and query_route is None and document_route is None and known.default is None:
        routes = list_search_routes(known)
        if len(routes) == 1:
            return routes[0]
        if len(documents) == 1:
            route = next(iter(documents))
    if document_route is None:
        chosen = route if route is not None else query_route
        document_route = pairs.get(chosen or "", chosen) or known.choose(None)
    if query_route is None:
        query_route = documents.get(document_route or "", document_route)
        if route is not None and route not in (*pairs, *documents):
            query_route = route
    return SearchRoute(document_route or "", document_route, query_route)


def _pairs(known: KnownRoutes) -> dict[str, str]:
    """Return route of queries -> route of documents, of those that the model tells apart."""
    pairs: dict[str, str] = {}
    prompts = known.prompts
    for query, document in [*known.search_routes.items(), *PAIRS]:
        both = query in prompts and document in prompts
        if both and prompts[query] != prompts[document]:
            pairs.setdefault(query, document)
    return pairs
