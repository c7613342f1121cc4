"""Break tables, YAML files, service answers, folders, indexes and models, and see that each is read or named.

    python benchmarks/fuzz_inputs.py                      # 10,000 mutations, some minutes; writes the result
    python benchmarks/fuzz_inputs.py --kind yaml --from 4000 --count 50

Mutation number N of a kind is always the same one for the same seed. It is foreseen if it is read, or ends in
an error of the package whose message is one line; anything else (another exception, several lines, a crash,
more than `SECONDS`) is a failure. The mutations run in a process of their own, so that one that hangs or
kills it is a failure too and the rest goes on. Articles have a benchmark of their own (`fuzz_articles.py`).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path

from fuzz_kinds import KINDS, mutation
from measuring import write

SECONDS = 20.0
_HANGS_AFTER = 60.0
COUNTS = {"table": 3000, "yaml": 2500, "answer": 2500, "folder": 900, "index": 600, "model": 500}
"""Mutations of each kind: 10,000."""


@dataclass(frozen=True)
class Outcome:
    """What came of one mutation: `read`, `refused` or `not foreseen`, and the message."""

    verdict: str
    message: str = ""


def attempt(kind: str, seed: int, number: int) -> Outcome:
    """The outcome of a mutation."""
    from sentence_experts.errors import SentenceExpertsError

    began = time.process_time()
    with tempfile.TemporaryDirectory() as name:
        try:
            mutated = mutation(kind, seed, number, Path(name))
            KINDS[kind].read(mutated)
            outcome = Outcome("read")
        except SentenceExpertsError as error:
            lines = str(error).strip().splitlines()
            outcome = Outcome("refused" if len(lines) == 1 else "not foreseen", str(error)[:300])
        except BaseException as error:
            outcome = Outcome("not foreseen", f"{type(error).__name__}: {error}"[:300])
    seconds = time.process_time() - began
    return outcome if seconds < SECONDS else Outcome("not foreseen", f"{seconds:.0f} s")


def _work(kind: str, seed: int, numbers: range, answers: Connection) -> None:
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - what the readers log
    for number in numbers:
        answers.send((number, attempt(kind, seed, number)))


def run(kind: str, seed: int, numbers: range) -> Iterator[tuple[int, Outcome]]:
    """Every mutation's number and outcome; a process that hangs or dies is replaced."""
    context = multiprocessing.get_context("spawn")
    begin = numbers.start
    while begin < numbers.stop:
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(kind, seed, range(begin, numbers.stop), sending))
        process.start()
        sending.close()
        try:
            while begin < numbers.stop and receiving.poll(_HANGS_AFTER):
                number, outcome = receiving.recv()
                begin = number + 1
                yield number, outcome
        except EOFError:
            pass
        if begin < numbers.stop:
            died = "hangs" if process.is_alive() else f"the process died ({process.exitcode})"
            yield begin, Outcome("not foreseen", died)
            begin += 1
        process.kill()
        process.join()


def table(outcomes: dict[str, Counter[str]]) -> str:
    """What came of each kind, as Markdown."""
    lines = ["| kind | what is broken | mutations | read | refused in one line | not foreseen |",
             "|---|---|---:|---:|---:|---:|"]  # fmt: skip
    whole: Counter[str] = Counter()
    for kind, found in outcomes.items():
        whole += found
        cells = (kind, KINDS[kind].about, *_cells(found))
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, f"| all | | {' | '.join(map(str, _cells(whole)))} |"])


def _cells(found: Counter[str]) -> tuple[int, ...]:
    return found.total(), *(found[verdict] for verdict in ("read", "refused", "not foreseen"))


def report(outcomes: dict[str, Counter[str]], seed: int, seconds: float) -> None:
    """Write the result of a whole run."""
    hardware = (
        f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}"
    )
    text = (
        f"# {sum(COUNTS.values()):,} mutations of tables, YAML, service answers, folders and models\n\n"
        f'Seed {seed}; {hardware}; {seconds:.0f} s. "Not foreseen" is any exception '
        "that is not the package's own, a message of several lines, a crash, or more than "
        f"{SECONDS:.0f} s. Made by `python benchmarks/fuzz_inputs.py`.\n\n"
    )
    packages = ("pyarrow", "pydantic", "PyYAML", "lxml", "torch", "transformers")
    result = {
        "mutations": {kind: dict(found) for kind, found in outcomes.items()},
        "not_foreseen": sum(found["not foreseen"] for found in outcomes.values()),
        "seed": seed,
        "hardware": hardware,
        "versions": {name: version(name) for name in packages},
    }
    write("fuzz_inputs", result, text + table(outcomes))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kind", choices=sorted(KINDS), help="only this kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from", dest="begin", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--count", type=int, help="mutations of each kind")
    options = parser.parse_args()
    outcomes: dict[str, Counter[str]] = {}
    began = time.monotonic()
    for kind in [options.kind] if options.kind else COUNTS:
        found = outcomes.setdefault(kind, Counter())
        count = options.count or COUNTS[kind]
        for number, outcome in run(kind, options.seed, range(options.begin, options.begin + count)):
            found[outcome.verdict] += 1
            if outcome.verdict == "not foreseen":
                print(f"{kind} {number}: {outcome.message}", file=sys.stderr)
        print(f"{kind}: {dict(found)}", file=sys.stderr)
    failed = sum(found["not foreseen"] for found in outcomes.values())
    if options.kind or options.begin or options.count:
        print(table(outcomes))
        return int(failed > 0)
    report(outcomes, options.seed, time.monotonic() - began)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
