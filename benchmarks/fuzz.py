"""Break articles, tables, YAML, service answers, folders, indexes and models: each must be read or refused.

    python benchmarks/fuzz.py                                    # 20,000 mutations, some minutes
    python benchmarks/fuzz.py --kind yaml --begin 4000 --count 50
    python benchmarks/fuzz.py --kind article --data FOLDER       # other articles than the shared ones

Mutation number N of a kind is always the same one for the same seed and data. It is foreseen if it is read,
or ends in an error of the package whose message is one line; anything else (another exception, several lines,
a crash, more than `SECONDS` or `MEMORY`) is a failure. The mutations run in another process, so that one that
hangs or kills it is a failure too and the rest goes on.
"""

from __future__ import annotations

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
from typing import Any, NamedTuple

import fuzz_kinds
from fuzz_kinds import KINDS
from measuring import options, verdicts, versions, write

SECONDS = 20.0
"""Processor time for one mutation; the slowest, 100,000 empty articles in one set, takes some seconds."""
MEMORY = 1 << 30
"""Bytes by which a mutation may raise the peak of the process that reads it."""
_HANGS_AFTER = 90.0
READ, REFUSED, FAILED = "read", "refused in one line", "not foreseen"
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


def main() -> int:
    given = options(__doc__, kind=list(KINDS), data=fuzz_kinds.ARTICLES, seed=1, begin=0, count=int)
    outcomes = []
    for kind in given.kind:
        numbers = range(given.begin, given.begin + (given.count or KINDS[kind].mutations))
        for number, outcome in run(kind, given.data, given.seed, numbers):
            outcomes.append(outcome)
            if outcome.verdict == FAILED:
                print(f"{kind} {number}: {outcome.message}", file=sys.stderr)
        print(f"{kind}: {len(numbers):,} done", file=sys.stderr)
    costs: dict[str, Any] = {
        "slowest, s": lambda own: f"{max(each.seconds for each in own):.2f}",
        "memory, MB": lambda own: max(each.grown for each in own) >> 20,
    }
    shown = verdicts(outcomes, ("mutations", READ, REFUSED, FAILED), **costs)
    if given.begin or given.count or len(given.kind) < len(KINDS):
        print(shown)
    else:
        about = "\n".join(f"- {name}: {kind.about}" for name, kind in KINDS.items())
        text = (
            f'# {len(outcomes):,} mutations of inputs\n\nSeed {given.seed}. "{FAILED}" is any exception that '
            f"is not the package's own, a message of several lines, a crash, more than {SECONDS:.0f} s or "
            f"{MEMORY >> 20} MB. Made by `python benchmarks/fuzz.py`.\n\n{about}\n\n{shown}"
        )
        write("fuzz", {"seed": given.seed, "versions": versions(*PACKAGES)}, text)
    return int(any(outcome.verdict == FAILED for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
