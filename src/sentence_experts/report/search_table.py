"""The table of an evaluation of search, as Markdown."""

from __future__ import annotations

from sentence_experts.evaluation.search_quality import SearchEvaluation


def search_markdown(evaluation: SearchEvaluation) -> str:
    """A verdict and a table: one line for each route of each model, alone and hybrid, BM25 first."""
    title, headings, rows = evaluation.summary()
    lines = [" | ".join(["", *row, ""]).strip() for row in (headings, ["---"] * len(headings), *rows)]
    verdict = " ".join(evaluation.verdict())
    return "\n".join(["# Search quality", "", verdict, "", f"{title}.", "", *lines, ""])
