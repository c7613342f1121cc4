from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from io import StringIO

import numpy as np
import pytest
from lxml import etree
from rich.console import Console

from sentence_experts.evaluation.results import PAIR_WEIGHTED_MEAN, POOLED
from sentence_experts.evaluation.statistics import Interval
from sentence_experts.report.figures import STYLE, curves, heat_map, histograms
from sentence_experts.report.page import evaluation_page
from sentence_experts.report.tables import (
    bounds,
    difference_table,
    evaluation_tables,
    p_value,
    seeds_note,
    views,
)

VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """Collects what a check needs, and fails on tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images: list[dict] = []
        self.headings: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "img":
            self.images.append(attributes)
        if tag == "a":
            self.links.append(attributes["href"])
        if "id" in attributes:
            self.ids.append(attributes["id"])
        self.addresses += [attributes[name] for name in ("src", "href") if name in attributes]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def svgs(page: Page) -> list[bytes]:
    return [
        base64.b64decode(image["src"].removeprefix("data:image/svg+xml;base64,")) for image in page.images
    ]


def test_page_stands_alone_and_is_well_formed(evaluation):
    html = evaluation_page(evaluation)
    page = Page(html)
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    assert "<script" not in html
    assert {link.removeprefix("#") for link in page.links} == set(page.ids)
    assert page.headings[:5] == [
        "Verdict",
        "All domains, pooled",
        "Mean of the domains",
        "crops & <soil>",
        "neuro",
    ]
    assert "<b>bad" not in html
    for svg in svgs(page):
        assert etree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
        assert not re.search(rb'href="http|url\(http', svg)


def test_every_set_of_pairs_has_histograms_and_curves_with_text_beside_them(evaluation):
    page = Page(evaluation_page(evaluation))
    assert len(page.images) == 2 * 3  # pooled and two domains
    for image in page.images:
        assert "good [bold]" in image["alt"]
        assert "<b>bad" in image["alt"]


def test_page_shows_the_figures_of_the_results(evaluation):
    html = evaluation_page(evaluation)
    for model in evaluation.models:
        for figures in (model.pooled, model.pair_weighted_mean, *model.domains.values()):
            assert f"{figures.metrics['f1_max']:.3f}" in html
            assert bounds(figures.intervals["roc_auc"]) in html


def test_page_of_pairs_of_one_class_has_no_curves(only_linked):
    page = Page(evaluation_page(only_linked))
    assert len(page.images) == 3


def test_equal_results_give_equal_bytes(evaluation):
    assert evaluation_page(evaluation) == evaluation_page(evaluation)


def test_terminal_tables_fit_80_columns_and_keep_names(evaluation):
    out = StringIO()
    for table in evaluation_tables(evaluation):
        Console(file=out, width=80).print(table)
    text = out.getvalue()
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "…" not in text
    for words in ("good [bold]", "<b>bad", "All pairs together", "weighted by their pairs"):
        assert words in text
    assert [key for key, _, _ in views(evaluation)][:2] == [POOLED, PAIR_WEIGHTED_MEAN]


def test_bounds():
    assert bounds(Interval(0.7891, 1.0)) == ".789-1.000"
    assert bounds(Interval(10.5, 20.0)) == "10.500-20.000"
    assert bounds(None) == ""


@pytest.mark.parametrize("models", [1, 5])
def test_drawings_take_any_number_of_models(models):
    generator = np.random.default_rng(0)
    labels = np.arange(200) % 2
    scores = {f"model {number}": generator.normal(size=200) + labels for number in range(models)}
    thresholds = dict.fromkeys(scores, 0.5)
    assert histograms(scores, labels, thresholds).count("<svg") == 1
    assert curves(scores, labels, thresholds).count("<svg") == 1


def test_every_view_of_three_models_has_a_heat_map(several):
    page = Page(evaluation_page(several))
    maps = [image["alt"] for image in page.images if image["alt"].startswith("Heat map")]
    assert len(maps) == 4  # pooled, mean, two domains
    gap = next(each for each in several.differences if each.metric == "roc_auc")
    assert f"{gap.first} minus {gap.second} {gap.value:+.3f}" in maps[0]


def test_heat_map_shows_differences_and_marks_significant_ones():
    labels, gaps = ["a", "b", "c"], {("a", "b"): 0.25, ("a", "c"): 0.125, ("b", "c"): -0.0625}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(STYLE, "svg.fonttype", "none")
        svg = heat_map(labels, gaps, {("a", "b"): "*", ("a", "c"): "≈"})
    texts = re.findall(r">([^<>]*)</t(?:ext|span)>", svg)
    assert {"+.250", "-.250", "+.125", "-.125", "-.062", "+.062"} <= set(texts)
    assert (texts.count("*"), texts.count("≈")) == (2, 2)
    assert heat_map(labels, gaps, {}).count("<svg") == 1


def test_report_shows_seeds_and_warns_about_too_few(several, evaluation):
    out = StringIO()
    for table in evaluation_tables(several):
        Console(file=out, width=80).print(table)
    deviation = several.models[0].pooled.spread["f1_max"]
    for text in (out.getvalue(), evaluation_page(several)):
        assert f"±{deviation:.3f}".replace("±0.", "±.") in text
        assert "3 seeds" in text
    assert max(len(line) for line in out.getvalue().splitlines()) <= 80
    assert seeds_note(several).startswith("Fewer than 3 seeds: single.")
    assert "Fewer than 3 seeds: single." in evaluation_page(several)
    assert "good [bold], &lt;b&gt;bad" in evaluation_page(evaluation)


def test_terminal_shows_differences_of_all_pairs_of_models(several):
    out = StringIO()
    Console(file=out, width=100).print(difference_table(several))
    for first, second in (("seeded", "single"), ("seeded", "fixed"), ("single", "fixed")):
        assert re.search(rf"{first}.*\n *- {second}", out.getvalue())
    assert "p<.001*" in out.getvalue() or "p=." in out.getvalue()


def test_p_values():
    assert [p_value(value) for value in (0.0001, 0.0312, 0.05, 1.0)] == [
        "p<.001*",
        "p=.031*",
        "p=.050",
        "p=1.000",
    ]
