"""`kill -9` at any moment: the same command goes on, nothing is fetched twice, the same bytes at the end.

SENTENCE_EXPERTS_KILLS sets how many times (50 takes some minutes).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from helpers.replay_server import Replay, serving
from helpers.simulated_world import DOMAINS, fill

FILES = (
    "papers.parquet", "citations.parquet", "domains.parquet", "provenance.parquet", "rejected.jsonl",
    "manifest.json",
)  # fmt: skip
KILLS = int(os.environ.get("SENTENCE_EXPERTS_KILLS", "2"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Replay, Path, Path]]:
    """The world, a plan, and a corpus fetched without being killed."""
    folder, world = tmp_path_factory.mktemp("served"), Replay()
    fill(world, folder / "articles")
    with serving(world) as base:
        plan = folder / "plan.yaml"
        queries = {name: f"{title}[MeSH]" for name, title in DOMAINS.items()}
        services = world.services(base)
        plan.write_text(yaml.safe_dump({"domains": queries, "services": services}))
        assert start(plan, folder / "whole").wait() == 0
        yield world, plan, folder / "whole"


def start(plan: Path, out: Path) -> subprocess.Popen[bytes]:
    verb = ["corpus", "fetch", "--config", plan, "--out", out, "--email", "a@b.org", "--workers", "1"]
    return subprocess.Popen(
        [Path(sys.executable).with_name("sentence-experts"), *verb],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.slow
@pytest.mark.timeout(60 + 60 * KILLS)
@pytest.mark.parametrize("number", range(KILLS))
def test_a_killed_fetch_continues_to_the_same_bytes(
    served: tuple[Replay, Path, Path], tmp_path: Path, number: int
) -> None:
    world, plan, whole = served
    dice, out = random.Random(number), tmp_path / "corpus"
    world.asked.clear()
    child: list[subprocess.Popen[bytes]] = []
    # Two thirds while it fetches, at a certain request; the others while it writes the corpus.
    at_request = dice.randrange(1, 95) if number % 3 else None

    def kill(asked: int, path: str) -> str | None:
        if asked == at_request:
            os.kill(child[0].pid, signal.SIGKILL)
            return "reset"
        return None

    world.fault = kill
    child.append(start(plan, out))
    if at_request is None:
        while not (out / ".partial").exists() and child[0].poll() is None:
            time.sleep(0.002)
        time.sleep(dice.random() * 0.4)
        child[0].kill()
    child[0].wait()
    world.fault = lambda asked, path: None
    before = len(world.asked)
    assert start(plan, out).wait() == 0
    for name in FILES:
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name
    asked = Counter((path, str(sorted(params.items()))) for path, params in world.asked)
    again = sum(times - 1 for times in asked.values())
    # Only what was under way when it died: three requests for each of the articles in four threads, and
    # what had come but was not yet written.
    assert again <= 3 * 4 * 4 if at_request else again == 0, (before, again)
    assert not (out / ".partial").exists()
