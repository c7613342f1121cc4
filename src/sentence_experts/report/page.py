"""One self-contained HTML page."""

from __future__ import annotations

from pathlib import Path

from sentence_experts.evaluation.results import Evaluation
from sentence_experts.storage import write_text


def evaluation_page(found: Evaluation) -> str:
    """The page of an evaluation."""
    return f"<!doctype html><title>{len(found.models)} models</title>"


def write_page(path: Path, html: str) -> Path:
    """Write the page; its path is returned."""
    write_text(path, html)
    return path
