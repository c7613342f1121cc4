"""OpenAI's `/v1/embeddings` and `/v1/models`, with a route per request or text."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray
from pydantic import Field

from sentence_experts.models.pooling import unit
from sentence_experts.serve.engine import Embedded, EmbeddingEngine
from sentence_experts.serve.http import (
    Dimensions,
    ModelName,
    Route,
    Schema,
    Texts,
    answered,
    body_of,
    json_answer,
    read,
)
from sentence_experts.serve.library import CorpusView, Library, profile_of
from sentence_experts.serve.models import ServedModel
from sentence_experts.serve.routing import (
    RouteField,
    check_dimensions,
    embed_texts,
    fields_of,
    find_model,
    find_sides,
    texts_of,
)

ROUTE_FIELDS = ("route", "prompt_name", "input_type", "task")
router = APIRouter(tags=["OpenAI"])


class EmbeddingsRequest(Schema):
    """A request for embeddings in OpenAI's form, with routes."""

    input: Texts
    model: ModelName
    encoding_format: Literal["float", "base64"] | None = Field(None, description="Default: float")
    dimensions: Dimensions
    user: str | None = Field(None, description="Not used")
    normalize: bool | None = Field(
        None,
        description="Scale vectors to length 1; by default as the server was started, or as the model does",
    )
    route: Route
    prompt_name: Route
    input_type: Route
    task: Route


@router.post("/v1/embeddings", openapi_extra=body_of(EmbeddingsRequest))
async def embeddings(request: Request) -> Response:
    """Return the vectors of texts."""
    engine: EmbeddingEngine = request.app.state.engine
    body = await read(request, EmbeddingsRequest)
    served, in_name = find_model(engine.models, body.model)
    routes = fields_of(body, *ROUTE_FIELDS)
    view = await asyncio.to_thread(_taught_view, request, served, {"model": in_name, **routes})
    if view is None:
        embedded = await embed_texts(request, (served, in_name), body.input, "input", routes, body.dimensions)
    else:
        request.app.state.library.follow()
        embedded = await _embed_taught(request, body, view, {"model": in_name, **routes})
    normalize = (engine.config.normalize or None) if body.normalize is None else body.normalize
    vectors = embedded.finished(body.dimensions, normalize)
    as_base64 = body.encoding_format == "base64"
    data = [_item(number, vector, as_base64) for number, vector in enumerate(vectors)]
    total = sum(embedded.tokens)
    usage = {"prompt_tokens": total, "total_tokens": total}
    name = body.model or served.name
    content = {"object": "list", "data": data, "model": name, "usage": usage}
    return await json_answer(content, 0 if as_base64 else vectors.size)


def _taught_view(
    request: Request, served: ServedModel, routes: Mapping[str, RouteField]
) -> CorpusView | None:
    """Return the taught route, or the blend with some, that a field names; None if none does."""
    library: Library | None = request.app.state.library
    named = [each for each in routes.values() if isinstance(each, str) and each not in served.known.prompts]
    if library is None or not named:
        return None
    taught = library.taught(served.name, profile_of(request))
    for route in named:
        if route in {*taught, *taught.unfit} or any(
            each.rpartition("=")[0].strip() in taught for each in route.split(",")
        ):
            library.check_files()
            return library.find_one(f"{served.name}:{route}", "model", profile_of(request))
    return None


async def _embed_taught(
    request: Request, body: EmbeddingsRequest, view: CorpusView, routes: Mapping[str, RouteField]
) -> Embedded:
    """Return the vectors of texts under a taught route or a blend, by the model that it was fitted to."""
    engine: EmbeddingEngine = request.app.state.engine
    texts = texts_of(body.input, engine.config.max_texts, "input")
    check_dimensions(view.served, body.dimensions)
    sides = find_sides(view.name.partition(":")[2], routes, len(texts))
    vectors, tokens = [], []
    for each in view.blend.routes:
        of_texts = [each.document_route if is_paper else each.query_route for is_paper in sides]
        embedded = await answered(request, engine.embed(view.served, texts, of_texts))
        vectors.append(each.apply(unit(embedded.by(view.served).finished(None, False))))
        tokens.append(embedded.tokens)
    blended = list(unit(np.tensordot(np.array(view.blend.weights, np.float32), vectors, 1)))
    summed = [sum(of_text) for of_text in zip(*tokens, strict=True)]
    return replace(embedded, vectors=blended, tokens=summed, routes=[view.name] * len(texts))


def _item(number: int, vector: NDArray[np.float32], as_base64: bool) -> dict[str, Any]:
    values = base64.b64encode(vector.astype("<f4").tobytes()).decode() if as_base64 else vector.tolist()
    return {"object": "embedding", "index": number, "embedding": values}


@router.get("/v1/models")
async def models(request: Request) -> Response:
    """List the models and their routes."""
    described = (describe_model(request, served) for served in request.app.state.engine.models)
    return await json_answer({"object": "list", "data": [await each for each in described]})


@router.get("/v1/models/{name:path}")
async def model(request: Request, name: str) -> Response:
    """Describe a model and its routes."""
    served, route = find_model(request.app.state.engine.models, name)
    described = await describe_model(request, served)
    if route and route not in described["routes"]:
        served.find_route(route, "model")  # one of the model's other names for it, or refused
    return await json_answer(described)


async def describe_model(request: Request, served: ServedModel) -> dict[str, Any]:
    """Describe a model in OpenAI's form, with further facts for clients; taught routes are its last."""
    library: Library | None = request.app.state.library
    taught = await asyncio.to_thread(library.taught, served.name, profile_of(request)) if library else ()
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "sentence-experts",
        "dimensions": served.dimension,
        "max_tokens": served.max_length,
        "routes": [*dict.fromkeys([*served.known.prompts, *taught])],
        "default_route": served.known.default,
    }
