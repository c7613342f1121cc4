"""The search page in Chromium: type, compare, filter, like, keep, export, hostile texts, keys, phones."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sentence_experts
from helpers.browser import DONE, OVERFLOW, SECONDS, browser, needs_browser, opened, runs_off
from helpers.running_server import RunningServer, running_server
from helpers.samples import TOPICS
from helpers.searched_corpus import HOSTILE, write_searched_corpus

pytestmark = needs_browser

QUERY = "drought in rice fields"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, experts_model: Path) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("page") / "papers"
    write_searched_corpus(folder)
    with running_server(f"m={experts_model}", "--corpus", folder) as running:
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as running:
        yield running


def search(page: Any, query: str = QUERY) -> None:
    page.fill("#query", query)
    page.press("#query", "Enter")
    page.wait_for_selector(DONE)


def titles(page: Any, route: str) -> list[str]:
    found: list[str] = page.locator(f'.route[data-route="{route}"] .title').all_inner_texts()
    return found


def test_routes_stand_side_by_side(chromium: Any, served: RunningServer) -> None:
    with opened(chromium, f"{served.url}/?apart=1") as page:
        page.wait_for_selector("#routes input")
        search(page)
        assert page.locator(".route").count() == 2
        assert len(titles(page, "m:crops")) == len(titles(page, "m:neuro")) == 10
        assert page.locator(".hit .moves").count() == 20
        only = page.locator(".route[data-route='m:crops'] .only").count()
        assert page.locator(".route h2 small").first.inner_text() in (
            f"{only} only here",
            "all in other lists too",
        )
        page.wait_for_selector(".best:visible mark")
        # A link leads to the same results, through another choice of routes.
        page.uncheck("#routes input[value='m:neuro']")
        page.wait_for_selector(".route[data-route='m:neuro']", state="detached")
        before = titles(page, "m:crops")
        assert "q=drought+in+rice+fields&route=m%3Acrops&apart=1" in page.url
        page.reload()
        page.wait_for_selector(DONE)
        assert titles(page, "m:crops") == before
        assert page.input_value("#query") == QUERY
        page.go_back()
        page.wait_for_selector(".route[data-route='m:neuro']")


def test_filters_and_years(chromium: Any, served: RunningServer) -> None:
    with opened(chromium, f"{served.url}/?q=rice") as page:
        page.wait_for_selector(DONE)
        page.select_option("#type", "review-article")
        page.wait_for_url("**type=review-article*")
        page.fill("#from", "2004")
        page.press("#from", "Enter")
        page.wait_for_url("**year=2004..*")
        page.wait_for_selector("#results[data-address='?q=rice&year=2004..&type=review-article']")
        facts = page.locator(".route .facts").all_inner_texts()
        assert facts
        assert all(int(re.findall(r"20\d\d", each)[0]) >= 2004 for each in facts)
        bar = page.locator("#bars i[data-year='2006']").bounding_box()
        page.mouse.click(bar["x"] + bar["width"] / 2, bar["y"] + bar["height"] / 2)
        page.wait_for_url(re.compile("year=2006(&|$)"))
        page.fill("#query", "wheat")  # not yet asked for
        page.click("#clear")
        page.wait_for_url(re.compile(r"\?q=rice$"))
        assert page.input_value("#query") == "wheat"
        page.go_back()
        assert page.input_value("#query") == "rice"


def test_more_like_a_paper_and_its_details(chromium: Any, served: RunningServer) -> None:
    with opened(chromium, f"{served.url}/?q=sleep+memory&apart=1") as page:
        page.wait_for_selector(DONE)
        first = titles(page, "m:neuro")[0]
        page.click('.route[data-route="m:neuro"] .title >> nth=0')
        assert page.inner_text("#paper-title") == first
        assert page.locator("#paper table tbody tr").count() == 2
        page.click("#paper >> text=More like this")
        page.wait_for_selector("#results[data-address*='like=']")
        assert first in page.inner_text("#like")
        page.wait_for_url("**like=*")
        assert first not in titles(page, "m:neuro")
        page.click("#like button")
        page.wait_for_selector("#intro:visible")


def test_hits_lead_back_to_the_library(chromium: Any, served: RunningServer) -> None:
    with opened(chromium, f"{served.url}/?q=Made-up+rice+drought&top=40") as page:
        page.wait_for_selector(DONE)
        links = page.locator(".facts a >> text=Zotero").evaluate_all("all => all.map(each => each.href)")
        made = [link for link in links if "made" in link]
        assert made
        assert all(link.startswith("zotero://select/items/@made") for link in made)
        assert all(link.startswith("zotero://select/") for link in links), "of hostile keys too"
        page.locator(".hit:has(a[href*='@made']) .title").first.click()
        assert "/home/ann/<b>" in page.inner_text("#paper-body")
        page.click("#paper >> text=Copy path")
        page.wait_for_selector("#paper >> text=/Copied|Not allowed here/")


def test_the_best_passage_of_a_full_text_is_shown(chromium: Any, tmp_path: Path, experts_model: Path) -> None:
    sections = [
        f"Plot {n} was dry. {topic} stood in plot {n}." for n, topic in enumerate(TOPICS["crops"] * 40)
    ]
    papers = [{"id": "10.1000/a", "title": "Rice", "abstract": "Nothing.", "full_text": " ".join(sections)}]
    sentence_experts.import_corpus(out=tmp_path / "corpus", papers=papers)
    with (
        running_server(f"m={experts_model}", "--corpus", tmp_path / "corpus", "--passages") as running,
        opened(chromium, f"{running.url}/?q=wheat+rust+leaf") as page,
    ):
        page.wait_for_selector(".route[data-route='m:crops'] .best:visible")
        sentence = page.locator(".route[data-route='m:crops'] .best").inner_text()
        page.click(".route[data-route='m:crops'] .title")
        passage, abstract = page.locator("#paper .abstract").all_inner_texts()
        assert page.inner_text("#paper .sentence") == sentence
        assert sentence in passage
        assert passage in " ".join(sections)
        assert page.locator("#paper .abstract mark").count()
        assert abstract == "Nothing."


def test_citations(chromium: Any, served: RunningServer) -> None:
    with opened(chromium, f"{served.url}/?q=sleep+memory&top=40") as page:
        page.wait_for_selector(DONE)
        page.click("#tab-citations")
        assert page.locator(".cited > li").count() > 0
        assert page.url.endswith("view=citations")


def test_kept_papers_become_files(chromium: Any, served: RunningServer) -> None:
    with opened(chromium, f"{served.url}/?q=wheat") as page:
        page.wait_for_selector(DONE)
        for n in (0, 1):
            page.click(f'.route[data-route="m:crops"] .keep >> nth={n}')
        assert page.inner_text("#kept-count") == "2"
        page.reload()
        page.wait_for_selector(DONE)
        page.click("#open-kept")
        for form, name, mark in (
            ("RIS", "papers.ris", "TY  - JOUR"),
            ("BibTeX", "papers.bib", "@article"),
            ("CSV", "papers.csv", ""),
        ):
            with page.expect_download() as download:
                page.click(f"#kept-actions >> text={form}")
            assert download.value.suggested_filename == name
            text = Path(download.value.path()).read_text(encoding="utf-8")
            assert text.count(mark) == 2 or len(list(csv.DictReader(io.StringIO(text)))) == 2
        assert page.is_visible("#kept-similar")
        page.goto(served.url)
        page.wait_for_selector("#intro:visible")
        page.click("#open-kept")
        assert not page.is_visible("#kept-similar"), "to nothing that is asked"
        page.click("#forget")
        assert page.inner_text("#kept-count") == "0"


def test_hostile_texts_stay_texts(chromium: Any, served: RunningServer) -> None:
    with opened(
        chromium, f"{served.url}/?q=rice+drought&top=100", viewport={"width": 360, "height": 800}
    ) as page:
        page.wait_for_selector(DONE)
        assert page.locator("#lists script, #lists img, #lists b").count() == 0
        assert page.title().startswith("rice drought")
        assert page.evaluate(OVERFLOW) <= 0
        for record in HOSTILE:
            number = page.locator(f".route.shown .keep[data-id={json.dumps(record['paper_id'])}]").first
            number.locator("xpath=ancestor::li").locator(".title").click()
            shown = page.inner_text("#paper-title")
            assert shown[:20] == (record.get("title") or "(no title)").replace("\u0000", "�")[:20]
            assert page.evaluate(OVERFLOW) <= 0
            assert page.locator("#paper script, #paper img").count() == 0
            for link in page.locator("#paper a").all():
                assert link.get_attribute("href").startswith(
                    ("https://doi.org/", "zotero://select/library/items/")
                )
            page.keyboard.press("Escape")
        number = page.locator(".route.shown .keep[data-id='h:script']")
        number.click()
        page.click("#open-kept")
        assert "<script>" in page.inner_text("#kept-body")
        assert page.title().startswith("rice drought")


def test_everything_by_keyboard(chromium: Any, served: RunningServer) -> None:
    with opened(chromium, f"{served.url}/?apart=1") as page:
        page.wait_for_selector("#routes input")
        page.keyboard.type("memory")
        page.keyboard.press("Enter")
        page.wait_for_selector(DONE)
        focused = lambda: page.locator("*:focus")  # noqa: E731
        for _ in range(40):
            page.keyboard.press("Tab")
            if "title" in (focused().get_attribute("class") or ""):
                break
        assert focused().inner_text() == titles(page, "m:crops")[0]
        page.keyboard.press("ArrowDown")
        assert focused().inner_text() == titles(page, "m:crops")[1]
        page.keyboard.press("ArrowRight")
        assert focused().inner_text() == titles(page, "m:neuro")[1]
        page.keyboard.press("k")
        assert page.inner_text("#kept-count") == "1"
        kept = focused().inner_text()
        page.keyboard.press("Enter")
        assert page.inner_text("#paper-title") == kept
        page.keyboard.press("Escape")
        assert focused().inner_text() == kept
        page.keyboard.press("l")
        page.wait_for_url("**like=*")
        page.keyboard.press("Tab")
        page.locator("#open-help").focus()
        page.keyboard.press("/")
        assert focused().get_attribute("id") == "query"
        page.locator("#tab-lists").focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#citations:visible")


@pytest.mark.slow  # a server of its own
def test_the_page_asks_for_a_key(chromium: Any, tmp_path: Path, experts_model: Path) -> None:
    (tmp_path / "keys").write_text("secret\n")
    write_searched_corpus(tmp_path / "papers", hostile=False)
    arguments = (f"m={experts_model}", "--corpus", tmp_path / "papers", "--api-key-file", tmp_path / "keys")
    with running_server(*arguments) as running, chromium.new_context() as within:
        within.set_default_timeout(SECONDS)
        page = within.new_page()
        page.goto(f"{running.url}/?q=rice")
        for key in ("wrong", "secret"):
            page.wait_for_selector("#key[open]")
            page.fill("#key-field", key)
            page.press("#key-field", "Enter")
        page.wait_for_selector(DONE)
        page.click("#open-curl")
        assert "secret" not in page.content()
        assert "Bearer $KEY" in page.inner_text("#curl-text")
        assert "X-Profile" not in page.inner_text("#curl-text")


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 800, 1400])
def test_no_width_or_theme_hides_anything(
    chromium: Any, served: RunningServer, width: int, theme: str
) -> None:
    size = {"width": width, "height": 800}
    with opened(chromium, f"{served.url}/?q=rice+drought", viewport=size, color_scheme=theme) as page:
        page.wait_for_selector(DONE)
        for view in ("lists", "citations"):
            page.click(f"#tab-{view}")
            assert page.evaluate(OVERFLOW) <= 0
            assert not runs_off(page), view
        for button in ("#open-kept", "#open-help", *(["#open-curl"] if width > 704 else [])):
            page.click(button)
            assert page.evaluate(OVERFLOW) <= 0
            assert not runs_off(page), button
            page.keyboard.press("Escape")


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script of axe-core, fetched from the npm registry for this test; no part of the package."""
    folder = tmp_path_factory.mktemp("axe")
    command = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts"]
    try:
        subprocess.run([*command, "axe-core@4"], check=True, capture_output=True, timeout=120)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("axe-core could not be installed by npm")
    return folder / "node_modules" / "axe-core" / "axe.min.js"


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(chromium: Any, served: RunningServer, axe: Path, theme: str) -> None:
    with opened(chromium, f"{served.url}/?q=rice", color_scheme=theme, bypass_csp=True) as page:
        page.wait_for_selector(DONE)
        page.wait_for_selector(".best:visible")
        page.add_script_tag(path=str(axe))
        found = []
        for press in ("#tab-lists", "#tab-citations", "#open-kept", "#open-help", "#open-curl", "#open-list"):
            page.click(press)
            answer = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
            found += [(press, each["id"], each["nodes"][0]["html"]) for each in answer["violations"]]
            page.keyboard.press("Escape")
        assert not found


def test_lists_of_the_same_papers_fold_into_one(chromium: Any, served: RunningServer) -> None:
    with opened(chromium, f"{served.url}/?q=rice+drought&top=100") as page:
        page.wait_for_selector(DONE)
        assert page.locator(".route").count() == 1
        assert "nearly the same papers" in page.inner_text(".route h2")
        assert "1 list folded" in page.inner_text("#status")
        page.click("text=Show all 2 lists")
        page.wait_for_selector("text=Fold lists")
        assert page.locator(".route").count() == 2


def test_a_keyword_of_a_paper_becomes_a_filter_and_citations_open(
    chromium: Any, served: RunningServer
) -> None:
    with opened(chromium, f"{served.url}/?q=wheat&view=citations") as page:
        page.wait_for_selector(DONE)
        page.locator("#citations .links summary").first.click()
        page.wait_for_selector("#citations .links li :is(a, button)")
        page.click("#tab-lists")
        page.locator(".title:has-text('Made-up')").first.click()
        page.click("#paper .values >> text=Simulation")
        page.wait_for_url("**keyword=Simulation*")


def test_sliders_blend_the_routes_into_one_list(chromium: Any, served: RunningServer) -> None:
    with opened(chromium, f"{served.url}/?q=rice+and+sleep") as page:
        page.wait_for_selector(DONE)
        page.check("#blend", force=True)
        page.wait_for_selector(".route[data-route='m:crops=1,neuro=1']")
        assert page.locator(".route").count() == 1
        assert page.inner_text(".route h2") == "crops 50%, neuro 50%"
        assert page.locator(".hit .under bdi").first.inner_text().strip() in ("crops", "neuro")
        page.wait_for_selector(".best:visible")
        page.fill("#weights input >> nth=1", "3")
        page.wait_for_selector(".route[data-route='m:crops=10,neuro=3']")
        page.reload()
        page.wait_for_selector(".route[data-route='m:crops=10,neuro=3']")
        assert page.input_value("#weights input >> nth=1") == "3"
        page.uncheck("#blend", force=True)
        page.wait_for_selector(".route[data-route='m:neuro'], .fold")
