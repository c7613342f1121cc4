"""Whether the server is well: `/health`, `/ready`, `/metrics`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from sentence_experts.serve.errors import RequestError
from sentence_experts.serve.http import json_answer

router = APIRouter(tags=["Status"])


@router.get("/health")
async def health() -> Response:
    """Answers as long as the server runs."""
    return await json_answer({"status": "ok"})


@router.get("/ready")
async def ready(request: Request) -> Response:
    """Whether the server takes requests: not while it is shutting down."""
    if request.app.state.engine.draining:
        raise RequestError(503, "the server is shutting down", retry_after=1)
    return await json_answer({"status": "ready", "models": request.app.state.engine.models.names})


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Figures for Prometheus."""
    page = request.app.state.engine.metrics.page()
    return Response(page, media_type=CONTENT_TYPE_LATEST)
