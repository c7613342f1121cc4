"""Reading requests within limits, writing answers, and clients that leave."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Mapping
from typing import Annotated, Any, TypeVar

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import to_json
from starlette.requests import ClientDisconnect

from sentence_experts.config import describe_unknown
from sentence_experts.serve.errors import RequestError

BODY_SECONDS = 30  # time for a client to send its request
MAX_BODY_BYTES = 10_000_000
LARGE_ANSWER = 50_000  # maximum count of numbers in an answer that is not written in a thread

T = TypeVar("T")


class Schema(BaseModel):
    """The body of a request; nothing is converted, and no field is ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


S = TypeVar("S", bound=Schema)

STRINGS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
# Texts are checked by `texts_of`, whose errors name the fault.
Texts = Annotated[Any, WithJsonSchema(STRINGS), Field(description="A text, or a list of texts")]
ModelName = Annotated[
    str | None,
    Field(
        None,
        description="Name of a model, or NAME:ROUTE. Default: the only one, for the paths of TEI the first",
    ),
]
Dimensions = Annotated[
    int | None, Field(None, description="Shorter vectors, from models that were trained for them")
]
Route = Annotated[
    str | list[str | None] | None, Field(None, description="Route of all texts, or one per text")
]


def body_of(schema: type[Schema]) -> dict[str, Any]:
    """Describe the body of an endpoint that uses `read`, for the OpenAPI page."""
    content = {"application/json": {"schema": json_schema(schema)}}
    return {"requestBody": {"content": content, "required": True}}


def json_schema(schema: type[Schema]) -> dict[str, Any]:
    """Return the JSON schema of a body, in one piece."""
    whole = schema.model_json_schema()
    resolved: dict[str, Any] = _without_references(whole, whole.pop("$defs", {}))
    return resolved


def _without_references(part: Any, definitions: Mapping[str, Any]) -> Any:
    """Put the parts that a schema refers to in place: references would be looked up in the whole page."""
    if isinstance(part, list):
        return [_without_references(each, definitions) for each in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _without_references(definitions[part["$ref"].rpartition("/")[2]], definitions)
    return {name: _without_references(each, definitions) for name, each in part.items()}


async def read(request: Request, schema: type[S]) -> S:
    """Read the body of a request, as far as it is allowed."""
    body = await read_body(request)
    try:
        return schema.model_validate_json(body)
    except ValidationError as error:
        raise _refused(error, schema) from None


async def read_body(request: Request) -> bytes:
    """Read JSON that a client sends, within the limits of size and time."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" or request.headers.get("content-encoding", "identity") != "identity":
        raise RequestError(415, "send JSON, uncompressed, with the header 'Content-Type: application/json'")
    body = bytearray()
    declared = request.headers.get("content-length", "")
    is_large = declared.isdecimal() and int(declared) > MAX_BODY_BYTES
    try:
        async with asyncio.timeout(BODY_SECONDS):
            parts = aiter(request.stream())
            while not is_large and (part := await anext(parts, None)) is not None:
                body += part
                is_large = len(body) > MAX_BODY_BYTES
    except TimeoutError:
        raise RequestError(408, f"the request was not complete after {BODY_SECONDS} seconds") from None
    if is_large:
        raise RequestError(413, f"the request is larger than {MAX_BODY_BYTES:,} bytes: split it")
    return bytes(body)


_SHOULD, _AFTER = re.compile("^(Input|List|String|Value) should"), re.compile(" after validation, not .*")


def _refused(error: ValidationError, schema: type[Schema]) -> RequestError:
    """Return the first problem, without what was sent."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return RequestError(400, f"this is not valid JSON: {first['msg'].removeprefix('Invalid JSON: ')}")
    # pydantic also names the types of a union, which nobody has sent.
    parts = [str(part) for part in first["loc"]]
    place = ".".join(part for part in parts if part not in ("str", "int") and "[" not in part)
    if not place:
        return RequestError(422, "the request must be a JSON object")
    text = _SHOULD.sub("must", _AFTER.sub("", first["msg"].removeprefix("Value error, ")))
    if first["type"] == "extra_forbidden":
        known = schema.model_fields if len(parts) == 1 else ()
        text = describe_unknown(place, known).replace("setting", "field")
    elif first["type"] == "missing":
        text = "this field is needed"
    return RequestError(422, text, place)


async def answered(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, which is cancelled when the client leaves."""
    task = asyncio.ensure_future(work)
    left = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((task, left), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        left.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def json_answer(
    content: Any, numbers: int = 0, headers: Mapping[str, str] | None = None, status: int = 200
) -> Response:
    """Answer with JSON; about how many `numbers` it holds decides whether a thread writes it."""
    body = to_json(content) if numbers <= LARGE_ANSWER else await asyncio.to_thread(to_json, content)
    return Response(body, status, headers, media_type="application/json")
