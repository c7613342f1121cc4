"""Bulk encoding: memory over time while a million titles are encoded into a folder.

    python benchmarks/bulk_encode.py

The model is tiny and random, so that the work around it is what is measured.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from measuring import options, write

WORDS = (
    *("rice", "wheat", "neuron", "axon", "sleep", "drought", "root", "spike", "memory", "cell", "protein"),
    *("gene", "model", "mouse", "human", "response", "binding", "structure", "growth", "stress", "network"),
    *("activity", "role", "function", "expression", "of", "in", "the", "and", "during"),
)
CODE = """
import sys
from sentence_experts.encoding.encode import encode
encode(*sys.argv[1:3], out=sys.argv[3], column="title", id_column="id", load_config={"device": "cpu"})
"""


def generated_titles(folder: Path, count: int, per_file: int = 100_000) -> None:
    """Parquet files with ids and titles of 6 to 18 words."""
    dice = random.Random(0)
    folder.mkdir(parents=True)
    for start in range(0, count, per_file):
        numbers = range(start, min(start + per_file, count))
        titles = [" ".join(dice.choices(WORDS, k=dice.randint(6, 18))) for _ in numbers]
        columns = {"id": [f"W{number}" for number in numbers], "title": titles}
        pq.write_table(pa.table(columns), folder / f"{start:09d}.parquet")


def tiny_model(folder: Path) -> Path:
    """A random BERT of two blocks with vectors of 32 numbers."""
    import chaos_commands  # noqa: F401 - which finds `helpers`
    from helpers.samples import make_tiny_encoder
    from sentence_experts.models.sources import minilm_path

    made: Path = make_tiny_encoder(folder, minilm_path())
    return made


def million(home: Path, count: int) -> dict:
    """Encode many titles; return the memory of the process over time, from its first file on."""
    model, out = tiny_model(home / "tiny"), home / "vectors"
    generated_titles(home / "titles", count)
    command = [sys.executable, "-c", CODE, str(model), str(home / "titles"), str(out)]
    driver, began = subprocess.Popen(command, stderr=subprocess.DEVNULL), time.perf_counter()
    process, megabytes, cpu = psutil.Process(driver.pid), [], 0.0
    while driver.poll() is None:
        try:
            times = process.cpu_times()
            cpu = times.user + times.system
            if list((home / ".vectors.parts").glob("*.parquet")):
                megabytes.append(process.memory_info().rss / 1e6)
        except psutil.Error:
            break
        time.sleep(1)
    if driver.wait():
        raise SystemExit("encode failed")
    tenth = [round(megabytes[int(share * (len(megabytes) - 1) / 10)]) for share in range(1, 11)]
    files = list(out.glob("part-*"))
    return {
        "texts": count,
        "files": len(files),
        "gigabytes": round(sum(file.stat().st_size for file in files) / 1e9, 2),
        "seconds": round(time.perf_counter() - began),
        "cpu_seconds": round(cpu),
        "megabytes_by_tenth": tenth,
    }


def report(found: dict, load: float) -> str:
    """The Markdown of what was measured."""
    return (
        "# Bulk encoding\n\nMade by `python benchmarks/bulk_encode.py`.\n\n"
        f"## {found['texts']:,} generated titles, tiny model\n\n"
        f"{found['files']} files, {found['gigabytes']} GB, {found['cpu_seconds']} s of CPU time, "
        f"{found['seconds']} s. Memory of the process at each tenth of the time, MB: "
        f"{', '.join(map(str, found['megabytes_by_tenth']))}.\n\n"
        f"The load of the machine was {load}: where it exceeds 2, other jobs shared the cores."
    )


def main() -> None:
    """Measure, and write the result."""
    given = options(__doc__, titles=1_000_000, folder=Path)
    with tempfile.TemporaryDirectory(prefix="bulk-", dir=given.folder) as temporary:
        found = million(Path(temporary), given.titles)
    load = round(os.getloadavg()[0], 1)
    write("bulk_encode", {"million": found, "load": load}, report(found, load))


if __name__ == "__main__":
    main()
