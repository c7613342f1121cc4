from __future__ import annotations

import base64
import os
import re
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import matplotlib.figure
import numpy as np
import pytest
from lxml import etree
from rich.console import Console
from sklearn.metrics import roc_auc_score

from sentence_experts.errors import UsageError
from sentence_experts.evaluation.audit import Audit
from sentence_experts.evaluation.moee.analysis import Analysis
from sentence_experts.evaluation.results import score_column
from sentence_experts.evaluation.similarity import Similarity
from sentence_experts.report.content import for_terminal, html
from sentence_experts.report.figures import similarity_figure
from sentence_experts.report.wording import bounds
from sentence_experts.report.write import report_of, write_report

VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """Collects what a check needs, and fails on tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images: list[dict] = []
        self.headings: list[str] = []
        self.shown_images = 0
        self.addresses: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "img":
            self.images.append(attributes)
            self.shown_images += "details" not in self.open
        self.addresses += [attributes[name] for name in ("src", "href") if name in attributes]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("h2", "summary"):
            self.headings.append(data)


def evaluation_page(evaluation) -> str:
    return html(report_of(evaluation))


def terminal(evaluation, width: int = 80) -> str:
    out = StringIO()
    for table in report_of(evaluation).tables():
        Console(file=out, width=width).print(for_terminal(table))
    return out.getvalue()


def svgs(page: Page) -> list[bytes]:
    return [
        base64.b64decode(image["src"].removeprefix("data:image/svg+xml;base64,")) for image in page.images
    ]


def test_page_stands_alone_and_is_well_formed(evaluation):
    text = evaluation_page(evaluation)
    page = Page(text)
    assert all(address.startswith("data:") for address in page.addresses)
    assert "<script" not in text
    assert page.headings == [
        "Verdict",
        "Differences of models",
        "Mean of the domains",
        "Domains",
        "Meaning of the metrics",
        "Settings",
    ]
    assert "<details open" not in text
    assert page.shown_images == 1
    assert "<b>bad" not in text
    for svg in svgs(page):
        assert etree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
        assert not re.search(rb'href="http|url\(http', svg)


@pytest.mark.usefixtures("undrawn")
def test_page_shows_the_figures_of_the_results(evaluation):
    text = evaluation_page(evaluation)
    for model in evaluation.models:
        for figures in (model.pooled, model.pair_weighted_mean, *model.domains.values()):
            assert f"{figures.metrics['f1_max']:.3f}" in text
            assert bounds(figures.intervals["roc_auc"]) in text


@pytest.mark.usefixtures("undrawn")
def test_page_of_pairs_of_one_class_has_no_curves(only_linked):
    page = Page(evaluation_page(only_linked))
    assert not page.images


def test_terminal_tables_fit_80_columns_and_keep_names(evaluation):
    text = terminal(evaluation)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "…" not in text
    for words in ("good [bold]", "<b>bad", "All pairs together", "weighted by their pairs"):
        assert words in text


@pytest.mark.usefixtures("undrawn")
def test_report_shows_seeds_and_warns_about_too_few(several, evaluation):
    deviation = several.models[0].pooled.spread["f1_max"]
    for text in (terminal(several), evaluation_page(several)):
        assert f"±{deviation:.3f}".replace("±0.", "±.") in text
        assert "3 seeds" in text
    assert max(len(line) for line in terminal(several).splitlines()) <= 80
    assert "There is one training run of single" in evaluation_page(several)


@pytest.mark.usefixtures("undrawn")
def test_curves_are_named_after_the_run_that_is_drawn(several):
    page = Page(evaluation_page(several))
    (description,) = [image["alt"] for image in page.images if image["alt"].startswith("ROC")]
    for run in (several.models[0].runs[0], *several.models[1:]):
        labels, cosines = (
            several.scores["label"].to_numpy(),
            several.scores[score_column(run.label)].to_numpy(),
        )
        assert f"{run.label} {roc_auc_score(labels, cosines):.3f}" in description
    assert "the first run is drawn" in evaluation_page(several)


def test_reports_have_their_names(analysis: Analysis, audited: Audit, tmp_path: Path) -> None:
    page = write_report(analysis, tmp_path / "out")
    assert page == tmp_path / "out" / "analysis.html"
    assert "olmoe" in page.read_text()
    page = write_report(audited, tmp_path / "audit")
    assert page == tmp_path / "audit" / "report.html"
    assert "memory of training, with and without leaked test pairs" in page.read_text()


def test_a_report_that_was_edited_since_is_kept_if_that_is_asked(audited: Audit, tmp_path: Path) -> None:
    audited.save(tmp_path)
    page = write_report(audited, tmp_path, keep=True)
    page.write_text("edited")
    assert write_report(audited, tmp_path, keep=True).read_text() == "edited"
    os.utime(page, ns=(1, 1))  # older than the result
    assert "memory of training" in write_report(audited, tmp_path, keep=True).read_text()
    page.write_text("edited")
    assert "memory of training" in write_report(audited, tmp_path).read_text()


def test_figure_of_similarity(tmp_path: Path) -> None:
    cosines = {"model": {("a", "b"): np.linspace(0.2, 0.9, 8)}}
    figure = write_report(Similarity.of(cosines, {"used": 8}, {"model": {}}), tmp_path)
    assert figure == tmp_path / "similarity.png"
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_the_figure_of_similarity_names_both_models(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "sentence-transformers/paraphrase-multilingual-mpnet-base-v2"
    names: list[str] = []
    monkeypatch.setattr(matplotlib.figure.Figure, "legend", lambda self, handles, own, **_: names.extend(own))
    cosines = {label: {("a", "b"): np.linspace(0.2, 0.9, 8)} for label in (name, f"{name} (against)")}
    similarity_figure(Similarity.of(cosines, {"used": 8}, {}))
    assert len(set(names)) == 2


def test_other_results_have_no_report(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="no report is made of a dict; only of PairEvaluation, TaskEvaluation"
    ):
        write_report({}, tmp_path)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
