"""`/mcp`: the search as tools of the Model Context Protocol, for assistants.

A tool is a path of the search: its arguments are the fields of that path's requests, and its answer is that
path's answer. The official SDK speaks the protocol; no session is kept between requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response
from pydantic_core import from_json, to_json

from sentence_experts import __version__
from sentence_experts.errors import SentenceExpertsError, require
from sentence_experts.serve import search
from sentence_experts.serve.errors import RequestError
from sentence_experts.serve.http import MAX_BODY_BYTES, answered, json_schema, read_body
from sentence_experts.serve.library import LibraryRoute

MAX_VALUES = 20  # maximum number of values of a filter that the tool `routes` lists, frequent ones first
MAX_ABSTRACT = 1_000  # maximum number of characters of an abstract in a list of papers
INSTRUCTIONS = (
    "Search of a collection of papers under several kinds of similarity, called routes, which rank papers "
    "differently. `routes` lists them and the values of filters. Name papers by DOI, PMID or `paper_id`."
)


class SearchTool(NamedTuple):
    """A path of the search as a tool.

    Attributes:
        path: endpoint that answers.
        about: description for assistants.
        schema: JSON schema of the arguments.
    """

    path: Callable[[Request], Awaitable[Response]]
    about: str
    schema: dict[str, Any]


def _schema(without: tuple[str, ...], *needed: str) -> dict[str, Any]:
    schema = json_schema(search.SearchRequest)
    fields = {name: each for name, each in schema["properties"].items() if name not in without}
    return schema | {"properties": fields, "required": list(needed)}


TOOLS = {
    "search": SearchTool(
        search.search,
        "Find the papers nearest to a text, ranked under each route. `papers` has the facts; the hits of a "
        f"route are places in it. Abstracts end after {MAX_ABSTRACT:,} characters; `paper` has them whole.",
        _schema(("like",), "query"),
    ),
    "similar": SearchTool(
        search.search,
        "Find the papers most similar to one or more papers, ranked under each route, as `search` does.",
        _schema(("query", "hybrid"), "like"),
    ),
    "paper": SearchTool(
        search.citations,
        "Show one paper, the papers here that it cites, and those that cite it, at most 40 of each: "
        "`paper` has their numbers.",
        json_schema(search.CitationsRequest),
    ),
    "routes": SearchTool(
        search.corpus,
        "List the routes, the number of papers, and for each filter its most frequent values.",
        {"type": "object", "properties": {}, "additionalProperties": False},
    ),
}

router = APIRouter(tags=["Search"], route_class=LibraryRoute)


@router.post("/mcp")
async def mcp(request: Request) -> Response:
    """Speak the Model Context Protocol: tools of this search for assistants."""
    body = await read_body(request)
    try:
        sdk = load_server()
    except SentenceExpertsError as error:
        raise RequestError(501, str(error)) from None
    return await answered(request, _exchange(sdk, request, body))


async def _exchange(server: Any, request: Request, body: bytes) -> Response:
    """Let the SDK answer one message, which ends with the request."""
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    manager = StreamableHTTPSessionManager(
        server, json_response=True, stateless=True, max_request_body_size=MAX_BODY_BYTES
    )
    answer, parts = Response(), list[bytes]()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status_code, answer.raw_headers = message["status"], list(message["headers"])
        else:
            parts.append(message.get("body", b""))

    async with manager.run():
        await manager.handle_request(request.scope, _receiver(body), send)
    answer.body = b"".join(parts)
    return answer


def _receiver(body: bytes) -> Callable[[], Awaitable[Any]]:
    """Return what a client sends: a body, and then nothing more."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        return messages.pop() if messages else await asyncio.Event().wait()

    return receive


@cache
def load_server() -> Any:
    """Import the SDK, and return its server of the tools.

    Raises:
        SentenceExpertsError: the SDK is not installed.
    """
    require("mcp", "mcp")
    from mcp import types
    from mcp.server.lowlevel import Server

    async def list_tools(context: Any, given: Any) -> Any:
        reads = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
        return types.ListToolsResult(
            tools=[
                types.Tool(name=name, description=each.about, input_schema=each.schema, annotations=reads)
                for name, each in TOOLS.items()
            ]
        )

    async def call_tool(context: Any, given: Any) -> Any:
        text, failed = await _call(context.request, given.name, given.arguments or {})
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=failed)

    return Server(
        "sentence-experts",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _call(request: Request, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
    """Return the answer of a tool as JSON, or the reason why it is refused, and whether it is."""
    tool = TOOLS.get(name)
    if tool is None:
        return f"no tool {name!r}; there are {', '.join(TOOLS)}", True
    if not tool.schema["properties"] and arguments.keys() & TOOLS["search"].schema["properties"].keys():
        return f"{name} takes no arguments; `search` takes a query and filters", True
    try:
        answer = await tool.path(Request(request.scope, _receiver(to_json(arguments))))
    except RequestError as error:
        return error.body("")["error"]["message"], True
    return to_json(_shortened(from_json(bytes(answer.body)))).decode(), False


def _shortened(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with few values of each filter, and only the beginnings of the abstracts in lists."""
    for paper in [*answer["papers"], *answer["like"]] if "like" in answer else []:
        if len(text := paper["abstract"] or "") > MAX_ABSTRACT:
            paper["abstract"] = f"{text[:MAX_ABSTRACT]}…"
    for name, values in answer.get("values", {}).items():
        answer["values"][name] = dict(list(values.items())[:MAX_VALUES])
    return answer
