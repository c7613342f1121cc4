"""Cohere's `/v2/embed`."""

from __future__ import annotations

import base64
from typing import Any, Literal
from uuid import uuid4

import numpy as np
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray
from pydantic import Field

from sentence_experts.serve.embedding import embed_texts
from sentence_experts.serve.engine import EmbeddingEngine
from sentence_experts.serve.http import (
    Dimensions,
    ModelName,
    Route,
    Schema,
    body_of,
    json_answer,
    read,
)
from sentence_experts.serve.routing import fields_of, find_model

router = APIRouter(tags=["Cohere"])


class EmbedRequest(Schema):
    """Cohere's request; `input_type` names a route, by the model's own name or Cohere's."""

    model: ModelName
    texts: list[str] = Field(min_length=1, description="The texts")
    input_type: Route
    route: Route
    embedding_types: list[Literal["float", "base64", "binary", "ubinary"]] = Field(
        ["float"], min_length=1, description="Forms of the vectors"
    )
    truncate: Literal["NONE", "END"] = Field("END", description="NONE refuses texts that are too long")
    output_dimension: Dimensions


@router.post("/v2/embed", openapi_extra=body_of(EmbedRequest))
async def embed(request: Request) -> Response:
    """Vectors of texts."""
    engine: EmbeddingEngine = request.app.state.engine
    body = await read(request, EmbedRequest)
    embedded = await embed_texts(
        request,
        find_model(engine.models, body.model),
        body.texts,
        "texts",
        fields_of(body, "route", "input_type"),
        body.output_dimension,
        "output_dimension",
        whole=body.truncate == "NONE",
    )
    vectors = embedded.finished(body.output_dimension, engine.config.normalize)
    forms = {kind: _in_form(vectors, kind) for kind in body.embedding_types}
    meta = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": sum(embedded.tokens)}}
    content = {"id": str(uuid4()), "embeddings": forms, "texts": body.texts, "meta": meta}
    return await json_answer(content, vectors.size)


def _in_form(vectors: NDArray[np.float32], kind: str) -> Any:
    if kind == "float":
        return vectors.tolist()
    if kind == "base64":
        return [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]
    bits = np.packbits(vectors > 0, axis=1)  # (texts, dimensions / 8)
    return (bits if kind == "ubinary" else bits.astype(np.int16) - 128).tolist()
