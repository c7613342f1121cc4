"""Text Embeddings Inference's `/embed`, `/similarity`, `/tokenize` and `/info`.

They name no model: the first one answers, or the one of the field `model`, or of a path such as
`/models/NAME:ROUTE/embed`. Like theirs, `/` takes requests to `/embed` and `/similarity`.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal, TypeVar

import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic import Field

from sentence_experts import __version__
from sentence_experts.serve.engine import Embedded, EmbeddingEngine
from sentence_experts.serve.errors import RequestError
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
from sentence_experts.serve.models import ServedModel
from sentence_experts.serve.routing import embed_texts, fields_of, find_model, find_routes, texts_of

ROUTE_FIELDS = ("route", "prompt_name")
SENTENCES = "inputs.sentences"

T = TypeVar("T")

router = APIRouter(tags=["TEI"])


class Options(Schema):
    """A request with the fields that all requests have."""

    model: ModelName
    prompt_name: Route
    route: Route
    truncate: bool | None = Field(None, description="False refuses texts that the model does not read whole")
    truncation_direction: Literal["right", "Right"] | None = Field(
        None, description="Texts are cut at the end"
    )


class EmbedRequest(Options):
    """A request for vectors."""

    inputs: Texts
    normalize: bool = Field(True, description="Scale vectors to length 1")
    dimensions: Dimensions
    encoding_format: Literal["float"] | None = None


class Comparison(Schema):
    """A text, and others to compare it with."""

    source_sentence: str
    sentences: list[str] = Field(min_length=1)


class SimilarityRequest(Options):
    """A request for cosines; the options can stand in `parameters` too."""

    inputs: Comparison
    parameters: Options | None = None


class AnyRequest(SimilarityRequest, EmbedRequest):
    """The body of a request to `/`."""

    inputs: Any  # type: ignore[assignment]


class TokenizeRequest(Options):
    """A request for tokens."""

    inputs: Texts
    add_special_tokens: bool = True
    truncate: bool | None = Field(None, description="Without effect: all tokens are returned")


@router.post("/embed", openapi_extra=body_of(EmbedRequest))
@router.post("/models/{model:path}/embed", include_in_schema=False)
async def embed(request: Request) -> Response:
    """Return the vectors of texts."""
    return await _embed(request, await read(request, EmbedRequest))


@router.post("/similarity", openapi_extra=body_of(SimilarityRequest))
@router.post("/models/{model:path}/similarity", include_in_schema=False)
async def similarity(request: Request) -> Response:
    """Return the cosines of a text with others."""
    return await _similarity(request, await read(request, SimilarityRequest))


@router.post("/tokenize", openapi_extra=body_of(TokenizeRequest))
@router.post("/models/{model:path}/tokenize", include_in_schema=False)
async def tokenize(request: Request) -> Response:
    """Return all tokens of texts, with those of the route; the model reads the first `max_input_length`."""
    engine: EmbeddingEngine = request.app.state.engine
    body = await read(request, TokenizeRequest)
    served, in_name = _model(request, body.model)
    texts = texts_of(body.inputs, engine.config.max_texts, "inputs")
    routes: list[str | None] = [None] * len(texts)
    if in_name or body.route or body.prompt_name or served.known.default:
        routes = find_routes(served, in_name, fields_of(body, *ROUTE_FIELDS), len(texts))
    if blend := next((each for each in routes if each and each not in served.known.prompts), None):
        raise RequestError(422, f"{blend!r} has no tokens: the texts of each of its routes have", "model")
    whole = [
        served.known.prompts.get(route or "", "") + text for text, route in zip(texts, routes, strict=True)
    ]
    tokens = await asyncio.to_thread(_tokens, served, whole, body.add_special_tokens)
    return await json_answer(tokens, sum(map(len, tokens)))


@router.get("/info")
@router.get("/models/{model:path}/info", include_in_schema=False)
async def info(request: Request) -> Response:
    """Describe a model that is served, and the server's limits."""
    engine: EmbeddingEngine = request.app.state.engine
    served, in_name = _model(request, None)
    if in_name:
        served.find_route(in_name, "model")  # an unknown route is refused
    return await json_answer(
        {
            "model_id": served.name,
            "model_sha": await asyncio.to_thread(lambda: served.encoder.fingerprint),
            "model_dtype": str(served.model.dtype).removeprefix("torch."),
            "model_type": {"embedding": {"pooling": served.encoder.pooling}},
            "routes": list(served.known.prompts),
            "max_input_length": served.max_length,
            "max_batch_tokens": engine.batcher.batch_tokens,
            "max_client_batch_size": engine.config.max_texts,
            "auto_truncate": True,
            "version": __version__,
        }
    )


@router.post("/", include_in_schema=False)
@router.post("/models/{model:path}", include_in_schema=False)
async def either(request: Request) -> Response:
    """Answer a request with the fields of `/embed` or `/similarity`."""
    body = await read(request, AnyRequest)
    given = {name: getattr(body, name) for name in body.model_fields_set}
    if isinstance(body.inputs, dict):
        return await _similarity(request, _as(SimilarityRequest, given))
    parameters = given.pop("parameters", None)
    return await _embed(request, _as(EmbedRequest, given | _given(parameters, given)))


def _as(schema: type[T], given: dict[str, Any]) -> T:
    try:
        return schema(**given)
    except ValueError:
        message = "give a text, a list of texts, or source_sentence and sentences"
        raise RequestError(422, message, "inputs") from None


def _given(parameters: Options | None, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the options in `parameters`, which the fields beside must not contradict."""
    options = {} if parameters is None else parameters.model_dump(exclude_none=True)
    for name, value in options.items():
        if fields.get(name) not in (None, value):
            raise RequestError(422, f"is {value!r}, but `{name}` is {fields[name]!r}", f"parameters.{name}")
    return options


def _model(request: Request, requested: str | None) -> tuple[ServedModel, str | None]:
    """Return the model that the path or a field names, and the route in its name."""
    engine: EmbeddingEngine = request.app.state.engine
    in_path = request.path_params.get("model")
    if in_path and requested not in (None, in_path):
        raise RequestError(422, f"is {requested!r}, but the path names {in_path!r}", "model")
    return find_model(engine.models, in_path or requested or engine.models.first.name)


async def _vectors(request: Request, body: Options, texts: Any, field: str) -> Embedded:
    routes, dimensions = fields_of(body, *ROUTE_FIELDS), getattr(body, "dimensions", None)
    model = _model(request, body.model)
    return await embed_texts(request, model, texts, field, routes, dimensions, whole=body.truncate is False)


async def _embed(request: Request, body: EmbedRequest) -> Response:
    embedded = await _vectors(request, body, body.inputs, "inputs")
    vectors = embedded.finished(body.dimensions, body.normalize)
    return await json_answer(vectors.tolist(), vectors.size)


async def _similarity(request: Request, body: SimilarityRequest) -> Response:
    given = _given(body.parameters, vars(body))
    texts = [body.inputs.source_sentence, *body.inputs.sentences]
    try:
        embedded = await _vectors(request, body.model_copy(update=given), texts, SENTENCES)
    except RequestError as error:
        of_text, _, place = (error.field or "").rpartition(".")
        if of_text == SENTENCES:  # the source sentence comes first among the texts
            error.field = f"{SENTENCES}.{int(place) - 1}" if int(place) else "inputs.source_sentence"
        raise
    first, *others = embedded.finished(None, normalize=True)
    return await json_answer((np.stack(others) @ first).tolist())


def _tokens(served: ServedModel, texts: list[str], special: bool) -> list[list[dict[str, Any]]]:
    """Return the tokens of each text in TEI's form."""
    tokenizer = served.tokenizer
    if tokenizer is None or not getattr(tokenizer, "is_fast", False):
        raise RequestError(422, f"{served.name} has no tokenizer that tells where tokens stand", "model")
    special_ids = {each for each, token in tokenizer.added_tokens_decoder.items() if token.special}
    options = {"return_offsets_mapping": True, "truncation": False, "padding": False, "verbose": False}
    answers = []
    for text in texts:
        tokenized = tokenizer(text, add_special_tokens=special, **options)
        ids, spans = tokenized["input_ids"], tokenized["offset_mapping"]
        answer = [
            {"id": each, "text": text[start:stop], "special": False, "start": start, "stop": stop}
            for each, (start, stop) in zip(ids, spans, strict=True)
        ]
        for token in answer:
            if token["id"] in special_ids:
                name = tokenizer.convert_ids_to_tokens(token["id"])
                token |= {"text": name, "special": True, "start": None, "stop": None}
        answers.append(answer)
    return answers
