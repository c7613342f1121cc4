"""OpenAI's `/v1/embeddings` and `/v1/models`, with a route per request or text."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray
from pydantic import Field

from sentence_experts.models.pooling import unit
from sentence_experts.retrieval.search_routes import Blend
from sentence_experts.serve.engine import EmbeddingEngine
from sentence_experts.serve.http import (
    Dimensions,
    ModelName,
    Route,
    Schema,
    Texts,
    body_of,
    json_answer,
    read,
)
from sentence_experts.serve.library import Library, profile_of
from sentence_experts.serve.models import ServedModel
from sentence_experts.serve.routing import embed_texts, fields_of, find_model

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
        None, description="Scale vectors to length 1; by default as the server was started"
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
    named = in_name or next((each for each in routes.values() if isinstance(each, str)), None)
    blend = await asyncio.to_thread(_taught_blend, request, served, named)
    if blend is None:
        embedded = await embed_texts(request, (served, in_name), body.input, "input", routes, body.dimensions)
    else:
        sides = []
        for each in blend.routes:
            route = {"route": each.query_route}
            embedded = await embed_texts(request, (served, None), body.input, "input", route, body.dimensions)
            sides.append(each.of_queries(unit(np.stack(embedded.vectors))))
        embedded.vectors = list(unit(np.tensordot(np.array(blend.weights, np.float32), sides, 1)))
    normalize = engine.config.normalize if body.normalize is None else body.normalize
    vectors = embedded.finished(body.dimensions, normalize)
    as_base64 = body.encoding_format == "base64"
    data = [_item(number, vector, as_base64) for number, vector in enumerate(vectors)]
    total = sum(embedded.tokens)
    usage = {"prompt_tokens": total, "total_tokens": total}
    name = body.model or served.name
    content = {"object": "list", "data": data, "model": name, "usage": usage}
    return await json_answer(content, 0 if as_base64 else vectors.size)


def _taught_blend(request: Request, served: ServedModel, route: str | None) -> Blend | None:
    """Return the taught route, or the blend with some, that a request names; None for any other."""
    library: Library | None = request.app.state.library
    if library is None or route is None or route in served.known.prompts:
        return None
    taught = library.taught(served.name, profile_of(request))
    if route not in {*taught, *taught.unfit} and not any(
        each.rpartition("=")[0].strip() in taught for each in route.split(",")
    ):
        return None
    library.check_files()
    return library.find_one(f"{served.name}:{route}", "model", profile_of(request)).blend


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
    served, _ = find_model(request.app.state.engine.models, name)
    return await json_answer(await describe_model(request, served))


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
