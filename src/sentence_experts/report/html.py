"""Reports as HTML pages (one file, no scripts, nothing loaded from elsewhere) and as Markdown."""

from __future__ import annotations

import base64
from functools import cache
from typing import TYPE_CHECKING

from sentence_experts.errors import require
from sentence_experts.report.content import Figure, Report, Table

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _templates() -> Environment:
    jinja2 = require("jinja2", "report")
    templates: Environment = jinja2.Environment(
        loader=jinja2.PackageLoader("sentence_experts.report"),
        autoescape=lambda name: name.endswith(".html"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.tests["table"] = lambda item: isinstance(item, Table)
    templates.tests["figure"] = lambda item: isinstance(item, Figure)
    templates.filters["base64"] = lambda text: base64.b64encode(text.encode("utf-8")).decode("ascii")
    return templates


def html(report: Report) -> str:
    """Return a report as a page: the verdict, the main tables and figures, then the closed details."""
    return _templates().get_template("report.html").render(report=report)


def markdown(report: Report) -> str:
    """Return the verdict, the tables and the notes of a report as Markdown."""
    return _templates().get_template("report.md").render(report=report)
