"""What every protocol does with a request for vectors."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request

from sentence_experts.serve.engine import Embedded, EmbeddingEngine
from sentence_experts.serve.http import answered
from sentence_experts.serve.inputs import check_dimensions, check_lengths, texts_of
from sentence_experts.serve.models import ServedModel
from sentence_experts.serve.routing import find_routes


async def embed_texts(
    request: Request,
    model: tuple[ServedModel, str | None],
    given: Any,
    field: str,
    routes: dict[str, Any],
    dimensions: int | None = None,
    dimensions_field: str = "dimensions",
    whole: bool = False,
) -> Embedded:
    """Check a request and encode its texts.

    Args:
        request: what the client sent; encoding stops if the client leaves.
        model: the model, and the route in its name if there is one.
        given: the texts, as they were sent, in `field`.
        field: for messages.
        routes: the fields that can name a route.
        dimensions: length of the vectors, from `dimensions_field`.
        dimensions_field: for messages.
        whole: refuse texts that the model does not read whole.

    Raises:
        RequestError: something in the request is wrong.
    """
    engine: EmbeddingEngine = request.app.state.engine
    served, in_name = model
    texts = texts_of(given, served, engine, field)
    of_texts = find_routes(served, in_name, routes, len(texts))
    check_dimensions(served, dimensions, dimensions_field)
    if whole:
        await asyncio.to_thread(check_lengths, served, texts, of_texts, field)
    return await answered(request, engine.embed(served, texts, of_texts, field))
