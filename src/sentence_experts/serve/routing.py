"""Which model and route a request means, however its protocol says so."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from sentence_experts.errors import RouteError
from sentence_experts.models.routes.known_routes import AUTO
from sentence_experts.serve.errors import RequestError
from sentence_experts.serve.models import Models, ServedModel

# The same purpose under the names of several protocols, in lower case with underscores.
ALIASES = {
    "search_query": "query",
    "retrieval_query": "query",
    "search_document": "document",
    "retrieval_document": "document",
    "retrieval_passage": "document",
    "passage": "document",
}
# What protocols must say of every text; a model without routes has no use for it.
PURPOSES = {*ALIASES, *ALIASES.values(), "classification", "clustering"}

# A route for all texts, or one per text.
RouteField = str | Sequence[str | None] | None


def find_model(models: Models, requested: str | None) -> tuple[ServedModel, str | None]:
    """Return the model of a request, and the route that its name holds (`"name:route"`)."""
    if requested is None:
        if len(models) > 1:
            raise RequestError(422, f"name a model; those served: {', '.join(models.names)}", "model")
        return models.first, None
    name, _, route = requested.partition(":")
    if (served := models.get(name)) is not None:
        return served, route or None
    close = get_close_matches(requested, models.names, 1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise RequestError(404, f"no model {name!r}{hint}; those served: {', '.join(models.names)}", "model")


def find_routes(
    served: ServedModel, in_name: str | None, fields: Mapping[str, RouteField], count: int
) -> list[str | None]:
    """Return the route of each of `count` texts; None for a model without, AUTO where the text decides.

    `in_name` is the route in the model's name, `fields` the request's other fields that can name one.
    """
    given = {name: value for name, value in {"model": in_name, **fields}.items() if value is not None}
    chosen: list[str | None] = [None] * count
    named_in: list[str | None] = [None] * count
    for field, value in given.items():
        if isinstance(value, str):
            routes = [_route(served, value, field)] * count
        elif len(value) != count:
            raise RequestError(422, f"{len(value)} routes for {count} text{'s' * (count != 1)}", field)
        else:
            routes = [
                None if one is None else _route(served, one, f"{field}.{place}")
                for place, one in enumerate(value)
            ]
        for place, route in enumerate(routes):
            if route is None:
                continue
            if chosen[place] not in (None, route):
                known = f"`{named_in[place]}` names {chosen[place]!r}"
                raise RequestError(422, f"names the route {route!r}, but {known}", field)
            chosen[place], named_in[place] = route, field
    if None in chosen:
        default = _default(served, chosen.index(None) if any(chosen) else None)
        chosen = [default if one is None else one for one in chosen]
    return chosen


def check_routes(served: ServedModel, routes: Sequence[str | None]) -> None:
    """Refuse routes that a model, which took the place of another one, does not have."""
    for route in dict.fromkeys(routes):
        if route is not None:
            _route(served, route, "route")


def _default(served: ServedModel, place: int | None) -> str | None:
    known = served.known
    if known.default is None and AUTO in known.prompts and served.classifier is not None:
        return AUTO
    try:
        return known.choose(None)
    except RouteError as error:
        example = f'"route": {next(iter(known.prompts))!r}'.replace("'", '"')
        how = f'{error}; send {example} or "model": "{served.name}:{next(iter(known.prompts))}"'
        raise RequestError(422, how, "route" if place is None else f"route.{place}") from None


def _route(served: ServedModel, requested: str, field: str) -> str | None:
    """Return the model's own name of a route; None where the model has no use for it."""
    known = served.known.prompts
    if requested in known:
        return requested
    same = [name for name in known if _purpose(name) == _purpose(requested)]
    if len(same) == 1:
        return same[0]
    if not known and field.startswith("input_type") and _plain(requested) in PURPOSES:
        return None
    try:
        return served.known.choose(requested)
    except RouteError as error:
        raise RequestError(422, str(error), field) from None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _purpose(name: str) -> str:
    return ALIASES.get(_plain(name), _plain(name))


def fields_of(request: Any, *names: str) -> dict[str, Any]:
    """Return the fields of a request by name."""
    return {name: getattr(request, name) for name in names}
