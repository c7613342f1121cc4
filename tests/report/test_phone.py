"""Pages can be read on a phone: nothing is wider than the screen but what scrolls in a box of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.browser import browser, needs_browser, runs_off
from sentence_experts.evaluation.results import PairEvaluation
from sentence_experts.report.page import evaluation_page

WIDTHS = (360, 390)  # of phones, in CSS pixels


def test_what_is_wide_scrolls_in_its_own_box(evaluation: PairEvaluation):
    page = evaluation_page(evaluation)
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert page.count('<div class="wide"><table') == page.count("<table")
    assert page.count('<div class="wide"><img') == page.count("<img")
    assert "<caption" not in page  # it would be as wide as its table, and be cut
    rules = re.sub(r"\s+", " ", page.partition("</style>")[0])
    for rule in (
        ".wide { overflow-x: auto; }",
        "nav { display: flex; flex-wrap: wrap;",
        "figure img { max-width: 100%;",
        "@media (max-width: 48rem) { figure img { max-width: none; } }",
        "pre { overflow-x: auto;",
    ):
        assert rule in rules


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_a_phone_shows_the_whole_page(several: PairEvaluation, tmp_path: Path, width: int):
    (tmp_path / "page.html").write_text(evaluation_page(several), encoding="utf-8")
    with browser() as running:
        page = running.new_page(viewport={"width": width, "height": 800}, is_mobile=True)
        page.goto(f"file://{tmp_path}/page.html")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("[...document.images].every(each => each.width >= each.naturalWidth)")
        assert runs_off(page) == []
        for rule in ("nav { flex-wrap: nowrap; }", "nav a { white-space: nowrap; }"):
            page.add_style_tag(content=rule)
            assert runs_off(page), rule
