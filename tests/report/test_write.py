"""`write_report` writes the page or figure of every kind of result that has one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sentence_experts import write_report
from sentence_experts.errors import UsageError
from sentence_experts.evaluation.audit import Audit
from sentence_experts.evaluation.moee.analysis import Analysis
from sentence_experts.evaluation.similarity import Similarity


def test_reports_have_their_names(analysis: Analysis, audited: Audit, tmp_path: Path) -> None:
    page = write_report(analysis, tmp_path / "out")
    assert page == tmp_path / "out" / "analysis.html"
    assert "olmoe" in page.read_text()
    page = write_report(audited, tmp_path / "audit")
    assert page == tmp_path / "audit" / "report.html"
    assert "memory of training, with and without leaked test pairs" in page.read_text()


def test_figure_of_similarity(tmp_path: Path) -> None:
    cosines = {"model": {("a", "b"): np.linspace(0.2, 0.9, 8)}}
    figure = write_report(Similarity.of(cosines, {"used": 8}, {"model": {}}), tmp_path)
    assert figure == tmp_path / "similarity.png"
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_other_results_have_no_report(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="no report is made of a dict; only of PairEvaluation, TaskEvaluation"
    ):
        write_report({}, tmp_path)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
