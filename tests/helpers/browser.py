"""Chromium, driven by Playwright; it is not installed by pip, so tests are skipped where it is missing."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--disable-dev-shm-usage",
]  # fmt: skip
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATH = next((path for name in NAMES if (path := shutil.which(name))), None)
HAS_PLAYWRIGHT = importlib.util.find_spec("playwright") is not None

needs_browser = pytest.mark.skipif(
    PATH is None or not HAS_PLAYWRIGHT,
    reason="needs Playwright and a Chromium of the system (none of " + ", ".join(NAMES) + ")",
)


@contextmanager
def browser() -> Iterator[Any]:
    """A running Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=PATH, args=FLAGS)
        try:
            yield running
        finally:
            running.close()


SECONDS = 60_000  # milliseconds, on a busy machine
DONE = "#status:has-text(' ms')"
# A test looks up through the browser itself where the page's policy lets no script evaluate.
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@contextmanager
def opened(chromium: Any, url: str, **context: Any) -> Iterator[Any]:
    """A page; errors of its scripts, requests to elsewhere and dialogs fail the test, refusals do not."""
    with chromium.new_context(**context) as within:
        within.set_default_timeout(SECONDS)
        page = within.new_page()
        problems: list[str] = []

        def dismiss(dialog: Any) -> None:
            problems.append(dialog.message)
            dialog.dismiss()

        page.on("pageerror", lambda error: problems.append(str(error)))
        failed = lambda said: said.type == "error" and "status of 422" not in said.text  # noqa: E731
        page.on("console", lambda said: problems.append(said.text) if failed(said) else None)
        page.on(
            "request",
            lambda asked: (
                None
                if asked.url.startswith((url.partition("?")[0].rstrip("/"), "blob:"))
                else problems.append(asked.url)
            ),
        )
        page.on("dialog", dismiss)
        page.goto(url)
        yield page
        assert problems == []


# A box that scrolls sideways shows all of its text, a dialog should not have to; a line that is cut at the
# bottom, after so many lines, still shows its beginning.
RUNS_OFF = """() => {
  const found = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode, within = text.parentElement, range = document.createRange();
    if (!text.data.trim() || within.closest("script, style, .unseen, .skip, option")) continue;
    let left = 0, right = document.documentElement.clientWidth, scrolls = false;
    for (let box = within; box !== document.documentElement; box = box.parentElement) {
      const style = getComputedStyle(box), place = box.getBoundingClientRect();
      const cuts = style.display !== "inline" && style.overflowX !== "visible";
      scrolls ||= cuts && ["auto", "scroll"].includes(style.overflowX) && box.tagName !== "DIALOG";
      if (cuts) { left = Math.max(left, place.left); right = Math.min(right, place.right); }
    }
    if (scrolls) continue;
    range.selectNodeContents(text);
    const off = [...range.getClientRects()].some(
      place => place.width && (place.left < left - 1 || place.right > right + 1));
    const broken = within.closest("nav") && [...text.data.matchAll(/\\S{1,16}/g)].some(word => {
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      return new Set([...range.getClientRects()].map(place => place.top)).size > 1;
    });
    if (off || broken) found.push(text.data.trim().slice(0, 40));
  }
  return found;
}"""


def runs_off(page: Any) -> list[str]:
    """The beginnings of texts that are cut at a side of the screen, and of links with broken words."""
    found: list[str] = page.evaluate(RUNS_OFF)
    return found
