"""The app: routers of all protocols around one engine, and the state of the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from sentence_experts import __version__
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.errors import SentenceExpertsError
from sentence_experts.serve import mcp, openai, pages, search, teaching, tei
from sentence_experts.serve.engine import EmbeddingEngine
from sentence_experts.serve.errors import RequestError
from sentence_experts.serve.followed import FollowedSource
from sentence_experts.serve.guard import Guard, Keys, refusal
from sentence_experts.serve.http import json_answer
from sentence_experts.serve.library import Library

status = APIRouter(tags=["Status"])
ROUTERS = (openai.router, tei.router, status, pages.router)


@status.get("/health")
async def health() -> Response:
    """Answer as long as the server runs."""
    return await json_answer({"status": "ok"})


@status.get("/ready")
async def ready(request: Request) -> Response:
    """Tell whether the server takes requests: not while it is shutting down."""
    if request.app.state.engine.draining:
        raise RequestError(503, "the server is shutting down", retry_after=1)
    return await json_answer({"status": "ready", "models": request.app.state.engine.models.names})


@status.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Return figures for Prometheus."""
    return Response(request.app.state.engine.metrics.page(), media_type=CONTENT_TYPE_LATEST)


def build_app(
    engine: EmbeddingEngine,
    library: Library | None,
    keys: Keys | None,
    local_only: bool,
    routers: Sequence[APIRouter] = (),
    followed: FollowedSource | None = None,
) -> FastAPI:
    """Build the app of an engine, with a search if there is a corpus, and other routers."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tasks = []
        if engine.config.watch:
            watching = [engine.models.watch(), *([followed.watch(renew)] if followed else [])]
            tasks = [asyncio.create_task(each) for each in watching]
        yield
        for task in tasks:
            task.cancel()
        if app.state.library is not None:
            app.state.library.close()
        engine.close()

    def renew(corpus: CorpusFolder) -> None:
        app.state.library = app.state.library.renewed(corpus)  # requests keep the one that they began with

    app = FastAPI(
        title="sentence-experts",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses={"default": {"description": "Refused: the answer says in one sentence why"}},
    )
    app.state.engine, app.state.library, app.state.keys = engine, library, keys
    if library is not None:
        with suppress(SentenceExpertsError):
            mcp.load_server()  # now, for the first request would wait for the import
    app.add_middleware(Guard, metrics=engine.metrics, keys=keys, local_only=local_only)
    app.add_exception_handler(HTTPException, _refuse_path)  # type: ignore[arg-type]
    for router in (
        *ROUTERS,
        *([] if library is None else [search.router, teaching.router, mcp.router]),
        *routers,
    ):
        app.include_router(router)
    return app


async def _refuse_path(request: Request, error: HTTPException) -> Response:
    reasons = {404: "there is no such path; /openapi.json lists them", 405: "this path takes another method"}
    reason = reasons.get(error.status_code, error.detail)
    answer = refusal(RequestError(error.status_code, reason), request.url.path)
    answer.headers.update(error.headers or {})  # such as `Allow`
    return answer
