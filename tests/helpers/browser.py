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
