"""`/docs`: the paths and their requests on a page that loads nothing from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any

from fastapi import APIRouter, Request, Response

router = APIRouter(include_in_schema=False)

POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;"
    "color-scheme:light dark}table{border-collapse:collapse;width:100%}"
    "td{border-top:1px solid #8886;padding:.2rem .5rem;vertical-align:top}code{font-size:.9em}"
)


@router.get("/docs")
async def docs(request: Request) -> Response:
    """Every path, with the fields of its request."""
    schema = request.app.openapi()
    parts = [f"<h1>{escape(schema['info']['title'])} {escape(schema['info']['version'])}</h1>"]
    parts.append('<p>As JSON: <a href="/openapi.json">/openapi.json</a></p>')
    for path, methods in schema["paths"].items():
        parts += [_endpoint(path, method, about) for method, about in methods.items()]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
    page = f'<!doctype html><html lang="en"><title>API</title>{head}<main>{"".join(parts)}</main></html>'
    return Response(page, media_type="text/html", headers={"Content-Security-Policy": POLICY})


def _endpoint(path: str, method: str, about: dict[str, Any]) -> str:
    title = (
        f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(about.get('description', ''))}</p>"
    )
    body = about.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    rows = [
        f"<tr><td><code>{escape(name)}</code>{' (needed)' if name in body.get('required', ()) else ''}"
        f"<td>{escape(field.get('description', ''))}</tr>"
        for name, field in body.get("properties", {}).items()
    ]
    return f"{title}<table>{''.join(rows)}</table>" if rows else title
