"""Teaching on the search page, in Chromium: by mouse, by keyboard, on a phone, in two tabs, after a kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from helpers.browser import DONE, OVERFLOW, browser, needs_browser, opened, runs_off
from helpers.running_server import RunningServer, running_server
from helpers.searched_corpus import searched_papers, write_searched_corpus

pytestmark = needs_browser

LIST = ".route[data-route='m']"
TAUGHT = "m:my-method"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_searched_corpus(tmp_path_factory.mktemp("taught") / "papers").path


@pytest.fixture(scope="module")
def served(library: Path, plain_model: Path) -> Iterator[RunningServer]:
    with running_server(f"m={plain_model}", "--corpus", library) as running:
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_taught(library: Path) -> None:
    for file in (library / ".taught").glob("*.json"):
        file.unlink()


def mark(page: Any, count: int = 3, among: str = LIST) -> None:
    for number in range(count):
        for label, place in (("Similar", number), ("Not similar", 9 - number)):
            page.locator(f"{among} .hit").nth(place).get_by_text(label, exact=True).click()
    page.wait_for_selector(f"#teach-count:has-text('{count} similar, {count} not similar')")


def teach(page: Any) -> None:
    page.click("#teach-now")
    page.wait_for_selector(f".route[data-route='{TAUGHT}'] .learned")
    page.wait_for_selector("#teach-said:has-text('was taught')")


def test_marks_become_a_list_that_is_renamed_deleted_and_undone(chromium: Any, served: RunningServer) -> None:
    with opened(chromium, f"{served.url}/?q=rice+drought") as page:
        page.wait_for_selector(DONE)
        assert page.is_disabled("#teach-now")
        mark(page)
        pressed = page.locator("button.mark[aria-pressed=true]")
        assert pressed.count() == 6
        page.reload()
        page.wait_for_selector(DONE)
        assert pressed.count() == 6, "marks stay"
        pressed.first.click()
        page.wait_for_selector("#teach-count:has-text('2 similar')")
        page.click("#teach-undo")
        page.wait_for_selector("#teach-count:has-text('3 similar')")
        teach(page)
        assert page.locator(".route").count() == 2
        assert "ROC-AUC" in page.inner_text(f".route[data-route='{TAUGHT}'] .hint")
        assert page.evaluate("() => document.activeElement.className").endswith("learned")
        page.reload()
        page.wait_for_selector(f".route[data-route='{TAUGHT}'] .learned")
        page.click(".learned")
        assert "Words that moved up" in page.inner_text("#taught-body")
        page.fill("#taught input[aria-label=Name]", "by hand")
        page.press("#taught input[aria-label=Name]", "Enter")
        page.wait_for_selector("#taught summary:has-text('by hand')")
        page.fill("#taught input[aria-label=Name]", "a=b")
        page.click("#taught >> text=Rename")
        page.wait_for_selector("#taught-said:has-text('use letters')")
        page.click("#taught >> text=Delete")
        page.wait_for_selector("#taught-body >> text=Nothing was taught")
        page.click("#taught-undo")
        page.wait_for_selector("#taught summary:has-text('by hand')")
        page.keyboard.press("Escape")
        page.wait_for_selector(".route[data-route='m:by hand']")
        page.click("#teach-new")
        page.wait_for_selector("#teach-count:has-text('Mark papers')")
        assert pressed.count() == 0


def test_the_whole_loop_by_keyboard_on_a_phone(chromium: Any, served: RunningServer) -> None:
    size = {"width": 360, "height": 800}
    with opened(chromium, f"{served.url}/?q=rice+drought", viewport=size) as page:
        page.wait_for_selector(DONE)
        page.locator(f"{LIST} .title").first.focus()
        for place in range(8):
            with page.expect_response("**/search/taught/marks"):
                page.keyboard.press("s" if place < 4 else "n")
            page.keyboard.press("ArrowDown")
        page.wait_for_selector("#teach-count:has-text('4 similar, 4 not similar')")
        page.keyboard.press("n")
        page.wait_for_selector("#teach-count:has-text('4 similar, 5 not similar')")
        page.keyboard.press("u")
        page.wait_for_selector("#teach-count:has-text('4 similar, 4 not similar')")
        page.keyboard.press("t")
        page.wait_for_selector("#teach-said:has-text('was taught')")
        assert page.locator(f".route[data-route='{TAUGHT}'] .hit").first.is_visible()
        assert page.evaluate(OVERFLOW) <= 0
        assert not runs_off(page)
        page.locator(f".route[data-route='{TAUGHT}'] .learned").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#taught[open]")
        assert page.evaluate(OVERFLOW) <= 0
        assert not runs_off(page)
        page.keyboard.press("Escape")


def test_all_kept_papers_are_marked_however_many(chromium: Any, served: RunningServer) -> None:
    kept = [{"id": f"p{number}", "title": "Rice", "year": None} for number in range(250)]
    answer = {"marks": [], "routes": [], "name": None, "can_undo": False}
    sent: list[str] = []

    def answered(route: Any) -> None:
        sent.extend(each["paper"] for each in route.request.post_data_json["marks"])
        route.fulfill(json=answer)

    with opened(chromium, f"{served.url}/?q=rice+drought") as page:
        page.wait_for_selector(DONE)
        page.evaluate("papers => localStorage.setItem('sentence-experts kept', JSON.stringify(papers))", kept)
        page.route("**/search/taught/marks", answered)
        page.reload()
        page.wait_for_selector(DONE)
        page.click("#open-kept")
        page.click("#kept-similar")
        for _ in range(100):
            if len(sent) == len(kept):
                break
            page.wait_for_timeout(100)
    assert sent == [each["id"] for each in kept]


def test_a_taught_route_can_be_unticked(chromium: Any, served: RunningServer) -> None:
    with opened(chromium, f"{served.url}/?q=rice+drought") as page:
        page.wait_for_selector(DONE)
        mark(page)
        teach(page)
        page.uncheck(f"#routes input[value='{TAUGHT}']")
        page.wait_for_selector(f".route[data-route='{TAUGHT}']", state="detached")
        assert page.is_checked("#routes input[value='m']")
        assert not page.is_checked(f"#routes input[value='{TAUGHT}']")


def test_kept_papers_are_marked_at_once(chromium: Any, served: RunningServer) -> None:
    with opened(chromium, f"{served.url}/?q=rice+drought") as page:
        page.wait_for_selector(DONE)
        for place in range(3):
            page.locator(f"{LIST} .keep").nth(place).click()
        page.click("#open-kept")
        page.click("#kept-similar")
        page.wait_for_selector("#teach-count:has-text('3 similar, 0 not similar')")
        assert page.locator("button.mark[aria-pressed=true]").count() == 3


def test_lists_and_keywords_are_marked_before_anything_is_asked(
    chromium: Any, served: RunningServer, tmp_path: Path
) -> None:
    papers = searched_papers()
    (tmp_path / "kept.bib").write_text(
        "".join(f"@misc{{k, title={{{each['title']}}}}}\n" for each in papers[:3])
    )
    (tmp_path / "others.txt").write_text("\n".join(each["doi"] for each in papers[4:7]) + "\n10.1/none")
    with opened(chromium, served.url, viewport={"width": 360, "height": 800}) as page:
        files = page.evaluate_handle(
            "() => { const d = new DataTransfer(); d.items.add(new File([''], 'x')); return d; }"
        )
        page.dispatch_event("#intro", "dragenter", {"dataTransfer": files})
        assert page.is_disabled("#list-teach")
        page.dispatch_event("#list p", "drop", {"dataTransfer": files})
        page.set_input_files("#list input[data-similar=true]", tmp_path / "kept.bib")
        page.wait_for_selector("#list-said:has-text('3 papers marked')")
        page.set_input_files("#list input[data-similar=false]", tmp_path / "others.txt")
        page.wait_for_selector(
            "#list-said:has-text('3 papers marked; 1 not in this library, such as “10.1/none”')"
        )
        assert page.evaluate(OVERFLOW) <= 0
        assert not runs_off(page)
        page.fill("#list-keyword", "nothing")
        page.press("#list-keyword", "Enter")
        page.wait_for_selector("#list-said:has-text('no paper of the corpus')")
        page.fill("#list-keyword", "Rice")
        page.click("#list >> text=Mark by keyword")
        page.wait_for_selector("#list-said:has-text('papers marked')")
        page.click("#list-teach")
        page.wait_for_selector("#taught summary:has-text('my-method')")
        page.keyboard.press("Escape")
        page.goto(f"{served.url}/?q=rice+drought")
        page.wait_for_selector(DONE)
        assert page.locator("button.mark[aria-pressed=true]").count() > 0


def test_papers_are_read_by_keyboard_in_the_order_of_what_was_taught(
    chromium: Any, served: RunningServer
) -> None:
    size = {"width": 360, "height": 800}
    with opened(chromium, f"{served.url}/?q=rice+drought", viewport=size) as page:
        page.wait_for_selector(DONE)
        mark(page)
        teach(page)
        page.click(".learned")
        page.click("#taught >> text=Papers to read")
        page.wait_for_selector("#screen-said:has-text('6 papers read, 3 of them relevant')")
        assert page.locator("#screen-list script, #screen-list img").count() == 0
        page.fill("#screen-size", "")
        page.click("#screen-draw")
        assert page.evaluate("() => document.activeElement.id") == "screen-size", "a number is needed"
        page.fill("#screen-size", "3")
        page.click("#screen-draw")
        page.wait_for_selector("#screen-said:has-text('Read the 3 random papers first')")
        assert page.evaluate("() => document.activeElement.className") == "title"
        assert not runs_off(page)
        for key in "snn":
            with page.expect_response("**/search/taught/marks"):
                page.keyboard.press(key)
        page.locator("#screen-list button.mark[aria-pressed=true]").nth(2).wait_for()
        page.click("#screen-next")
        page.wait_for_selector("#screen-said:has-text('in a random sample 1 of 3')")
        page.locator("#screen-list >> text=Not relevant").first.click()
        page.wait_for_selector("#screen-list button.mark[aria-pressed=true]")
        assert page.evaluate(OVERFLOW) <= 0


def test_hostile_titles_and_queries_stay_texts(chromium: Any, served: RunningServer) -> None:
    query = "rice drought <img src=x onerror=alert(1)>"
    with opened(chromium, served.url) as page:
        page.wait_for_selector("#routes input")
        page.fill("#query", query)
        page.press("#query", "Enter")
        page.wait_for_selector(DONE)
        mark(page)
        teach(page)
        page.click(".learned")
        for part in ("#taught", "#lists", ".teach"):
            assert page.locator(f"{part} img, {part} script").count() == 0


def test_two_tabs_and_two_profiles(chromium: Any, served: RunningServer) -> None:
    with opened(chromium, f"{served.url}/?q=rice+drought") as one:
        one.wait_for_selector(DONE)
        with opened(chromium, f"{served.url}/?q=rice+drought") as other:
            other.wait_for_selector(DONE)
            mark(one, 2)
            for place in (4, 5):
                other.locator(f"{LIST} .hit").nth(place).get_by_text("Similar", exact=True).click()
            other.wait_for_selector("#teach-count:has-text('4 similar, 2 not similar')")
            teach(other)
            one.evaluate("() => { dispatchEvent(new Event('focus')); }")
            one.wait_for_selector(f".route[data-route='{TAUGHT}'] .learned")
            one.click("#open-taught")
            one.fill("#profile", "ann")
            one.press("#profile", "Tab")
            one.wait_for_selector("#teach-count:has-text('Mark papers')", state="attached")
            one.wait_for_selector(f".route[data-route='{TAUGHT}']", state="detached")
            one.evaluate("() => localStorage.clear()")


def test_a_profile_that_cannot_be_is_refused_and_the_page_goes_on(
    chromium: Any, served: RunningServer
) -> None:
    with opened(chromium, f"{served.url}/?q=rice+drought") as page:
        page.wait_for_selector(DONE)
        page.click("#open-taught")
        page.fill("#profile", "Bénédicte M")
        page.press("#profile", "Tab")
        page.wait_for_selector("#taught-said:has-text('Bénédicte M')")
        assert page.input_value("#profile") == ""
        page.fill("#profile", "ann")
        page.press("#profile", "Tab")
        page.wait_for_selector("#open-taught:has-text('ann')", state="attached")
        page.keyboard.press("Escape")
        page.click("#open-curl")
        assert "-H 'X-Profile: ann'" in page.inner_text("#curl-text")
        page.evaluate("() => localStorage.setItem('sentence-experts profile', 'Bénédicte')")
        page.reload()
        page.wait_for_selector(DONE)
        page.click("#open-curl")
        assert "-H 'X-Profile: B%C3%A9n%C3%A9dicte'" in page.inner_text("#curl-text")
        page.evaluate("() => localStorage.clear()")


def test_lists_stay_while_another_profile_opens(chromium: Any, served: RunningServer) -> None:
    """Sentences are asked for list by list: some for a taught route are still due when it is gone."""
    with opened(chromium, f"{served.url}/?q=rice+drought") as page:
        page.wait_for_selector(DONE)
        mark(page, 2)
        teach(page)
        held: list[Any] = []
        page.route("**/search/sentences", lambda request: held.append(request))
        page.reload()
        page.wait_for_selector(DONE)
        page.click("#open-taught")
        page.route("**/search/taught", lambda request: held.append(request))
        page.fill("#profile", "ann")
        with page.expect_request("**/search/taught"):
            page.press("#profile", "Tab")
        page.unroute("**/search/sentences")
        for request in held[:-1]:
            request.continue_()
        page.wait_for_timeout(300)  # time for the requests that should not follow
        assert page.is_visible("#results")
        held[-1].continue_()
        page.wait_for_selector(f".route[data-route='{TAUGHT}']", state="detached")
        page.evaluate("() => localStorage.clear()")


@pytest.mark.slow  # servers of its own
def test_nothing_is_lost_when_the_server_is_killed(chromium: Any, library: Path, plain_model: Path) -> None:
    arguments = (f"m={plain_model}", "--corpus", library)
    with running_server(*arguments) as running, opened(chromium, f"{running.url}/?q=rice+drought") as page:
        page.wait_for_selector(DONE)
        mark(page)
        teach(page)
        running.process.kill()
        running.process.join()
    with running_server(*arguments) as running:
        kept = httpx.get(f"{running.url}/search/taught").json()
        assert (len(kept["marks"]), [each["name"] for each in kept["routes"]]) == (6, ["my-method"])
