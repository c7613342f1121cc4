"""`kill -9` at any moment of an import of records: the same command goes on and ends with the same bytes.

`benchmarks/openalex_import.py --kills 20` does it with 200,000 works.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from helpers.openalex_works import write_works
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.storage import sha256_file

SLOW_IMPORT = """
import sys, time
from sentence_experts.corpus import building, record_files
from sentence_experts.corpus.importing import import_corpus
record_files._RECORDS_PER_PART = 10
make, write = record_files._part, building.write_stream
def slow_part(*given):
    time.sleep(0.03)
    return make(*given)
def slow_write(*given):
    time.sleep(0.3)
    write(*given)
record_files._part, building.write_stream = slow_part, slow_write
import_corpus(sys.argv[1], sys.argv[2], workers=1)
"""
# What is there when the process is killed: some parts, all of a file, the first table.
MOMENTS = (".partial/0000-*2.*.papers.parquet", ".partial/0001.*.done.json", "papers.parquet")


def test_a_killed_import_of_records_ends_with_the_same_bytes(tmp_path: Path) -> None:
    folder, out = tmp_path / "works", tmp_path / "out"
    for part in range(3):
        write_works(folder / f"part_{part}.gz", range(100 * part, 100 * part + 60))
    for moment in MOMENTS:
        process = subprocess.Popen([sys.executable, "-c", SLOW_IMPORT, str(folder), str(out)])
        deadline = time.monotonic() + 120
        while not any(out.glob(moment)) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, moment
        assert not (out / "manifest.json").exists()
    whole = import_corpus([folder], tmp_path / "whole", workers=1)
    # Parts of another size would not be those of the killed run: go on with its program.
    assert (
        subprocess.run([sys.executable, "-c", SLOW_IMPORT, str(folder), str(out)], check=False).returncode
        == 0
    )
    for name in (
        *json.loads((out / "manifest.json").read_text())["tables"],
        "manifest.json",
        "rejected.jsonl",
    ):
        assert sha256_file(out / name) == sha256_file(whole.path / name), name
