"""Break articles, tables, YAML, service answers, folders, indexes and models: each must be read or refused.

    python benchmarks/fuzz.py                                    # 20,000 mutations, some minutes
    python benchmarks/fuzz.py --kind yaml --from 4000 --count 50
    python benchmarks/fuzz.py --kind article --data FOLDER       # other articles than the shared ones

Mutation number N of a kind is always the same one for the same seed and data. It is foreseen if it is read,
or ends in an error of the package whose message is one line; anything else (another exception, several lines,
a crash, more than `SECONDS` or `MEMORY`) is a failure. The mutations run in another process, so that one that
hangs or kills it is a failure too and the rest goes on.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import NamedTuple

import fuzz_kinds
from fuzz_kinds import KINDS
from measuring import table, versions, write

SECONDS = 20.0
"""Of processor time for one mutation; the slowest, 100,000 empty articles in one set, takes some seconds."""
MEMORY = 1 << 30
"""Bytes by which a mutation may raise the peak of the process that reads it."""
_HANGS_AFTER = 90.0
READ, REFUSED, FAILED = "read", "refused", "not foreseen"
PACKAGES = ("pyarrow", "pydantic", "PyYAML", "lxml")


class Outcome(NamedTuple):
    """The verdict on one mutation and its message; the groups that it counts in; its cost."""

    verdict: str
    message: str = ""
    groups: Sequence[str] = ()
    seconds: float = 0.0
    grown: int = 0


def attempt(kind: str, seed: int, number: int) -> Outcome:
    """Make and read a mutation."""
    from sentence_experts.errors import SentenceExpertsError

    peak, began = _peak(), time.process_time()
    groups: Sequence[str] = (kind,)
    with tempfile.TemporaryDirectory() as folder:
        try:
            random = Random(f"{seed}-{number}" if kind == "article" else f"{seed}-{kind}-{number}")
            made, *names = KINDS[kind].make(random, Path(folder))
            groups = names or groups
            refusal = KINDS[kind].read(made) or ""
            verdict = REFUSED if refusal else READ
        except SentenceExpertsError as error:
            refusal = str(error)[:300]
            verdict = REFUSED if len(refusal.strip().splitlines()) == 1 else FAILED
        except BaseException as error:
            verdict, refusal = FAILED, f"{type(error).__name__}: {error}"[:300]
    seconds, grown = time.process_time() - began, _peak() - peak
    if seconds > SECONDS or grown > MEMORY:
        verdict, refusal = FAILED, f"{seconds:.0f} s, {grown >> 20} MB"
    return Outcome(verdict, refusal, groups, seconds, grown)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _work(kind: str, data: Path, seed: int, numbers: range, answers: Connection) -> None:
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - what the readers log
    fuzz_kinds.ARTICLES = data
    for number in numbers:
        answers.send((number, attempt(kind, seed, number)))


def run(kind: str, data: Path, seed: int, numbers: range) -> Iterator[tuple[int, Outcome]]:
    """Yield every mutation's number and outcome; a process that hangs or dies is replaced."""
    context = multiprocessing.get_context("spawn")
    begin = numbers.start
    while begin < numbers.stop:
        receiving, sending = context.Pipe(duplex=False)
        arguments = (kind, data, seed, range(begin, numbers.stop), sending)
        process = context.Process(target=_work, args=arguments)
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
            yield begin, Outcome(FAILED, died, (kind,))
            begin += 1
        process.kill()
        process.join()


def rows(outcomes: Sequence[Outcome]) -> dict[str, list[str]]:
    """Return the counts and the highest cost of each group, and of all."""
    groups = dict.fromkeys(name for outcome in outcomes for name in outcome.groups)
    found = {name: [outcome for outcome in outcomes if name in outcome.groups] for name in groups}
    return {
        name: [
            f"{len(own):,}",
            *(f"{sum(each.verdict == verdict for each in own):,}" for verdict in (READ, REFUSED, FAILED)),
            f"{max(each.seconds for each in own):.2f}",
            str(max(each.grown for each in own) >> 20),
        ]
        for name, own in {**found, "all": outcomes}.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kind", choices=sorted(KINDS), help="only this kind")
    parser.add_argument("--data", type=Path, default=fuzz_kinds.ARTICLES, help="folder of articles to mutate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from", dest="begin", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--count", type=int, help="mutations of each kind")
    given = parser.parse_args()
    outcomes = []
    for kind in [given.kind] if given.kind else KINDS:
        numbers = range(given.begin, given.begin + (given.count or KINDS[kind].mutations))
        for number, outcome in run(kind, given.data, given.seed, numbers):
            outcomes.append(outcome)
            if outcome.verdict == FAILED:
                print(f"{kind} {number}: {outcome.message}", file=sys.stderr)
        print(f"{kind}: {len(numbers):,} done", file=sys.stderr)
    head = ["", "mutations", READ, "refused in one line", FAILED, "slowest, s", "memory, MB"]
    found = rows(outcomes)
    shown = table(head, [[name, *cells] for name, cells in found.items()])
    if given.kind or given.begin or given.count:
        print(shown)
    else:
        about = "\n".join(f"- {name}: {kind.about}" for name, kind in KINDS.items())
        text = (
            f'# {len(outcomes):,} mutations of inputs\n\nSeed {given.seed}. "{FAILED}" is any exception that '
            f"is not the package's own, a message of several lines, a crash, more than {SECONDS:.0f} s or "
            f"{MEMORY >> 20} MB. Made by `python benchmarks/fuzz.py`.\n\n{about}\n\n{shown}"
        )
        write("fuzz", {"seed": given.seed, "rows": found, "versions": versions(*PACKAGES)}, text)
    return int(any(outcome.verdict == FAILED for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
