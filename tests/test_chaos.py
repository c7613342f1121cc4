"""A short form of `benchmarks/chaos.py`: disturbed commands end as undisturbed ones, or say what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "chaos.py"


@pytest.mark.slow
def test_nothing_is_lost(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARK), "--trials", "10", "--seed", "3", "--out", str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (total,) = [line for line in said.splitlines() if line.startswith("| all | 10 |")]
    assert total.endswith("| 0 |"), said
