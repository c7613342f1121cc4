"""Write the report that people read: an HTML page for pairs, Markdown for tasks."""

from __future__ import annotations

from pathlib import Path

from sentence_experts.evaluation.mteb.results import TaskEvaluation
from sentence_experts.evaluation.results import Evaluation, PairEvaluation
from sentence_experts.report.page import evaluation_page
from sentence_experts.report.task_tables import markdown
from sentence_experts.storage import write_text


def write_report(evaluation: Evaluation, out: Path | str) -> Path:
    """Write report.html (pairs) or tasks.md (tasks) to a folder; its path is returned.

    Raises:
        SentenceExpertsError: matplotlib, which draws the figures of the page, is not installed.

    Example:
        >>> write_report(evaluate("model", "pairs", bootstrap=0), "results").name
        'report.html'
    """
    if isinstance(evaluation, PairEvaluation):
        path, text = Path(out) / "report.html", evaluation_page(evaluation)
    else:
        assert isinstance(evaluation, TaskEvaluation)
        path, text = Path(out) / "tasks.md", markdown(evaluation)
    write_text(path, text)
    return path
