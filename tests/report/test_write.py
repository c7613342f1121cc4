"""`write_report` writes the page or figure of every kind of result that has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sentence_experts import write_report
from sentence_experts.errors import UsageError
from sentence_experts.evaluation.moee.analysis import Analysis, analyse_states
from sentence_experts.evaluation.moee.rated_pairs import RatedPairs
from sentence_experts.evaluation.similarity import Similarity
from sentence_experts.moee.vectors import States


def test_report_of_an_analysis(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(12)]
    data = RatedPairs("sts", texts[:6], texts[6:], np.arange(6.0))

    def read(prompt: str, texts: Any) -> States:
        values = np.random.default_rng(len(texts)).random((2, len(texts), 4))
        return States(hidden=values[0], routing=values[1])

    found = analyse_states([data], read, prompts=["none"], clusters=2, bootstrap=0)
    settings = {"model": "olmoe", "seed": 0, "replicates": 0}
    page = write_report(Analysis(found, settings), tmp_path / "out")
    assert page == tmp_path / "out" / "analysis.html"
    assert "olmoe" in page.read_text()


def test_figure_of_similarity(tmp_path: Path) -> None:
    cosines = {"model": {("a", "b"): np.linspace(0.2, 0.9, 8)}}
    figure = write_report(Similarity(cosines, {}, {"used": 8}, {}), tmp_path)
    assert figure == tmp_path / "similarity.png"
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_other_results_have_no_report(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="no report is made of a dict; only of PairEvaluation, TaskEvaluation"
    ):
        write_report({}, tmp_path)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
