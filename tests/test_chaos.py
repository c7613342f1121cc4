"""Short forms of `benchmarks/chaos.py`: disturbed commands end as undisturbed ones, or say what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "chaos.py"


def assert_nothing_lost(out: Path, trials: int, *options: str) -> None:
    command = [sys.executable, str(BENCHMARK), "--trials", str(trials), "--seed", "3", *options]
    said = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, check=True).stdout
    (total,) = [line for line in said.splitlines() if line.startswith(f"| all | {trials} |")]
    assert total.endswith("| 0 |"), said


def test_nothing_is_lost(tmp_path: Path) -> None:
    assert_nothing_lost(tmp_path, 4, "--verb", "corpus import", "pairs", "tasks")


@pytest.mark.slow
def test_nothing_is_lost_of_models(tmp_path: Path) -> None:
    assert_nothing_lost(tmp_path, 8)
