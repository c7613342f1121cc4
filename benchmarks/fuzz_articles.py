"""Break real articles in every way that comes to mind and see that the readers stay calm.

    python benchmarks/fuzz_articles.py                     # 10,000 mutations, some minutes; writes the result
    python benchmarks/fuzz_articles.py --from 4000 --count 50
    python benchmarks/fuzz_articles.py --data FOLDER --failing FOLDER

Mutation number N is always the same one for the same seed and data. It goes the way of an import: a file or
an archive is read, its documents are parsed, a shard is written. A failure is anything but papers, deletions,
members passed over and rejections with a name: an exception, the catch-all rejection `error`, silence, more
than `SECONDS` for one mutation, or more memory than `MEMORY`. The mutations run in a process of their own,
so that one that hangs or kills it is a failure too and the rest goes on. Failing inputs are written out.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq

from fuzz_containers import CONTAINERS
from fuzz_mutations import MUTATIONS, Input
from measuring import write
from study import DATA

SECONDS = 20.0
"""Of processor time for one mutation; the slowest, 100,000 empty articles in one set, takes some seconds."""
MEMORY = 1 << 30
"""Bytes by which a mutation may raise the peak of the process that reads it."""
_HANGS_AFTER = 90.0
_KINDS = ("*.xml", "*.nxml")
COUNT = 10_000


def read_data(folder: Path) -> list[tuple[str, bytes]]:
    """The documents under a folder, by name; those of archives are left alone."""
    files = sorted(path for kind in _KINDS for path in folder.rglob(kind))
    return [(path.relative_to(folder).as_posix(), path.read_bytes()) for path in files]


def mutation(data: list[tuple[str, bytes]], seed: int, number: int) -> Input:
    """Mutation `number`: its name and the file or archive that it is."""
    random = Random(f"{seed}-{number}")
    # A kind of article first: of some there are many more than of others.
    folder = random.choice(sorted({os.path.dirname(name) for name, _ in data}))
    base, document = random.choice([each for each in data if os.path.dirname(each[0]) == folder])
    names = []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        name = random.choice(sorted(MUTATIONS))
        document = MUTATIONS[name](random, document)
        names.append(name)
    container = random.choice(("bare", "bare", "bare", random.choice(sorted(CONTAINERS))))
    if container in CONTAINERS:
        file, content = CONTAINERS[container](random, document)
    else:
        file, content = "article.xml", document
    return Input("+".join(names), container, base, file, content)


def outcome_of(mutated: Input, folder: Path) -> dict[str, Any]:
    """Read one mutation as an import would; what came of it, in counts."""
    from sentence_experts.corpus import parsing
    from sentence_experts.corpus.formats.archives import Source, kind_of
    from sentence_experts.corpus.parts import REJECTED, open_parts, read_rejections

    path = folder / mutated.file
    path.write_bytes(mutated.content)
    parts = open_parts(folder / "parts")
    peak, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    passed = parsing.parse_sources([Source(path.name, kind_of(path), path)], parts, 1)
    seconds = time.process_time() - began
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * 1024
    papers = sum(pq.read_metadata(file).num_rows for file in parts.paths())
    rejections = [each for file in parts.paths(REJECTED) for each in read_rejections(file)]
    reasons = Counter(each.reason for each in rejections)
    problems = [f"error: {each.detail}" for each in rejections if each.reason == "error"]
    if not papers and not reasons and not passed:
        problems.append("nothing came of it")
    if seconds > SECONDS:
        problems.append(f"{seconds:.1f} s")
    if grown > MEMORY:
        problems.append(f"{grown >> 20} MB")
    return {"papers": papers, "passed": passed, "reasons": dict(reasons), "seconds": seconds, "grown": grown,
            "problems": problems}  # fmt: skip


def attempt(mutated: Input) -> dict[str, Any]:
    """The outcome of a mutation, an exception being one."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return outcome_of(mutated, Path(folder))
        except BaseException as error:
            problem = f"{type(error).__name__}: {error}"[:300]
            return {
                "papers": 0,
                "passed": 0,
                "reasons": {},
                "seconds": 0.0,
                "grown": 0,
                "problems": [problem],
            }


def _work(data: list[tuple[str, bytes]], seed: int, numbers: range, answers: Connection) -> None:
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - the progress of 10,000 imports
    for number in numbers:
        mutated = mutation(data, seed, number)
        answers.send((number, mutated.names, mutated.container, attempt(mutated)))


def run(data: list[tuple[str, bytes]], seed: int, numbers: range) -> Iterator[tuple[int, str, str, Any]]:
    """Every mutation's number, names, container and outcome; a process that hangs or dies is replaced."""
    context = multiprocessing.get_context("spawn")
    begin = numbers.start
    while begin < numbers.stop:
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(data, seed, range(begin, numbers.stop), sending))
        process.start()
        sending.close()
        try:
            while begin < numbers.stop and receiving.poll(_HANGS_AFTER):
                answer = receiving.recv()
                begin = answer[0] + 1
                yield answer
        except EOFError:
            pass
        if begin < numbers.stop:
            mutated = mutation(data, seed, begin)
            problem = "hangs" if process.is_alive() else f"the process died ({process.exitcode})"
            failed = {"papers": 0, "passed": 0, "reasons": {}, "seconds": _HANGS_AFTER, "grown": 0,
                      "problems": [problem]}  # fmt: skip
            yield begin, mutated.names, mutated.container, failed
            begin += 1
        process.kill()
        process.join()


_COUNTED = ("papers", "reasons", "problems")


def table(outcomes: list[tuple[int, str, str, Any]]) -> str:
    """What came of each kind of mutation, as Markdown."""
    by_kind: dict[str, list[Any]] = {}
    for _, names, container, outcome in outcomes:
        for kind in (*names.split("+"), f"in {container}"):
            by_kind.setdefault(kind, []).append(outcome)
    lines = ["| mutation | times | gave papers | rejected | slowest, s | memory, MB | failed | reasons |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for kind, found in [*sorted(by_kind.items()), ("all", [outcome for *_, outcome in outcomes])]:
        reasons: Counter[str] = Counter()
        for outcome in found:
            reasons.update(outcome["reasons"].keys())
        common = ", ".join(f"{reason} {times}" for reason, times in reasons.most_common(4))
        papers, rejected, failed = (sum(bool(each[key]) for each in found) for key in _COUNTED)
        slowest, grown = (max(each[key] for each in found) for key in ("seconds", "grown"))
        cells = (kind, len(found), papers, rejected, f"{slowest:.2f}", grown >> 20, failed, common)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def report(outcomes: list[tuple[int, str, str, Any]], options: argparse.Namespace) -> None:
    """Print the table; a whole run is written to the results."""
    if options.begin or options.count < COUNT:
        print(table(outcomes))
        return
    text = (
        f"# {options.count:,} mutations of real articles through the import\n\n"
        f"JATS of PMC, eLife and PLOS, and PubMed XML; seed {options.seed}. A failure is anything but "
        "papers, deletions, members passed over and rejections with a name. Seconds (of the processor) and "
        "memory (by which the process grew) are of the worst mutation. "
        "Made by `python benchmarks/fuzz_articles.py`.\n\n"
    )
    failed = sum(bool(outcome["problems"]) for *_, outcome in outcomes)
    result = {
        "mutations": len(outcomes),
        "failed": failed,
        "versions": {name: version(name) for name in ("lxml", "pyarrow")},
    }
    write("fuzz_articles", result, text + table(outcomes))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA / "formats", help="folder of articles to mutate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from", dest="begin", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument(
        "--failing", type=Path, default=Path("fuzz-failing"), help="folder for the inputs that fail"
    )
    options = parser.parse_args()
    data = read_data(options.data)
    if not data:
        parser.error(f"no .xml or .nxml file under {options.data}")
    outcomes = []
    for answer in run(data, options.seed, range(options.begin, options.begin + options.count)):
        outcomes.append(answer)
        number, names, container, outcome = answer
        if outcome["problems"]:
            mutated = mutation(data, options.seed, number)
            folder = options.failing / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / mutated.file).write_bytes(mutated.content)
            note = {"number": number, "names": names, "container": container, "base": mutated.base, **outcome}
            (folder / "outcome.json").write_text(json.dumps(note, indent=1))
            print(
                f"{number} {names} in {container} of {mutated.base}: {outcome['problems']}", file=sys.stderr
            )
        if len(outcomes) % 500 == 0:
            print(f"{number}: {len(outcomes)} done", file=sys.stderr)
    report(outcomes, options)
    return int(any(outcome["problems"] for *_, outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
