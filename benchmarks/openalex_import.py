"""Cost of importing an OpenAlex snapshot, and what a killed import loses.

    python benchmarks/openalex_import.py [--works 50000 200000] [--part 20000] [--memory 4GB] [--kills 20]
        [--scratch FOLDER] [--results FILE]

The snapshot is generated in the published schema of works (JSON lines in `updated_date=.../part_*.gz`), with
ten references per work on average, whose targets are heavy-tailed; half of the works have an abstract, 85%
a DOI, 15% a PMID; 1% stand in an older partition too, 2% belong to the extension pack, 1% are deleted, 5% of
the references dangle. Nothing in it is real. CPU time is that of the whole process tree, memory the largest
sum over its processes of what is not a page of a file.

It needs 2 kB of disk per work (20 GB for 10 million), in a temporary folder that is removed at the end. With
`--scratch FOLDER` the snapshot stays there, and so does each finished import's row: after an interruption the
same command goes on with the part file, or repeats the import, that was begun.

With `--kills`, the import of the largest snapshot is killed (`kill -9`) that many times at random moments and
started again each time; the corpus must have the bytes of an undisturbed import.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from corpus_import import cpu_seconds, tree_memory
from measuring import options, table, write
from sentence_experts.storage import sha256_file

TABLES = ("papers.parquet", "citations.parquet", "manifest.json", "rejected.jsonl")
OURS = """
import sys
from sentence_experts.cli.main import main
main(["corpus", "import", sys.argv[1], "--format", "openalex", "--out", sys.argv[2], *sys.argv[3:]])
"""
WORDS = [f"{a}{b}" for a in ("neuro", "bio", "geo", "socio", "thermo", "electro") for b in (
    "graph", "metry", "logy", "dynamics", "synthesis", "genesis", "scope", "therapy", "static", "chemistry",
)]  # fmt: skip
FIELDS = ("Computer Science", "Medicine", "Physics and Astronomy", "Social Sciences", "Engineering")
TRUE = ("false", "true")
CC_BY = '"cc-by"'
DISK_PER_WORK = 2_000
MINUTE = 60


ABSTRACTS = (
    2_000  # different ones, so that records are cheap to make but do not repeat within a file's window
)


def works(first: int, count: int, total: int, seed: int) -> Iterator[bytes]:
    """Generated works with the numbers from `first` on, of `total`, one line of JSON each."""
    generator = random.Random(f"{seed}/{first}")
    abstracts = [orjson.dumps(_index(random.Random(number))).decode() for number in range(ABSTRACTS)]
    before, between, after = _fixed_parts()
    for number in range(first, first + count):
        yield _line(number, total, generator, abstracts, before, between, after)


def _index(generator: random.Random) -> dict[str, list[int]]:
    """An inverted index of 150 words."""
    index: dict[str, list[int]] = {}
    for place in range(150):
        index.setdefault(generator.choice(WORDS), []).append(place)
    return index


def _fixed_parts() -> tuple[str, str, str]:
    """What is alike in all works, which an import has to read too: authors, locations, concepts, counts."""
    author = {
        "author_position": "middle", "raw_affiliation_strings": ["Institute of simulated records"],
        "author": {"id": "https://openalex.org/A1", "display_name": "Simulated Author", "orcid": None},
    }  # fmt: skip
    location = {"is_oa": True, "landing_page_url": None, "license": "cc-by", "source": None}
    concept = {"id": "https://openalex.org/C1", "display_name": "Concept", "score": 0.5}
    counts = [{"year": year, "cited_by_count": 3} for year in range(2016, 2026)]
    return (
        f'"authorships":{orjson.dumps([author] * 5).decode()}',
        f'"locations":{orjson.dumps([location] * 2).decode()},'
        f'"concepts":{orjson.dumps([concept] * 8).decode()}',
        f'"mesh":[],"counts_by_year":{orjson.dumps(counts).decode()},"updated_date":"2026-06-01T00:00:00"',
    )


def _line(
    number: int,
    total: int,
    generator: random.Random,
    abstracts: list[str],
    before: str,
    between: str,
    after: str,
) -> bytes:
    """One generated work in the schema of the snapshot."""
    chance = generator.random
    # The power makes low numbers frequent; one reference in twenty names no work.
    cited = {int(total * chance() ** 2.5) for _ in range(int(21 * chance()))}
    references = ",".join(
        [f'"https://openalex.org/W{1000 + (one if one % 20 else one + 10 * total)}"' for one in cited]
    )
    address = f'"https://openalex.org/W{1000 + number}"'
    doi = f'"https://doi.org/10.5555/simulated.{number}"' if chance() < 0.85 else "null"
    pmid = f'"https://pubmed.ncbi.nlm.nih.gov/{number + 1}"' if chance() < 0.15 else "null"
    index = abstracts[int(ABSTRACTS * chance())] if chance() < 0.5 else "null"
    title = " ".join([WORDS[int(len(WORDS) * chance())] for _ in range(8)])
    field = number % len(FIELDS)
    return (
        f'{{"id":{address},"doi":{doi},"ids":{{"openalex":{address},"doi":{doi},"pmid":{pmid}}},'
        f'"title":"Simulated {title}","publication_year":{1990 + number % 36},'
        f'"type":"article","language":"en",'
        f'"primary_location":{{"is_oa":true,"landing_page_url":{doi},'
        f'"license":{CC_BY if number % 3 else "null"},'
        f'"source":{{"id":"https://openalex.org/S{number % 5000}",'
        f'"display_name":"Journal {number % 5000}","type":"journal","issn":["0000-0000"]}}}},{before},'
        f'"primary_topic":{{"id":"https://openalex.org/T{10000 + number % 4500}",'
        f'"display_name":"Topic {number % 4500}",'
        f'"subfield":{{"id":"https://openalex.org/subfields/{1000 + number % 250}",'
        f'"display_name":"Subfield {number % 250}"}},'
        f'"field":{{"id":"https://openalex.org/fields/{11 + field}","display_name":"{FIELDS[field]}"}}}},'
        f'{between},"keywords":[{{"id":"https://openalex.org/keywords/k",'
        f'"display_name":"Keyword {number % 99}"}}],"is_retracted":{TRUE[number % 10_000 == 0]},'
        f'"is_xpac":{TRUE[number % 50 == 7]},"referenced_works":[{references}],'
        f'"abstract_inverted_index":{index},{after}}}\n'
    ).encode()


def write_snapshot(folder: Path, total: int, per_part: int, seed: int = 0) -> int:
    """Write a generated snapshot of `total` works, unless it is there; returns its bytes."""
    ready = folder / "ready"
    if not ready.exists():
        base = folder / "works"
        for part, first in enumerate(range(0, total, per_part)):
            path = base / "updated_date=2026-06-01" / f"part_{part:04d}.gz"
            if not path.exists():
                _write(path, works(first, min(per_part, total - first), total, seed))
                print(f"generated {min(first + per_part, total):,} of {total:,} works", flush=True)
        old = (
            line.replace(b'"title":"', b'"title":"Old ').replace(b'"2026-06-01', b'"2025-01-01')
            for line in works(0, total // 100, total, seed)
        )
        _write(base / "updated_date=2025-01-01" / "part_0000.gz", old)
        deleted = [f"https://openalex.org/W{1000 + number},2026-05-01" for number in range(50, total, 100)]
        with gzip.open(base / "deleted_ids.csv.gz", "wt") as file:
            file.write("\n".join(["work_id,deleted_date", *deleted]))
        ready.write_text("")
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _write(path: Path, lines: Iterator[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = path.with_suffix(".begun")
    with gzip.open(begun, "wb", compresslevel=1) as file:
        while chunk := b"".join(itertools.islice(lines, 1000)):
            file.write(chunk)
    begun.rename(path)


def check_disk(scratch: Path, total: int) -> None:
    """Stop before the disk is full."""
    needed, free = total * DISK_PER_WORK, shutil.disk_usage(scratch).free
    print(f"{total:,} works need up to {needed / 1e9:.1f} GB in {scratch}; {free / 1e9:.1f} GB are free")
    if free < needed:
        raise SystemExit("not enough disk; give another folder with --scratch")


def start(snapshot: Path, out: Path, options: list[str]) -> subprocess.Popen[bytes]:
    """Begin an import in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", OURS, str(snapshot / "works"), str(out), *options],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def measured(snapshot: Path, out: Path, options: list[str]) -> dict[str, Any]:
    """Import once: seconds, CPU seconds, and the largest sum of resident memory in bytes."""
    began, used, largest, told = time.perf_counter(), cpu_seconds(), 0, MINUTE
    process = start(snapshot, out, options)
    while process.poll() is None:
        memory = tree_memory(process.pid, anonymous=True)
        largest = max(largest, memory)
        if (seconds := time.perf_counter() - began) > told:
            parts = len(list((out / ".partial").glob("*.papers.parquet")))
            print(f"{seconds:.0f} s: {parts:,} parts read, {memory / 1e6:.0f} MB", flush=True)
            told += MINUTE
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"the import failed with status {process.returncode}")
    counts = json.loads((out / "manifest.json").read_text())["counts"]
    return {
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(cpu_seconds() - used, 1),
        "peak_megabytes": round(largest / 1e6),
        "papers": counts["papers"],
        "references": counts["references"],
    }


def hashes(out: Path) -> dict[str, str]:
    return {name: sha256_file(out / name) for name in TABLES}


def killed(snapshot: Path, out: Path, options: list[str], kills: int, seconds: float) -> int:
    """Kill an import at random moments `kills` times, then let it end; returns the kills."""
    generator, done = random.Random(0), 0
    while done < kills:
        process = start(snapshot, out, options)
        try:
            process.wait(generator.uniform(0.3, 0.6 * seconds))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            done += 1
            continue
        if process.returncode:
            raise SystemExit(f"the import failed with status {process.returncode} after {done} kills")
        # Done before it could be killed: start over, so that every kill hits an unfinished import.
        shutil.rmtree(out)
    final = start(snapshot, out, options)
    if final.wait():
        raise SystemExit(f"the import failed with status {final.returncode} after {done} kills")
    return done


def main() -> None:
    given = options(
        __doc__,
        works=[50_000, 200_000],
        part=20_000,
        workers=2,
        memory="4GB",
        kills=0,
        scratch=Path,
        results="openalex_import",
    )
    flags = ["--workers", str(given.workers), "--memory", given.memory]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        scratch = given.scratch or Path(temporary)
        scratch.mkdir(parents=True, exist_ok=True)
        check_disk(scratch, max(given.works))
        for total in given.works:
            snapshot = scratch / f"snapshot-{total}-{given.part}"
            out, done = scratch / f"corpus-{total}", scratch / f"row-{total}.json"
            if not done.exists():
                size = write_snapshot(snapshot, total, given.part)
                shutil.rmtree(out, ignore_errors=True)
                load = os.getloadavg()[0]
                row = {"works": total, "packed_megabytes": round(size / 1e6), "load_before": round(load, 1)}
                row |= measured(snapshot, out, flags)
                row["cpu_microseconds_per_work"] = round(1e6 * row["cpu_seconds"] / total)
                done.write_text(json.dumps(row))
            rows.append(json.loads(done.read_text()))
            print(json.dumps(rows[-1]), flush=True)
        if given.kills:
            again = scratch / "killed"
            shutil.rmtree(again, ignore_errors=True)
            rows[-1]["kills"] = killed(snapshot, again, flags, given.kills, rows[-1]["seconds"])
            rows[-1]["same_bytes_after_kills"] = hashes(again) == hashes(out)
            print(json.dumps(rows[-1]), flush=True)
    command = f"--works {' '.join(map(str, given.works))} --part {given.part}"
    head = [
        "works",
        "packed",
        "references",
        "seconds",
        "CPU seconds",
        "CPU µs per work",
        "peak memory",
        "load",
    ]
    cells = [
        [
            f"{row['works']:,}", f"{row['packed_megabytes']:,} MB", f"{row['references']:,}",
            str(row["seconds"]), str(row["cpu_seconds"]), str(row["cpu_microseconds_per_work"]),
            f"{row['peak_megabytes']:,} MB",
            str(row["load_before"]),
        ]
        for row in rows
    ]  # fmt: skip
    text = (
        f"# corpus import of a generated OpenAlex snapshot\n\n{given.workers} workers, memory limit "
        f"{given.memory}, shared with other jobs; memory is the largest sum over all processes, without "
        f"pages of files. Made by `python benchmarks/openalex_import.py {command}`; the records are "
        f"generated.\n\n{table(head, cells)}"
    )
    for row in rows:
        if "kills" in row:
            same = "the same bytes" if row["same_bytes_after_kills"] else "OTHER BYTES"
            text += f"\n\n{row['works']:,} works, killed {row['kills']} times: {same}."
    libraries = {name: version(name) for name in ("duckdb", "pyarrow")}
    write(given.results, {"rows": rows, "flags": command, "versions": libraries}, text)


if __name__ == "__main__":
    main()
