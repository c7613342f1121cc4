"""From the fields of a request for vectors, whatever its protocol, to vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from fastapi import Request

from sentence_experts.serve.engine import Embedded, EmbeddingEngine
from sentence_experts.serve.errors import RequestError
from sentence_experts.serve.http import answered
from sentence_experts.serve.models import ServedModel
from sentence_experts.serve.routing import find_routes

TOKEN_IDS = (
    "token ids are of another model's vocabulary: send texts (langchain-openai does with "
    "check_embedding_ctx_length=False)"
)


async def embed_texts(
    request: Request,
    model: tuple[ServedModel, str | None],
    given: Any,
    field: str,
    routes: dict[str, Any],
    dimensions: int | None = None,
    whole: bool = False,
) -> Embedded:
    """Check a request and encode its texts; encoding stops if the client leaves.

    Args:
        request: the request.
        model: the model, and the route in its name if there is one.
        given: the texts, as they were sent, in `field`.
        field: for messages.
        routes: the fields that can name a route.
        dimensions: length of the vectors.
        whole: refuse texts that the model does not read whole.
    """
    engine: EmbeddingEngine = request.app.state.engine
    served, in_name = model
    texts = texts_of(given, served, engine, field)
    chosen = find_routes(served, in_name, routes, len(texts))
    _check_dimensions(served, dimensions)
    if whole:
        await asyncio.to_thread(_check_lengths, served, texts, chosen, field)
    return await answered(request, engine.embed(served, texts, chosen, field))


def texts_of(given: Any, served: ServedModel, engine: EmbeddingEngine, field: str = "input") -> list[str]:
    """Return the texts of a request: a string or a list of strings, or token ids where they are allowed."""
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
        raise RequestError(422, "is not a text", f"{field}.{place}")
    if len(texts) > engine.config.max_texts:
        raise RequestError(
            413, f"{len(texts):,} texts; at most {engine.config.max_texts:,} are taken: split them", field
        )
    return texts


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text_of_ids(ids: list[int], served: ServedModel, engine: EmbeddingEngine, field: str) -> str:
    tokenizer = served.tokenizer
    if not engine.config.token_ids or tokenizer is None:
        raise RequestError(400, TOKEN_IDS, field)
    if any(not 0 <= each < len(tokenizer) for each in ids):
        raise RequestError(422, f"token ids of {served.name} are from 0 to {len(tokenizer) - 1}", field)
    return str(tokenizer.decode(ids, skip_special_tokens=True))


def _check_dimensions(served: ServedModel, dimensions: int | None) -> None:
    """Refuse lengths of vectors that a model was not trained for."""
    if dimensions in (None, served.dimension):
        return
    if not 0 < dimensions < served.dimension:
        raise RequestError(400, f"{served.name} has vectors of {served.dimension} numbers", "dimensions")
    allowed = served.shorter
    if allowed is None or dimensions in allowed:
        return
    has = (
        f"{', '.join(map(str, sorted(allowed)))} or {served.dimension}" if allowed else str(served.dimension)
    )
    raise RequestError(
        400,
        f"{served.name} was not trained for shorter vectors like this: leave it out or send {has}",
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
        prompt = served.known.prompts.get(route or "", "")
        tokens = len(tokenizer(prompt + text, truncation=False, padding=False, verbose=False)["input_ids"])
        if tokens > longest:
            raise RequestError(
                413, f"{tokens:,} tokens, but {served.name} reads {longest:,}", f"{field}.{place}"
            )
