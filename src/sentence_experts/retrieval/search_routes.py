"""Search routes: the route of a corpus's papers, together with the route of the queries; and their blends."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sentence_experts.encoding.chunks import Vectors
from sentence_experts.errors import RouteError, UsageError
from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.models.routes.task_types import QUERY, QUERY_ROUTES, ROLES
from sentence_experts.retrieval.head_cosines import TaughtMap

# As people and programs write it; `float` also reads 1_0 and digits of other scripts.
_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class SearchRoute:
    """The route of the papers and the route of the queries of one search.

    Attributes:
        name: the route of the papers, or that of the queries where it alone tells them apart, or the name of
            what was taught; "" for a model without routes.
        document_route: the route that papers are encoded with; None for no prompt.
        query_route: the route that queries are encoded with; None for no prompt.
        taught: change of these routes' vectors, for a taught route.
    """

    name: str
    document_route: str | None
    query_route: str | None
    taught: TaughtMap | None = None

    def apply(self, vectors: Vectors) -> Vectors:
        """Return vectors of length 1, (texts, dimensions), from those of its routes."""
        return vectors if self.taught is None else self.taught.apply(vectors)


@dataclass(frozen=True)
class Blend:
    """One or several search routes, by whose weighted cosines papers are found.

    Attributes:
        routes: the search routes.
        weights: the share of each; they sum to 1.
    """

    routes: tuple[SearchRoute, ...]
    weights: tuple[float, ...] = (1.0,)

    @property
    def name(self) -> str:
        """The route's name, or several names with their shares, such as "use=0.7,works-with=0.3"."""
        if len(self.routes) == 1:
            return self.routes[0].name
        return ",".join(
            f"{route.name}={weight:g}" for route, weight in zip(self.routes, self.weights, strict=True)
        )

    @property
    def main(self) -> SearchRoute:
        """The route with the largest share."""
        return self.routes[self.weights.index(max(self.weights))]


def parse_weights(route: str | Mapping[str, float]) -> dict[str, float]:
    """Return the weights of routes, which sum to 1, from "use=0.7,works-with=0.3" or from a mapping.

    Those of 0 are among them, so that unknown names are found.

    >>> parse_weights("use=3, works-with=1")
    {'use': 0.75, 'works-with': 0.25}
    """
    given: dict[str, float] = {}
    named = [each.rpartition("=")[::2] for each in route.split(",")] if isinstance(route, str) else route
    for name, text in named.items() if isinstance(named, Mapping) else named:
        plain = not isinstance(text, str) or _NUMBER.fullmatch(text.strip())
        try:
            weight = float(text) if plain and not isinstance(text, bool) else math.nan
        except (TypeError, ValueError):
            weight = math.nan
        if not (name := name.strip()) or name in given or not 0 <= weight < math.inf:
            raise UsageError(
                f"`route`: {route!r}: give each route once with a weight of 0 or more: NAME=0.7,OTHER=0.3"
            )
        given[name] = weight
    if not (largest := max(given.values(), default=0.0)):
        raise UsageError(f"`route`: {route!r}: the weights sum to 0")
    parts = {name: weight / largest for name, weight in given.items()}  # so no sum is infinite
    total = sum(parts.values())
    return {name: part / total for name, part in parts.items()}


def list_search_routes(known: KnownRoutes) -> tuple[SearchRoute, ...]:
    """List the search routes of a model: its routes, and its pairs of routes for queries and documents.

    Left out are a route that only repeats another one's prompt under a role's name, and "auto", which gives
    each paper the vector of one of the others.
    """
    if not known.prompts:
        return (SearchRoute("", None, None),)
    prompts, pairs = known.prompts, _pairs(known)
    own = {prompt for name, prompt in prompts.items() if name not in ROLES}
    routes: list[SearchRoute] = []
    for name, prompt in prompts.items():
        of_name = [pair for pair in pairs.values() if name == (pair.document_route or pair.query_route)]
        if not of_name and name not in pairs and (name not in ROLES or prompt not in own):
            of_name = [SearchRoute(name, name, name)]
        routes += of_name
    return tuple(routes)


def find_blend(
    known: KnownRoutes,
    route: str | Mapping[str, float] | None = None,
    taught: Mapping[str, SearchRoute] = MappingProxyType({}),
) -> Blend:
    """Find the search route of this name, or the routes of a blend, such as "use=0.7,works-with=0.3".

    `taught` are taught routes by name, beside the model's.

    Raises:
        UsageError: weights that are negative or sum to 0, or an unknown route among several.
        RouteError: the model needs a route, or does not know the one.
    """
    is_blend = isinstance(route, Mapping) or (route and "=" in route and route not in known.prompts)
    if route is None or (isinstance(route, str) and not is_blend):
        return Blend((taught.get(route or "") or find_search_route(known, route),))
    weights: dict[SearchRoute, float] = {}
    for name, weight in parse_weights(route).items():
        try:
            found = taught.get(name) or find_search_route(known, name)
        except RouteError as error:
            raise UsageError(f"`route`: {error}") from error
        if weight:
            weights[found] = weights.get(found, 0.0) + weight
    return Blend(tuple(weights), tuple(weights.values()))


def find_search_route(known: KnownRoutes, route: str | None = None) -> SearchRoute:
    """Find the search route of this name; a route of a pair means the pair, one of several the first.

    With none given it is the model's default route, or the only search route, or the only pair, or the first
    of pairs with the same documents, or `query` where no task file names the pairs; of a model without
    experts the pair of `query` comes before a default prompt for other uses. A model without routes
    goes by its own name, in blends with taught ones.
    """
    if not known.prompts and route is not None and route == known.model:
        return SearchRoute(known.model, None, None)
    pairs = _pairs(known)
    if route is None and known.default is None:
        routes = list_search_routes(known)
        if len(routes) == 1:
            return routes[0]
        if len({pair.document_route for pair in pairs.values()}) == 1:
            route = next(iter(pairs))
        elif QUERY in pairs and not known.search_routes:
            route = QUERY
    elif route is None and not known.experts and QUERY in pairs and pairs[QUERY].document_route is not None:
        named = {name for pair in pairs.values() for name in (pair.query_route, pair.document_route)}
        route = known.default if known.default in named else QUERY
    chosen = known.choose(route)
    if chosen in pairs:
        return pairs[chosen]
    of_documents = (pair for pair in pairs.values() if pair.document_route == chosen)
    return next(of_documents, SearchRoute(chosen or "", chosen, chosen))


def _pairs(known: KnownRoutes) -> dict[str, SearchRoute]:
    """Return route of queries -> search route, of those for which the model tells papers and queries apart.

    It is called as the route of the papers, unless that has no prompt or other queries too.
    """
    pairs: dict[str, str | None] = {}
    prompts = known.prompts
    for query, document in [*known.search_routes.items(), *QUERY_ROUTES]:
        both = query in prompts and document in prompts
        if both and prompts[query] != prompts[document]:
            pairs.setdefault(query, document)
    pairs |= dict.fromkeys(known.bare_queries)
    shared = {document for document, count in Counter(pairs.values()).items() if count > 1}
    return {
        query: SearchRoute(query if document is None or document in shared else document, document, query)
        for query, document in pairs.items()
    }
