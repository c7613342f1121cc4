"""Processes start without running the calling script again, as `compat.multiprocessing` relies on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
from concurrent.futures import ProcessPoolExecutor
from sentence_experts.compat.multiprocessing import DetachedContext

print("started")
with ProcessPoolExecutor(2, mp_context=DetachedContext()) as pool:
    print(sum(pool.map(abs, [-1, -2, -3])), __file__.endswith("job.py"))
"""


def test_script_without_main_guard_starts_workers_once(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:2] == ["started", "6 True"], done.stderr[-1000:]
