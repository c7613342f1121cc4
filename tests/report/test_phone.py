"""Pages can be read on a phone: nothing is wider than the screen but what scrolls in a box of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sentence_experts.evaluation.results import PairEvaluation
from sentence_experts.report.page import evaluation_page

CHROMIUM = shutil.which("chromium")
WIDTH = 390  # of a phone, in CSS pixels
SCRIPT = """<script>
const wide = [...document.querySelectorAll("body *")].filter(
  each => !each.closest(".wide") && !each.closest("pre") && each.getBoundingClientRect().right > WIDTH + 1
).map(each => each.tagName + ":" + each.textContent.slice(0, 20));
const small = [...document.images].filter(each => each.width < each.naturalWidth).length;
document.title = "[" + document.documentElement.scrollWidth + "|" + wide.join(";") + "|" + small + "]";
</script>""".replace("WIDTH", str(WIDTH))


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
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_a_phone_shows_the_whole_page(several: PairEvaluation, tmp_path: Path):
    page = evaluation_page(several).replace("</body>", f"{SCRIPT}</body>")
    # A frame, because a window of the browser cannot be as narrow as a phone.
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    frame = f"""<iframe src="page.html" style="width:{WIDTH}px;height:800px;border:0"></iframe><script>
    onload = () => document.title = frames[0].document.title</script>"""
    (tmp_path / "frame.html").write_text(frame, encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    flags += ["--disable-dev-shm-usage", "--allow-file-access-from-files", "--virtual-time-budget=5000"]
    command = [str(CHROMIUM), *flags, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    found = subprocess.run(
        [*command, f"file://{tmp_path}/frame.html"],
        capture_output=True, text=True, timeout=240, check=True, env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    width, wide, shrunk = re.search(r"<title>\[(.*)\|(.*)\|(.*)\]</title>", found.stdout).groups()
    assert int(width) <= WIDTH
    assert (wide, int(shrunk)) == ("", 0)
