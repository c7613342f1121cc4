"""The model, route and texts that a request means, in any protocol; and their vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from fastapi import Request

from sentence_experts.models.routes.task_types import DOCUMENT
from sentence_experts.serve.engine import Embedded, EmbeddingEngine, shares_of
from sentence_experts.serve.errors import RequestError
from sentence_experts.serve.http import answered
from sentence_experts.serve.models import Models, ServedModel, is_purpose, purpose_of

TOKEN_IDS = (
    "token ids are of another model's vocabulary: send texts (langchain-openai does with "
    "check_embedding_ctx_length=False)"
)

PURPOSE_FIELDS = ("prompt_name", "input_type", "task")  # they can say what a text is for

# A route for all texts, or one per text.
RouteField = str | Sequence[str | None] | None


async def embed_texts(
    request: Request,
    model: tuple[ServedModel, str | None],
    given: Any,
    field: str,
    routes: Mapping[str, RouteField],
    dimensions: int | None = None,
    whole: bool = False,
) -> Embedded:
    """Check a request and encode its texts; encoding stops if the client leaves.

    Args:
        request: request of the client.
        model: model, and the route in its name if there is one.
        given: texts, as they were sent, in `field`.
        field: name of the texts' field, for messages.
        routes: fields that can name a route.
        dimensions: length of the vectors.
        whole: whether to refuse texts that the model does not read whole.
    """
    engine: EmbeddingEngine = request.app.state.engine
    served, in_name = model
    texts = texts_of(given, engine.config.max_texts, field)
    chosen = find_routes(served, in_name, routes, len(texts))
    check_dimensions(served, dimensions)
    if whole:
        await asyncio.to_thread(_check_lengths, served, texts, chosen, field)
    return await answered(request, engine.embed(served, texts, chosen, field))


def texts_of(given: Any, max_texts: int, field: str) -> list[str]:
    """Return the texts of a request: a string or a list of strings."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts:
        raise RequestError(422, "give a text or a list of texts", field)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            first = texts[0][0] if isinstance(texts[0], list) and texts[0] else texts[0]
            if type(first) is int:
                raise RequestError(400, TOKEN_IDS, f"{field}.{place}")
            raise RequestError(422, "is not a text", f"{field}.{place}")
    if len(texts) > max_texts:
        raise RequestError(413, f"{len(texts):,} texts; at most {max_texts:,} are taken: split them", field)
    return texts


def check_dimensions(served: ServedModel, dimensions: int | None) -> None:
    """Refuse lengths of vectors that a model was not trained for."""
    if dimensions in (None, served.dimension):
        return
    if not 0 < dimensions < served.dimension:
        raise RequestError(400, f"{served.name} has vectors of {served.dimension} numbers", "dimensions")
    if served.shorter is not None and dimensions not in served.shorter:
        lengths = ", ".join(map(str, sorted({*served.shorter, served.dimension})))
        raise RequestError(
            400,
            f"{served.name} was not trained for shorter vectors: it has {lengths}",
            "dimensions",
        )


def _check_lengths(
    served: ServedModel, texts: Sequence[str], routes: Sequence[str | None], field: str
) -> None:
    """Refuse texts that the model would cut."""
    longest, tokenizer = served.max_length, served.tokenizer
    if longest is None or tokenizer is None:
        return
    for place, (text, route) in enumerate(zip(texts, routes, strict=True)):
        of_route = (served.known.prompts.get(each or "", "") for each in shares_of(served, route))
        prompt = max(of_route, key=len)  # of a blend
        tokens = len(tokenizer(prompt + text, truncation=False, padding=False, verbose=False)["input_ids"])
        if tokens > longest:
            raise RequestError(
                413, f"{tokens:,} tokens, but {served.name} reads {longest:,}", f"{field}.{place}"
            )


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
    """Return the route of each of `count` texts; None for no prompt.

    `in_name` is the route in the model's name, `fields` the request's other fields that can name one.
    """
    chosen: list[str | None] = [None] * count
    named_in = [""] * count
    for field, where, place, name in _named_routes({"model": in_name, **fields}, count):
        route = served.find_route(name, where)
        if named_in[place] and route != chosen[place]:
            known = f"`{named_in[place]}` names {chosen[place] or DOCUMENT!r}"
            raise RequestError(422, f"names the route {route or DOCUMENT!r}, but {known}", field)
        chosen[place], named_in[place] = route, field
    if "" in named_in:
        default = served.default_route(f"route.{named_in.index('')}" if any(named_in) else "route")
        chosen = [one if field else default for one, field in zip(chosen, named_in, strict=True)]
    return chosen


def find_sides(route: str, fields: Mapping[str, RouteField], count: int) -> list[bool]:
    """Return whether each of `count` texts under a taught route is a paper, not a query.

    Raises:
        RequestError: one of the fields names another route.
    """
    papers = [False] * count
    named_in = next(field for field, value in fields.items() if value == route)
    for field, where, place, name in _named_routes(fields, count):
        if name != route and not (field in PURPOSE_FIELDS and is_purpose(name)):
            raise RequestError(422, f"names the route {name!r}, but `{named_in}` names {route!r}", where)
        papers[place] |= purpose_of(name) == DOCUMENT
    return papers


def _named_routes(fields: Mapping[str, RouteField], count: int) -> Iterator[tuple[str, str, int, str]]:
    """Yield field, place in the request, number of the text, and name of each route that fields name."""
    for field, value in fields.items():
        names = [value] * count if value is None or isinstance(value, str) else value
        if len(names) != count:
            raise RequestError(422, f"{len(names)} routes for {count} text{'s' * (count != 1)}", field)
        for place, name in enumerate(names):
            if name is not None:
                yield field, f"{field}.{place}" if names is value else field, place, str(name)


def fields_of(request: Any, *names: str) -> dict[str, Any]:
    """Return the fields of a request by name."""
    return {name: getattr(request, name) for name in names}
