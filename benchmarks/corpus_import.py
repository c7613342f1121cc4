"""Time and memory of `corpus import` compared with pubmed_parser, on the same articles in one run.

    python benchmarks/corpus_import.py [--archive elife_jats.tar.xz] [--rounds 3] [--workers 2] [--limit N]

pubmed_parser runs as its users run it: one process, `parse_pubmed_xml` and `parse_pubmed_references` for
every file. We run the whole import: hashing, parsing, resolving identifiers, writing the corpus. Both read
the same extracted files; we also read them with one worker, and the compressed archive itself. Rounds
alternate, medians are compared. Memory is the largest sum of the resident sets of our whole process tree,
sampled every 10 ms (shared pages count in each).

`--bodies` measures, instead, what reading the bodies adds to the CPU time of an import, in one process and
alternately with an import that leaves them out (results/corpus_import_bodies).
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from measuring import DATA, ELIFE, options, table, write

PEER = """
import sys
from pathlib import Path
import pubmed_parser
references = 0
for path in sorted(Path(sys.argv[1]).glob("*.xml")):
    pubmed_parser.parse_pubmed_xml(str(path))
    references += len(pubmed_parser.parse_pubmed_references(str(path)) or [])
print(references)
"""
OURS = """
import sys
from sentence_experts.cli.main import main
main(["corpus", "import", sys.argv[1], "--out", sys.argv[2], "--workers", sys.argv[3]])
"""


def tree_memory(process: int, anonymous: bool = False) -> int:
    """Bytes resident in a process and its descendants; with `anonymous`, without pages of files."""
    total, waiting = 0, [process]
    while waiting:
        current = waiting.pop()
        try:
            _, resident, of_files, *_ = map(int, Path(f"/proc/{current}/statm").read_text().split())
            total += (resident - of_files * anonymous) * os.sysconf("SC_PAGE_SIZE")
            for task in Path(f"/proc/{current}/task").iterdir():
                waiting += [int(child) for child in (task / "children").read_text().split()]
        except (OSError, ValueError):
            continue
    return total


def cpu_seconds() -> float:
    """User and system time of all ended child processes and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(script: str, *arguments: object) -> tuple[float, float, int]:
    """(seconds, CPU seconds, largest resident bytes) of a Python script and the processes it starts."""
    started, used = time.perf_counter(), cpu_seconds()
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    largest = 0
    while process.poll() is None:
        largest = max(largest, tree_memory(process.pid))
        time.sleep(0.01)
    seconds = time.perf_counter() - started
    if process.returncode:
        raise SystemExit(f"a measured program failed with status {process.returncode}")
    return seconds, cpu_seconds() - used, largest


BODIES = """
import json, shutil, sys, time
from sentence_experts.corpus.formats import mentions
from sentence_experts.corpus.importing import import_corpus
arms = {"with bodies": mentions.ArticleText.add, "without": lambda *_: None}
seconds = {name: [] for name in arms}
for number in range(int(sys.argv[3]) + 1):
    for name, mentions.ArticleText.add in arms.items():
        started = time.process_time()
        import_corpus([sys.argv[1]], sys.argv[2], workers=1)
        shutil.rmtree(sys.argv[2])
        if number:  # the first round loads libraries
            seconds[name].append(round(time.process_time() - started, 3))
print(json.dumps(seconds))
"""


def measure_bodies(articles: Path, out: Path, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of importing with bodies and without, in each round."""
    command = [sys.executable, "-c", BODIES, str(articles), str(out), str(rounds)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds: dict[str, list[float]] = json.loads(answer.stdout.splitlines()[-1])
    return seconds


def write_bodies(articles: int, seconds: dict[str, list[float]]) -> None:
    """Write the least time of each arm, as other programs on the machine only add to it."""
    least = {name: min(values) for name, values in seconds.items()}
    ratio, load = round(least["with bodies"] / least["without"], 2), round(os.getloadavg()[0], 1)
    content = {
        "articles": articles,
        "cpu_seconds": seconds,
        "ratio": ratio,
        "load": load,
        "versions": VERSIONS,
    }
    rounds = len(seconds["without"])
    cells = [f"{least['with bodies']:.2f}", f"{least['without']:.2f}", f"{ratio:.2f}"]
    text = (
        f"# What reading the bodies adds to an import\n\n{articles:,} JATS articles, one worker, load "
        f"{load}; the least CPU seconds of {rounds} alternating rounds. Made by `python "
        f"benchmarks/corpus_import.py --bodies --limit {articles} --rounds {rounds}`.\n\n"
        + table(["with bodies", "without", "ratio"], [cells])
    )
    write("corpus_import_bodies", content, text)


VERSIONS = {name: version(name) for name in ("pubmed_parser", "lxml", "pyarrow", "duckdb")}
PROGRAMS = ("pubmed_parser", "ours, files", "ours, files, one worker", "ours, archive")


def main() -> None:
    given = options(
        __doc__,
        archive=DATA / ELIFE,
        rounds=3,
        workers=2,
        limit=int,
        bodies=False,
    )

    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    cpu: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    memory: dict[str, int] = dict.fromkeys(times, 0)
    with tempfile.TemporaryDirectory() as scratch:
        articles = Path(scratch) / "articles"
        with tarfile.open(given.archive) as archive:
            archive.extractall(articles, members=archive.getmembers()[: given.limit], filter="data")
        count = len(list(articles.glob("*.xml")))
        out = Path(scratch) / "out"
        if given.bodies:
            return write_bodies(count, measure_bodies(articles, out, given.rounds))
        programs: dict[str, tuple[str, *tuple[Any, ...]]] = {
            "pubmed_parser": (PEER, articles),
            "ours, files": (OURS, articles, out, given.workers),
            "ours, files, one worker": (OURS, articles, out, 1),
            "ours, archive": (OURS, given.archive, out, given.workers),
        }
        load = os.getloadavg()[0]
        for number in range(given.rounds):
            for name, (script, *arguments) in programs.items():
                seconds, used, largest = run(script, *arguments)
                shutil.rmtree(out, ignore_errors=True)
                times[name].append(round(seconds, 3))
                cpu[name].append(round(used, 3))
                memory[name] = max(memory[name], largest)
                spent = f"{seconds:.2f} s, {used:.2f} s of CPU, {largest / 1e6:.0f} MB"
                print(f"round {number + 1}: {name}: {spent}", flush=True)

    median, used_cpu = ({name: statistics.median(own) for name, own in each.items()} for each in (times, cpu))
    result = {
        "articles": count, "seconds": times, "cpu_seconds": cpu, "workers": given.workers,
        "versions": VERSIONS,
        "largest_resident_megabytes": {name: round(value / 1e6) for name, value in memory.items()},
        "load_before": round(load, 2),
    }  # fmt: skip
    peer = median["pubmed_parser"]
    rows = [
        [name, f"{own:.2f}", f"{used_cpu[name]:.2f}", f"{peer / own:.2f}", f"{memory[name] / 1e6:.0f} MB"]
        for name, own in median.items()
    ]
    head = ["", "seconds", "CPU seconds", "times as fast", "peak memory"]
    text = (
        f"# corpus import compared with pubmed_parser {VERSIONS['pubmed_parser']}\n\n{count:,} JATS "
        f"articles, {given.workers} workers, load before: {load:.1f}; medians of {given.rounds} alternating "
        f"rounds. Made by `python benchmarks/corpus_import.py`.\n\n{table(head, rows)}"
    )
    write("corpus_import", result, text)


if __name__ == "__main__":
    main()
