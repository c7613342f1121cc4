"""Bulk encoding: a million titles, and throughput beside one process.

    python benchmarks/bulk_encode.py [--parts million,throughput] [--engines local[2],ray[2]]

`million` uses a tiny random model, so that the work around the model is what is measured; `throughput` uses
all-MiniLM-L6-v2 on titles of eLife. CPU time is that of all processes together, between the sixth file and
the last but one, so that start-up does not count.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from measuring import RESULTS, elife_texts, options, table, write

WORDS = (
    *("rice", "wheat", "neuron", "axon", "sleep", "drought", "root", "spike", "memory", "cell", "protein"),
    *("gene", "model", "mouse", "human", "response", "binding", "structure", "growth", "stress", "network"),
    *("activity", "role", "function", "expression", "of", "in", "the", "and", "during"),
)
CODE = """
import sys, json
from sentence_experts.encoding.encode import encode
encode(*sys.argv[1:3], out=sys.argv[3], load_config={"device": "cpu"}, **json.loads(sys.argv[4]))
"""


@dataclass
class Sample:
    """What all processes of a run had used at one moment."""

    seconds: float
    files: int
    cpu: dict[int, float]
    megabytes: dict[int, float]
    workers: tuple[int, ...]


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


def start(model: str | Path, texts: Path, out: Path, **settings: object) -> subprocess.Popen[bytes]:
    """Begin a run in a process group of its own."""
    given = json.dumps({"column": "title", "id_column": "id", **settings})
    command = [sys.executable, "-c", CODE, str(model), str(texts), str(out), given]
    return subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def family(driver: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes of a run, the driver first."""
    try:
        first = psutil.Process(driver.pid)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def is_worker(process: psutil.Process) -> bool:
    """Whether a process is one that encodes for Ray."""
    try:
        line = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return line.startswith("ray::RayWorker")


def watched(driver: subprocess.Popen[bytes], out: Path, seconds: float = 0.5) -> Iterator[Sample]:
    """What a run uses, until it ends."""
    began = time.perf_counter()
    while driver.poll() is None:
        cpu, memory, workers = {}, {}, []
        for process in family(driver):
            try:
                times = process.cpu_times()
                cpu[process.pid] = times.user + times.system
                memory[process.pid] = process.memory_info().rss / 1e6
            except psutil.Error:
                continue
            workers += [process.pid] * is_worker(process)
        files = len(list(out.with_name(f".{out.name}.parts").glob("*.parquet")))
        yield Sample(time.perf_counter() - began, files, cpu, memory, tuple(workers))
        time.sleep(seconds)
    if driver.returncode:
        assert driver.stderr is not None
        raise SystemExit(driver.stderr.read().decode()[-2000:])


def cpu_between(first: Sample, last: Sample, processes: Sequence[int] = ()) -> float:
    """CPU seconds of some processes, or of all, from one moment to another."""
    return sum(last.cpu[pid] - first.cpu.get(pid, 0.0) for pid in processes or last.cpu)


# ---- a million titles ----------------------------------------------------------------------------


def million(home: Path, count: int, engine: str) -> dict:
    """Memory over time while many titles are encoded."""
    model = tiny_model(home / "tiny")
    generated_titles(home / "titles", count)
    out = home / "vectors"
    driver = start(model, home / "titles", out, engine=engine)
    samples = [sample for sample in watched(driver, out, 1.0) if sample.files]
    shards = len(list(out.glob("part-*")))
    largest = [max(sample.megabytes.values()) for sample in samples]
    tenth = [round(largest[int(share * (len(samples) - 1) / 10)]) for share in range(1, 11)]
    last = samples[-1]
    return {
        "texts": count,
        "engine": engine,
        "files": shards,
        "gigabytes": round(sum(file.stat().st_size for file in out.glob("part-*")) / 1e9, 2),
        "seconds": round(last.seconds),
        "cpu_seconds": round(sum(last.cpu.values())),
        "megabytes_by_tenth": tenth,
    }


# ---- throughput ----------------------------------------------------------------------------------


def throughput(home: Path, count: int, engines: list[str]) -> dict:
    """CPU and wall time per text of each engine, after its start."""
    titles, _ = elife_texts(400)
    (home / "elife").mkdir()
    texts = [f"{titles[number % len(titles)]} {number}" for number in range(count)]
    columns = {"id": [str(number) for number in range(count)], "title": texts}
    pq.write_table(pa.table(columns), home / "elife" / "titles.parquet")
    size, found = 256, {}
    for engine in engines:
        out = home / f"throughput-{engine.partition('[')[0]}"
        driver = start("minilm", home / "elife", out, engine=engine, shard_size=size, chunk_size=size)
        # By then every worker has opened its model.
        samples = [each for each in watched(driver, out, 0.2) if 6 <= each.files <= count // size - 1]
        first, last = samples[0], samples[-1]
        done = (last.files - first.files) * size
        own = [last.megabytes[pid] for pid in last.workers] or [max(last.megabytes.values())]
        found[engine] = {
            "cpu_ms": round(1000 * cpu_between(first, last) / done, 2),
            "cpu_ms_encoding": round(1000 * cpu_between(first, last, last.workers) / done, 2),
            "wall_ms": round(1000 * (last.seconds - first.seconds) / done, 2),
            "megabytes_per_worker": round(max(own)),
            "megabytes_of_all": round(sum(last.megabytes.values())),
            "processes": len(last.megabytes),
        }
        print(engine, found[engine], flush=True)
    return {"texts": count, "engines": found}


# ---- the result ----------------------------------------------------------------------------------


def report(result: dict, command: str) -> str:
    """The Markdown of what was measured."""
    blocks = [f"# Bulk encoding\n\nMade by `{command}`."]
    if found := result.get("million"):
        blocks.append(
            f"## {found['texts']:,} generated titles, tiny model, `--engine {found['engine']}`\n\n"
            f"{found['files']} files, {found['gigabytes']} GB, {found['cpu_seconds']} s of CPU time, "
            f"{found['seconds']} s. Memory of the largest process at each tenth of the time, MB: "
            f"{', '.join(map(str, found['megabytes_by_tenth']))}."
        )
    if found := result.get("throughput"):
        base = next(iter(found["engines"].values()))
        rows = [
            [
                f"`{engine}`",
                f"{each['cpu_ms']:.2f}",
                f"{base['cpu_ms'] / each['cpu_ms']:.2f}",
                f"{base['cpu_ms'] / each['cpu_ms_encoding']:.2f}",
                f"{each['wall_ms']:.2f}",
                f"{base['wall_ms'] / each['wall_ms']:.2f}",
                f"{each['megabytes_per_worker']:,}",
                f"{each['megabytes_of_all']:,}",
            ]
            for engine, each in found["engines"].items()
        ]
        header = [
            "",
            "CPU ms per text",
            "throughput by CPU",
            "by CPU of the workers",
            "ms per text",
            "throughput",
            "MB per worker",
            "MB in all",
        ]
        blocks.append(f"## all-MiniLM-L6-v2, {found['texts']:,} titles\n\n{table(header, rows)}")
    blocks.append(
        f"The load of the machine was {result['load']}: where it exceeds 2, other jobs shared the cores."
    )
    return "\n\n".join(blocks)


def main() -> None:
    """Measure the parts, and write them beside those measured before."""
    given = options(
        __doc__,
        parts="million,throughput",
        engines="local[2],ray[2]",
        titles=1_000_000,
        texts=4096,
        folder=Path,
    )
    before = RESULTS / "bulk_encode.json"
    result = json.loads(before.read_text()) if before.exists() else {}
    engines = given.engines.split(",")
    with tempfile.TemporaryDirectory(prefix="bulk-", dir=given.folder) as temporary:
        home = Path(temporary)
        for part in given.parts.split(","):
            if part == "million":
                result[part] = million(home, given.titles, engines[0])
                shutil.rmtree(home / "titles")
            else:
                result[part] = throughput(home, given.texts, engines)
    result["load"] = round(os.getloadavg()[0], 1)
    result.pop("versions", None)
    write("bulk_encode", result, report(result, "python benchmarks/bulk_encode.py"))


if __name__ == "__main__":
    main()
