"""Pages can be read on a phone: nothing is wider than the screen but what scrolls in a separate box."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.browser import browser, needs_browser, runs_off
from sentence_experts import write_report
from sentence_experts.evaluation.audit import Audit
from sentence_experts.evaluation.moee.analysis import Analysis
from sentence_experts.evaluation.results import PairEvaluation

WIDTH = 360  # of a phone, in CSS pixels


@pytest.fixture(scope="module")
def pages(several: PairEvaluation, analysis: Analysis, audited: Audit, tmp_path_factory) -> dict[str, Path]:
    """The page of each kind of result."""
    folder = tmp_path_factory.mktemp("pages")
    results = {"evaluation": several, "analysis": analysis, "audit": audited}
    return {name: write_report(result, folder / name) for name, result in results.items()}


def test_pages_begin_with_their_verdict(pages: dict[str, Path]):
    for name, page in pages.items():
        body = page.read_text(encoding="utf-8").partition("</h1>")[2].lstrip()
        assert body.startswith('<section class="verdict">'), name
        assert not re.search("<script|https?:", body), name


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("name", ["evaluation", "analysis", "audit"])
def test_a_phone_shows_the_whole_page(pages: dict[str, Path], name: str):
    with browser() as running:
        page = running.new_page(viewport={"width": WIDTH, "height": 800}, is_mobile=True)
        page.goto(pages[name].as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTH
        assert page.evaluate("[...document.images].every(each => each.width >= each.naturalWidth)")
        assert runs_off(page) == []
        page.add_style_tag(content=".verdict p { white-space: nowrap; }")
        assert runs_off(page)


@pytest.mark.slow
@needs_browser
def test_the_page_of_an_evaluation_fits_three_screens(pages: dict[str, Path]):
    with browser() as running:
        page = running.new_page(viewport={"width": 1280, "height": 900})
        page.goto(pages["evaluation"].as_uri())
        assert page.evaluate("document.documentElement.scrollHeight") <= 3 * 900
