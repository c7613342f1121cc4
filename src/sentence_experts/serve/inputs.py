"""The texts of a request, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sentence_experts.serve.engine import EmbeddingEngine
from sentence_experts.serve.errors import RequestError
from sentence_experts.serve.models import ServedModel

TOKEN_IDS = (
    "token ids are of another model's vocabulary: send texts (langchain-openai does with "
    "check_embedding_ctx_length=False)"
)


def texts_of(given: Any, served: ServedModel, engine: EmbeddingEngine, field: str = "input") -> list[str]:
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


def check_lengths(
    served: ServedModel, texts: Sequence[str], routes: Sequence[str | None], field: str = "inputs"
) -> None:
    """Refuse texts that would be cut, for clients that ask for that.

    Raises:
        RequestError: 413, the model does not read the whole of a text.
    """
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
