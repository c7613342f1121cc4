"""Write the report that people read: a page, Markdown (tasks, search) or a figure (routes)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sentence_experts.errors import UsageError
from sentence_experts.evaluation.audit.run import Audit
from sentence_experts.evaluation.compare import Comparison
from sentence_experts.evaluation.moee.analysis import Analysis
from sentence_experts.evaluation.mteb.results import TaskEvaluation
from sentence_experts.evaluation.results import Evaluation, PairEvaluation
from sentence_experts.evaluation.search_quality import SearchEvaluation
from sentence_experts.evaluation.similarity import Similarity
from sentence_experts.progress import announced
from sentence_experts.report.figures import similarity_figure
from sentence_experts.report.model_pages import audit_page, comparison_page
from sentence_experts.report.moee_page import moee_page
from sentence_experts.report.page import evaluation_page
from sentence_experts.report.search_table import search_markdown
from sentence_experts.report.task_tables import markdown
from sentence_experts.storage import replacing

_REPORTS: Mapping[type, tuple[str, Callable[[Any], str | bytes]]] = {
    PairEvaluation: ("report.html", evaluation_page),
    TaskEvaluation: ("tasks.md", markdown),
    Audit: ("report.html", audit_page),
    Comparison: ("report.html", comparison_page),
    SearchEvaluation: ("search.md", search_markdown),
    Analysis: ("analysis.html", lambda analysis: moee_page(analysis.figures, analysis.settings)),
    Similarity: (
        "similarity.png",
        lambda similarity: similarity_figure(similarity.cosines, similarity.tests),
    ),
}


@announced("writing the report")
def write_report(
    result: Evaluation | Audit | Comparison | SearchEvaluation | Analysis | Similarity, out: Path | str
) -> Path:
    """Write the report of a result to a folder; its path is returned.

    That is report.html of an evaluation on pairs, of an audit or of a comparison, tasks.md of an evaluation
    on tasks, search.md of one of search, analysis.html of an analysis, and similarity.png of the similarity
    of routes.

    Raises:
        UsageError: there is no report of this kind of result.
        SentenceExpertsError: matplotlib, which draws the figures, is not installed.

    Example:
        >>> write_report(evaluate("model", "pairs", bootstrap=0), "results").name
        'report.html'
    """
    kind = next((each for each in _REPORTS if isinstance(result, each)), None)
    if kind is None:
        known = ", ".join(each.__name__ for each in _REPORTS)
        raise UsageError(f"no report is made of a {type(result).__name__}; only of {known}")
    name, made = _REPORTS[kind]
    path, report = Path(out) / name, made(result)
    with replacing(path) as temporary:
        temporary.write_bytes(report.encode() if isinstance(report, str) else report)
    return path
