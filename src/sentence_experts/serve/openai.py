"""OpenAI's `/v1/embeddings` and `/v1/models`, with a route per request or text."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray
from pydantic import Field, WithJsonSchema

from sentence_experts.serve.engine import Embedded, Engine
from sentence_experts.serve.errors import RequestError
from sentence_experts.serve.http import Schema, answered, body_of, json_answer, read
from sentence_experts.serve.models import ServedModel
from sentence_experts.serve.routing import fields_of, find_model, find_routes

STRINGS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
ROUTE_FIELDS = ("route", "prompt_name", "input_type", "task")
TOKEN_IDS = (
    "token ids are of another model's vocabulary: send texts (langchain-openai does with "
    "check_embedding_ctx_length=False)"
)

router = APIRouter(tags=["OpenAI"])

Route = Annotated[
    str | list[str | None] | None,
    Field(None, description="Route of all texts, or one per text"),
]


class EmbeddingsRequest(Schema):
    """OpenAI's request, and routes."""

    input: Annotated[Any, WithJsonSchema(STRINGS)] = Field(description="A text, or a list of texts")
    model: str | None = Field(None, description="Name of a model, or NAME:ROUTE")
    encoding_format: Literal["float", "base64"] | None = Field(None, description="Default: float")
    dimensions: int | None = Field(
        None, description="Shorter vectors, from models that were trained for them"
    )
    user: str | None = Field(None, description="Not used")
    normalize: bool | None = Field(None, description="Scale vectors to length 1")
    route: Route
    prompt_name: Route
    input_type: Route
    task: Route


@router.post("/v1/embeddings", openapi_extra=body_of(EmbeddingsRequest))
async def embeddings(request: Request) -> Response:
    """Vectors of texts."""
    engine: Engine = request.app.state.engine
    asked = await read(request, EmbeddingsRequest)
    served, in_name = find_model(engine.models, asked.model)
    texts = texts_of(asked.input, served, engine)
    routes = find_routes(served, in_name, fields_of(asked, *ROUTE_FIELDS), len(texts))
    check_dimensions(served, asked.dimensions)
    found = await answered(request, engine.embed(served, texts, routes))
    normalize = engine.config.normalize if asked.normalize is None else asked.normalize
    vectors = finished(found.vectors, served, asked.dimensions, normalize)
    as_base64 = asked.encoding_format == "base64"
    data = [_item(number, vector, found, as_base64) for number, vector in enumerate(vectors)]
    total = sum(found.tokens)
    usage = {"prompt_tokens": total, "total_tokens": total}
    name = asked.model or served.name
    content = {"object": "list", "data": data, "model": name, "usage": usage}
    return await json_answer(content, 0 if as_base64 else vectors.size)


def _item(number: int, vector: NDArray[np.float32], found: Embedded, as_base64: bool) -> dict[str, Any]:
    values = base64.b64encode(vector.astype("<f4").tobytes()).decode() if as_base64 else vector.tolist()
    item = {"object": "embedding", "index": number, "embedding": values}
    if (confidence := found.confidences[number]) is not None:
        item |= {"route": found.routes[number], "confidence": round(confidence, 4)}
    return item


@router.get("/v1/models")
async def models(request: Request) -> Response:
    """The models and their routes."""
    engine: Engine = request.app.state.engine
    data = [describe_model(served) for served in engine.models]
    return await json_answer({"object": "list", "data": data})


@router.get("/v1/models/{name:path}")
async def model(request: Request, name: str) -> Response:
    """One model and its routes."""
    served, _ = find_model(request.app.state.engine.models, name)
    return await json_answer(describe_model(served))


def describe_model(served: ServedModel) -> dict[str, Any]:
    """A model in OpenAI's form, and what else clients need to know of it."""
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "sentence-experts",
        "dimensions": served.dimension,
        "max_tokens": served.max_length,
        "routes": list(served.known.prompts),
        "default_route": served.known.default,
    }


def texts_of(given: Any, served: ServedModel, engine: Engine, field: str = "input") -> list[str]:
    """The texts of a request: a string or a list of strings, or token ids where they are allowed.

    Raises:
        RequestError: 400, token ids; 413, too many texts; 422, none, or something else.
    """
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not given:
        raise RequestError(422, "give a text or a list of texts", field)
    if all(isinstance(one, str) for one in given):
        texts = given
    elif all(_is_id(one) for one in given):
        texts = [_text_of_ids(given, served, engine, field)]
    elif all(isinstance(one, list) and all(_is_id(each) for each in one) for one in given):
        texts = [_text_of_ids(one, served, engine, f"{field}.{place}") for place, one in enumerate(given)]
    else:
        place = next(place for place, one in enumerate(given) if not isinstance(one, str))
        raise RequestError(422, "is no text", f"{field}.{place}")
    if len(texts) > engine.config.max_texts:
        raise RequestError(
            413, f"{len(texts):,} texts; at most {engine.config.max_texts:,} are taken: split them", field
        )
    return texts


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text_of_ids(ids: list[int], served: ServedModel, engine: Engine, field: str) -> str:
    tokenizer = served.model.tokenizer
    if not engine.config.token_ids or tokenizer is None:
        raise RequestError(400, TOKEN_IDS, field)
    if any(not 0 <= each < len(tokenizer) for each in ids):
        raise RequestError(422, f"token ids of {served.name} are from 0 to {len(tokenizer) - 1}", field)
    return str(tokenizer.decode(ids, skip_special_tokens=True))


def check_dimensions(served: ServedModel, dimensions: int | None, field: str = "dimensions") -> None:
    """Refuse lengths of vectors that a model was not trained for.

    Raises:
        RequestError: 400.
    """
    if dimensions in (None, served.dimension):
        return
    if not 0 < dimensions < served.dimension:
        raise RequestError(400, f"{served.name} has vectors of {served.dimension} numbers", field)
    allowed = served.shorter
    if allowed is None or dimensions in allowed:
        return
    has = (
        f"{', '.join(map(str, sorted(allowed)))} or {served.dimension}" if allowed else str(served.dimension)
    )
    raise RequestError(
        400, f"{served.name} was not trained for shorter vectors like this: leave it out or send {has}", field
    )


def finished(
    vectors: NDArray[np.float32], served: ServedModel, dimensions: int | None, normalize: bool
) -> NDArray[np.float32]:
    """The vectors cut to a length, and scaled to length 1 if they are cut or should be."""
    if dimensions not in (None, served.dimension):
        vectors, normalize = vectors[:, :dimensions], True
    if not normalize:
        return vectors
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = vectors / np.maximum(lengths, 1e-12)
    return scaled
