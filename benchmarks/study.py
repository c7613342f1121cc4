"""Shared by the studies: the place of the real data, and the command line of the package as a subprocess."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
DATA = Path(os.environ.get("SENTENCE_EXPERTS_DATA", HERE.parent.parent / "shared" / "data"))
ELIFE, CROPS = "corpora/elife_jats.tar.xz", "corpora/pmc_crops_jats.tar.xz"
COMMAND = "import sys; from sentence_experts.cli.main import main; sys.exit(main(sys.argv[1:]))"
BASE = "minilm"


def cli(log: Path, *arguments: str, **variables: str) -> None:
    """Run one command line of the package on one thread, its output in `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    with open(log, "a", encoding="utf-8") as out:
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, *arguments], stdout=out, stderr=out, env=environment, check=False
        )
    if done.returncode:
        raise SystemExit(f"failed, see {log}: sentence-experts {' '.join(arguments)}")


def slug(name: str) -> str:
    """The name as a folder."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)
