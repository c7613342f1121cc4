"""Write the report that people read: a page, Markdown (tasks) or a figure (routes)."""

from __future__ import annotations

import itertools
import logging
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from sentence_experts.errors import UsageError
from sentence_experts.evaluation.results import Result, StoredResult
from sentence_experts.progress import announce
from sentence_experts.report.content import Report, html, markdown
from sentence_experts.storage import explained, replacing

logger = logging.getLogger(__name__)

# Class of the result -> file, and the module and function that make the report, imported when needed.
_REPORTS = {
    "PairEvaluation": ("report.html", "pairs", "pairs_report"),
    "TaskEvaluation": ("tasks.md", "tasks", "tasks_report"),
    "Audit": ("report.html", "audit", "audit_report"),
    "Analysis": ("analysis.html", "moee", "analysis_report"),
    "Similarity": ("similarity.png", "figures", "similarity_figure"),
}


def report_of(result: Result) -> Any:
    """Return the `Report` of a result, or the figure of similarity.

    Raises:
        UsageError: there is no report of this kind of result.
    """
    name = type(result).__name__
    if name not in _REPORTS:
        raise UsageError(f"no report is made of a {name}; only of {', '.join(_REPORTS)}")
    _, module, function = _REPORTS[name]
    return getattr(import_module(f"sentence_experts.report.{module}"), function)(result)


@announce("writing the report")
def write_report(result: Result, out: Path | str, keep: bool = False) -> Path:
    """Write the report of a result to a folder; its path is returned.

    That is report.html of an evaluation on pairs or of an audit, tasks.md of an evaluation on tasks,
    analysis.html of an analysis, and similarity.png of the similarity of routes.

    Args:
        result: the result.
        out: the folder.
        keep: leave a report that was written after the result in the folder, as it may have been edited; an
            older one that is not the same gets another name.

    Raises:
        UsageError: there is no report of this kind of result.
        SentenceExpertsError: matplotlib or jinja2, which make it, is not installed.

    Example:
        >>> write_report(evaluate("model", "pairs", bootstrap=0), "results").name
        'report.html'
    """
    path = Path(out) / _REPORTS.get(type(result).__name__, ("",))[0]
    if keep and isinstance(result, StoredResult) and is_newer(path, Path(out) / result.FILES[0]):
        return path
    made = report_of(result)
    if isinstance(made, Report):
        made = (markdown if path.suffix == ".md" else html)(made).encode()
    if keep:
        set_aside(path, made)
    with explained(path), replacing(path) as temporary:
        temporary.write_bytes(made)
    return path


def set_aside(report: Path, new: bytes) -> None:
    """Give a report another name before another one takes its place: it may have been edited."""
    if report.is_file() and report.read_bytes() != new:
        aside = name_aside(report)
        os.replace(report, aside)
        logger.info(f"{report}: the report of earlier results is now {aside.name}")


def name_aside(report: Path) -> Path:
    """Return a free name for an earlier report: `report.old1.html`, `report.old2.html`, ..."""
    names = (report.with_suffix(f".old{number}{report.suffix}") for number in itertools.count(1))
    return next(each for each in names if not each.exists())


def is_newer(report: Path, *results: Path) -> bool:
    """Return whether a report was written after all its results, so that it may have been edited since."""
    files = [report, *results]
    if not all(file.is_file() for file in files):
        return False
    return report.stat().st_mtime_ns >= max(file.stat().st_mtime_ns for file in results)
