"""Write the report that people read: a page, Markdown (tasks, search) or a figure (routes)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from sentence_experts.errors import UsageError
from sentence_experts.evaluation.audit.run import Audit
from sentence_experts.evaluation.compare import Comparison
from sentence_experts.evaluation.moee.analysis import Analysis
from sentence_experts.evaluation.mteb.results import TaskEvaluation
from sentence_experts.evaluation.results import Evaluation, PairEvaluation
from sentence_experts.evaluation.search_quality import SearchEvaluation
from sentence_experts.evaluation.similarity import Similarity
from sentence_experts.progress import announced
from sentence_experts.report.content import Report
from sentence_experts.report.figures import similarity_figure
from sentence_experts.report.html import html, markdown
from sentence_experts.report.models import audit_report, comparison_report
from sentence_experts.report.moee import analysis_report
from sentence_experts.report.pairs import pairs_report
from sentence_experts.report.tasks import search_report, tasks_report
from sentence_experts.storage import replacing

_REPORTS: dict[type, tuple[str, Callable[[Any], Report]]] = {
    PairEvaluation: ("report.html", pairs_report),
    TaskEvaluation: ("tasks.md", tasks_report),
    Audit: ("report.html", audit_report),
    Comparison: ("report.html", comparison_report),
    SearchEvaluation: ("search.md", search_report),
    Analysis: ("analysis.html", analysis_report),
}
Reported: TypeAlias = Evaluation | Audit | Comparison | SearchEvaluation | Analysis


def report_of(result: Reported) -> Report:
    """Return the report of a result.

    Raises:
        UsageError: there is no report of this kind of result.
    """
    if type(result) not in _REPORTS:
        known = ", ".join(each.__name__ for each in (*_REPORTS, Similarity))
        raise UsageError(f"no report is made of a {type(result).__name__}; only of {known}")
    return _REPORTS[type(result)][1](result)


@announced("writing the report")
def write_report(result: Reported | Similarity, out: Path | str) -> Path:
    """Write the report of a result to a folder; its path is returned.

    That is report.html of an evaluation on pairs, of an audit or of a comparison, tasks.md of an evaluation
    on tasks, search.md of one of search, analysis.html of an analysis, and similarity.png of the similarity
    of routes.

    Raises:
        UsageError: there is no report of this kind of result.
        SentenceExpertsError: matplotlib or jinja2, which make it, is not installed.

    Example:
        >>> write_report(evaluate("model", "pairs", bootstrap=0), "results").name
        'report.html'
    """
    if isinstance(result, Similarity):
        name, content = "similarity.png", similarity_figure(result.cosines, result.tests)
    else:
        report, name = report_of(result), _REPORTS[type(result)][0]
        content = (markdown if name.endswith(".md") else html)(report).encode()
    path = Path(out) / name
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return path
