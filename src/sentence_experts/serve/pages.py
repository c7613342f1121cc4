"""The pages: `/`, and `/docs` with all paths; they load nothing from elsewhere."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from sentence_experts import __version__
from sentence_experts.serve.errors import RequestError

router = APIRouter(include_in_schema=False)

# Scripts and styles come from files of this server only; trusted types keep scripts from writing HTML at all.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@router.get("/")
async def start(request: Request) -> Response:
    """Show the search page, or what there is without a corpus."""
    return _page("start.html" if request.app.state.library is None else "search.html", version=__version__)


@router.get("/docs")
async def docs(request: Request) -> Response:
    """List every path, with the fields of its request."""
    schema = request.app.openapi()
    endpoints = [
        _endpoint(path, method, about)
        for path, methods in schema["paths"].items()
        for method, about in methods.items()
    ]
    return _page("docs.html", **schema["info"], endpoints=endpoints)


@router.get("/static/{name}")
async def static(name: str) -> Response:
    """Return a script, a style or an image of the pages."""
    if name not in (known := _static()):
        raise RequestError(404, "there is no such file")
    content, kind = known[name]
    return Response(content, media_type=kind)


@cache
def _static() -> dict[str, tuple[bytes, str]]:
    """Read the files of the pages: name -> content and type."""
    entries = files("sentence_experts.serve").joinpath("static").iterdir()
    return {each.name: (each.read_bytes(), TYPES[Path(each.name).suffix]) for each in entries}


@cache
def _templates() -> Environment:
    options: Any = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    return Environment(loader=PackageLoader("sentence_experts.serve"), autoescape=True, **options)


def _page(template: str, **values: Any) -> Response:
    text = _templates().get_template(template).render(values)
    return Response(text, media_type="text/html", headers={"Content-Security-Policy": POLICY})


def _endpoint(path: str, method: str, about: dict[str, Any]) -> dict[str, Any]:
    body = about.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    needed = body.get("required", ())
    fields = [
        {"name": name, "needed": name in needed, "description": field.get("description", "")}
        for name, field in body.get("properties", {}).items()
    ]
    shown = {"path": path, "method": method.upper(), "description": about.get("description", "")}
    return shown | {"fields": fields}
