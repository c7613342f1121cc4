"""Random verbs, killed, run twice at once, on a full disk, or on damaged inputs: is anything lost?

Each trial disturbs one command of the command line in a folder of its own, and then gives the same command
again, undisturbed. It must end with the files of the undisturbed run, or refuse by naming what is wrong.
Commands run in processes that are forked from this one, which has imported everything, and die by SIGKILL.

    python benchmarks/chaos.py --trials 200      # about 40 minutes on two cores
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from chaos_commands import VERBS, Verb, finish, import_all, prepare, run, start, with_sources

DISTURBANCES = (
    "kill",
    "two at once",
    "two of different settings",
    "full disk",
    "damaged input",
    "damaged parts",
)
# What stands in an error that names what is wrong.
NAMED = (
    "changed since", "missing", "damaged", "cannot be", "not finished", "in use", "no space", "not valid",
    "was written", "larger than a limit", "no such", "lacks", "is no ", "not as it", "in the way",
    "No such file",
)  # fmt: skip
FULL = ("no space", "larger than a limit")
IGNORED = ("checkpoints", "logs", "vectors", "report.html", "rejected.jsonl")
VARYING = ("made_from.json", "index.json", ".npy.json")  # names of this machine, times


@dataclass
class Outcome:
    """What became of a trial: `survived`, `refused` or `lost`, with what was said."""

    verb: str
    disturbance: str
    result: str
    detail: str = ""
    seconds: float = 0.0
    leftovers: list[str] = field(default_factory=list)


# ---- trials --------------------------------------------------------------------------------------


class Chaos:
    """Trials in a world of undisturbed results."""

    def __init__(self, world: Path, seed: int, small_disk: Path | None = None) -> None:
        """`small_disk` is an empty folder on a disk of a few hundred kilobytes, if there is one."""
        self.world = world
        self.dice = random.Random(seed)
        self.small_disk = small_disk
        self.seconds: dict[str, float] = {}

    def trial(self, names: Sequence[str], disturbance: str | None = None) -> Outcome:
        """Disturb one of the commands, give it again, and compare."""
        name = self.dice.choice(names)
        disturbance = disturbance or self.dice.choice(DISTURBANCES)
        verb = VERBS[name]
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="chaos-", dir=self.world.parent) as temporary:
            folder = Path(temporary)
            for each in verb.reads:
                copy(self.world / each, folder / each)
            if name == "search":
                shutil.rmtree(folder / "corpus" / ".vectors", ignore_errors=True)
            try:
                outcome = self._disturbed(name, verb, disturbance, folder)
            except Exception as error:  # of this program: neither survived nor refused
                outcome = Outcome(name, disturbance, "lost", f"{type(error).__name__}: {error}")
        outcome.seconds = time.monotonic() - began
        return outcome

    def _disturbed(self, name: str, verb: Verb, disturbance: str, folder: Path) -> Outcome:
        refused = ""
        if disturbance == "kill":
            for _ in range(self.dice.randint(1, 3)):
                self._killed(name, verb, folder)
        elif disturbance == "damaged parts":
            self._killed(name, verb, folder)
            self._damage([folder / verb.makes, *folder.glob(f".{Path(verb.makes).name}.parts")], folder)
        elif disturbance == "damaged input":
            made = [
                each
                for each in verb.reads
                if each in {other.makes for other in VERBS.values()} or each == "base"
            ]
            damaged = self._damage([folder / each for each in made if each != "base"], folder)
            status, said = run(verb, folder)
            if status and damaged is not None:
                refused = said
                if not names_it(said):
                    return Outcome(name, disturbance, "lost", last_line(said))
                copy(self.world / damaged, folder / damaged)
        elif disturbance == "full disk":
            status, said = self._on_full_disk(verb, folder)
            if status and not names_it(said, FULL):
                return Outcome(name, disturbance, "lost", last_line(said))
            refused = said if status else ""
        else:
            other = verb.other if "different" in disturbance else ""
            first = start(verb, folder)
            time.sleep(self.dice.uniform(0, self._usual(name) / 2))
            second = start(verb, folder, other=other)
            results = [finish(*first), finish(*second)]
            odd = [said for status, said in results if status and not names_it(said)]
            if odd and not (other and "was " in odd[0]):
                return Outcome(name, disturbance, "lost", last_line(odd[0]))
            if results[0][0] and not results[1][0] and other:
                # The second came first: its result stands, and this command is refused until told otherwise.
                status, said = run(verb, folder)
                kind = "refused" if status and "another" in said else "lost"
                return Outcome(name, disturbance, kind, last_line(said))
        return self._repaired(name, verb, disturbance, folder, refused)

    def _repaired(self, name: str, verb: Verb, disturbance: str, folder: Path, refused: str) -> Outcome:
        """Give the same command again, as its messages say also with --overwrite; compare."""
        began = time.monotonic()
        status, said = run(verb, folder)
        if not status:
            self.seconds.setdefault(name, time.monotonic() - began)
        elif names_it(said) and "--overwrite" in said:
            refused = said
            status, said = run(verb, folder, other="--overwrite")
        if status and names_it(said) and "move it away" in said:
            shutil.rmtree(folder / verb.makes)
            status, said = run(verb, folder)
        if status:
            return Outcome(name, disturbance, "lost", last_line(said))
        different = difference(self.world / verb.makes, folder / verb.makes)
        if different:
            return Outcome(name, disturbance, "lost", f"{different} differs")
        left = [path.name for path in leftovers(folder)]
        kind = "refused" if refused else "survived"
        return Outcome(name, disturbance, kind, last_line(refused), leftovers=left)

    def _usual(self, name: str) -> float:
        return self.seconds.get(name, 4.0)

    def _killed(self, name: str, verb: Verb, folder: Path) -> None:
        finish(*start(verb, folder), kill_after=self.dice.uniform(0.02, 1.1 * self._usual(name)))

    def _damage(self, places: list[Path], folder: Path) -> str | None:
        """Truncate a file in one of the places, or flip one of its bits; its name."""
        files = sorted(
            file
            for place in places
            for file in ([place] if place.is_file() else place.rglob("*"))
            if file.is_file() and file.stat().st_size and ".lock" not in file.name
            and file.suffix not in (".md", ".html")
        )  # fmt: skip
        if not files:
            return None
        file = self.dice.choice(files)
        content = bytearray(file.read_bytes())
        place = self.dice.randrange(len(content))
        if self.dice.random() < 0.5:
            file.write_bytes(content[:place])
        else:
            content[place] ^= 1 << self.dice.randrange(8)
            file.write_bytes(content)
        return file.relative_to(folder).as_posix()

    def _on_full_disk(self, verb: Verb, folder: Path) -> tuple[int, str]:
        if self.small_disk is None or self.dice.random() < 0.3:
            return run(verb, folder, file_limit=self.dice.choice([0, 300, 3000, 30_000]))
        for each in self.small_disk.iterdir():
            shutil.rmtree(each)
        out = self.small_disk / "out"
        out.mkdir()
        disk = shutil.disk_usage(out)
        (out / "ballast").write_bytes(
            b"0" * self.dice.randrange(int(disk.free * 0.5), max(int(disk.free) - 4096, 1))
        )
        there = out / Path(verb.makes).name
        if verb.makes.startswith("corpus/"):
            return run(verb, folder, file_limit=3000)
        at = Verb(
            verb.command.replace("{" + verb.makes + "}", str(there)), verb.reads, verb.makes, verb.other
        )
        return run(at, folder)


def copy(source: Path, target: Path) -> None:
    """Copy a file or folder."""
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def names_it(said: str, words: Sequence[str] = NAMED) -> bool:
    """Whether the last line is an error in the user's terms, with one of these words."""
    line = last_line(said)
    return line.startswith("error: ") and "(unexpected" not in line and any(each in line for each in words)


def last_line(said: str) -> str:
    """The last line of what a command said."""
    lines = said.strip().splitlines()
    return lines[-1] if lines else ""


def difference(expected: Path, found: Path) -> str | None:
    """The first file that is not as in the undisturbed result."""
    if expected.is_file():
        return None if found.is_file() and found.read_bytes() == expected.read_bytes() else expected.name
    # A search with other settings adds vectors of its own.
    folders = (expected,) if expected.name == ".vectors" else (expected, found)
    names = {name for folder in folders for name in contents(folder)}
    for name in sorted(names):
        one, other = expected / name, found / name
        if not one.is_file() or not other.is_file():
            return name
        if Path(name).name not in VARYING and one.read_bytes() != other.read_bytes():
            return name
    return None


def contents(folder: Path) -> Iterator[str]:
    """The files that must be the same."""
    for file in folder.rglob("*"):
        name = file.relative_to(folder)
        if file.is_file() and not any(part in IGNORED or part.startswith(".") for part in name.parts):
            yield name.as_posix()


def leftovers(folder: Path) -> list[Path]:
    """Temporary files that nobody removed."""
    endings = (".tmp", ".old", ".parts", ".partial", ".new", ".whole")
    return [
        path for path in folder.rglob(".*") if path.name.endswith(endings) or ".scratch" in path.name
    ]  # fmt: skip


# ---- the benchmark -------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(size: str = "600k") -> Iterator[Path | None]:
    """A disk that is soon full, where this process may mount one."""
    with tempfile.TemporaryDirectory(prefix="chaos-disk-") as temporary:
        mounted = os.system(f"mount -t tmpfs -o size={size} tmpfs {temporary} 2>/dev/null") == 0
        try:
            yield Path(temporary) if mounted else None
        finally:
            if mounted:
                os.system(f"umount {temporary}")


def main() -> None:
    """Run the trials and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=1e6, help="Time after which no trial begins")
    parser.add_argument("--processes", type=int, default=1, help="Number of trials at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verb", choices=VERBS, action="append", help="All by default; can be repeated")
    parser.add_argument("--disturbance", choices=DISTURBANCES)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    from sentence_experts.storage import read_json

    names = with_sources(options.verb or VERBS)
    import_all(names)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary, small_disk() as disk:
        world = Path(temporary) / "world"
        world.mkdir()
        prepare(world, names)
        files = [Path(temporary) / f"{number}.json" for number in range(options.processes)]
        children = []
        for number, file in enumerate(files):
            if not (child := os.fork()):
                trials = (options.trials + number) // options.processes
                in_one_process(
                    Chaos(world, options.seed + number, disk if number == 0 else None), trials, options, file
                )
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        outcomes = [Outcome(**each) for file in files for each in read_json(file)]
    write_results(outcomes, options, time.monotonic() - began, disk is not None)


def in_one_process(chaos: Chaos, trials: int, options: argparse.Namespace, file: Path) -> None:
    """Do some of the trials, and write their outcomes to a file."""
    from sentence_experts.storage import write_json

    outcomes = []
    end = time.monotonic() + 60 * options.minutes
    for _ in range(trials):
        if time.monotonic() > end:
            break
        outcomes.append(chaos.trial(options.verb or list(VERBS), options.disturbance))
        print(outcomes[-1], flush=True)
        write_json(file, [vars(each) for each in outcomes])


def write_results(outcomes: list[Outcome], options: argparse.Namespace, seconds: float, disk: bool) -> None:
    """Write the table and every trial."""
    from measuring import hardware
    from sentence_experts.storage import write_json, write_text

    lines = ["| | tried | survived | refused | lost |", "|---|---:|---:|---:|---:|"]
    for title, key in (("command", "verb"), ("disturbance", "disturbance")):
        for value in dict.fromkeys(
            getattr(each, key) for each in sorted(outcomes, key=lambda one: getattr(one, key))
        ):
            own = Counter(each.result for each in outcomes if getattr(each, key) == value)
            lines.append(
                f"| {title}: {value} | {own.total()} | {own['survived']} | {own['refused']} | {own['lost']} |"
            )
    every = Counter(each.result for each in outcomes)
    lines.append(f"| all | {every.total()} | {every['survived']} | {every['refused']} | {every['lost']} |")
    left = sum(bool(each.leftovers) for each in outcomes)
    text = (
        f"# Is anything lost?\n\nMade by `python benchmarks/chaos.py --trials {options.trials} --seed "
        f"{options.seed}`; {hardware()}; {seconds / 60:.0f} minutes.\n\n"
        "survived: the same command again gave the bytes of the undisturbed run. refused: a command named "
        "what was wrong in one line, and after that was put right the "
        f"bytes were the same. lost: neither. Trials that left temporary files behind: {left}.\n"
        f"Full disk: {'a disk of 600 kB, or ' if disk else ''}a limit on the size of files.\n\n"
        + "\n".join(lines)
        + "\n"
    )
    write_text(options.out / "chaos.md", text)
    plain = [{**vars(each), "detail": re.sub(r"/tmp/[\w-]+/?", "", each.detail)} for each in outcomes]
    write_json(options.out / "chaos.json", plain)
    print(text)


if __name__ == "__main__":
    main()
