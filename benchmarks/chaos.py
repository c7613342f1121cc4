"""Random verbs, killed, run twice at once, on a full disk, or on damaged inputs: is anything lost?

Each trial disturbs one command of the command line in a separate folder, and then gives the same command
again, undisturbed. It must end with the files of the undisturbed run, or refuse by naming what is wrong.
Commands run in processes that are forked from this one, which has imported everything, and die by SIGKILL.

    python benchmarks/chaos.py --trials 200      # about 15 minutes on two cores
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from chaos_commands import VERBS, Verb, finish, import_all, prepare, run, start, with_sources
from measuring import RESULTS, options, verdicts, write

KILL, TWO, TWO_SETTINGS, DISK, INPUT, PARTS = DISTURBANCES = (
    "kill", "two at once", "two of different settings", "full disk", "damaged input", "damaged parts",
)  # fmt: skip
SURVIVED, REFUSED, LOST = "survived", "refused", "lost"
# Words of an error that names what is wrong.
FULL = ("no space", "larger than a limit")
NAMED = (
    *FULL, "changed since", "missing", "damaged", "cannot be", "not finished", "in use", "not valid",
    "was written", "no such", "lacks", "is no ", "not as it", "in the way", "No such file",
)  # fmt: skip
IGNORED = ("checkpoints", "logs", "vectors", "report.html", "rejected.jsonl")
VARYING = ("made_from.json", "index.json", ".npy.json")  # names of this machine, times
LEFT = (".tmp", ".old", ".parts", ".partial", ".new", ".whole")
USUAL = 4.0  # seconds of a command, until it has run


class Outcome(NamedTuple):
    """Outcome of a trial, in one of its groups (command, disturbance), and the error's last line."""

    verdict: str
    groups: tuple[str, ...]
    message: str = ""
    leftovers: tuple[str, ...] = ()


class LostError(Exception):
    """A command that neither survived nor refused."""


class Chaos:
    """Trials in a world of undisturbed results."""

    def __init__(self, world: Path, seed: int, small_disk: Path | None = None) -> None:
        """`small_disk` is an empty folder on a disk of a few hundred kilobytes, if there is one."""
        self.world, self.small_disk = world, small_disk
        self.dice = random.Random(seed)
        self.seconds: dict[str, float] = {}

    def trial(self, names: Sequence[str]) -> Outcome:
        """Disturb one of the commands, give it again, and compare."""
        name, disturbance = self.dice.choice(names), self.dice.choice(DISTURBANCES)
        verb, groups = VERBS[name], (f"command: {name}", f"disturbance: {disturbance}")
        with tempfile.TemporaryDirectory(prefix="chaos-", dir=self.world.parent) as temporary:
            folder = Path(temporary)
            for each in verb.reads:
                copy(self.world / each, folder / each)
            if name == "search":
                shutil.rmtree(folder / "corpus" / ".vectors", ignore_errors=True)
            try:
                refused = self._disturb(name, verb, disturbance, folder)
                if not refused.startswith("other"):
                    refused = self._repair(name, verb, folder) or refused
            except Exception as error:  # of this program too
                return Outcome(LOST, groups, f"{type(error).__name__}: {error}")
            left = [
                path.name
                for path in folder.rglob(".*")
                if path.name.endswith(LEFT) or ".scratch" in path.name
            ]
        return Outcome(REFUSED if refused else SURVIVED, groups, refused, tuple(left))

    def _disturb(self, name: str, verb: Verb, disturbance: str, folder: Path) -> str:
        """Run the command in this way; its refusal, or "" if it did not refuse."""
        if disturbance == KILL:
            for _ in range(self.dice.randint(1, 3)):
                self._kill(name, verb, folder)
        elif disturbance == PARTS:
            self._kill(name, verb, folder)
            self._damage([folder / verb.makes, *folder.glob(f".{Path(verb.makes).name}.parts")], folder)
        elif disturbance == INPUT:
            made = {other.makes for other in VERBS.values()}
            damaged = self._damage([folder / each for each in verb.reads if each in made], folder)
            refused = refusal(*run(verb, folder)) if damaged else ""
            if refused:
                copy(self.world / str(damaged), folder / str(damaged))
            return refused
        elif disturbance == DISK:
            return refusal(*self._on_full_disk(verb, folder), FULL)
        else:
            other = verb.other if disturbance == TWO_SETTINGS else ""
            first = start(verb, folder)
            time.sleep(self.dice.uniform(0, self.seconds.get(name, USUAL) / 2))
            second = start(verb, folder, other=other)
            words = (*NAMED, "was ") if other else NAMED
            results = [finish(*first), finish(*second)]
            for result in results:
                refusal(*result, words)
            if results[0][0] and not results[1][0] and other:
                # The second came first: its result stands, and this command is refused until told otherwise.
                status, said = run(verb, folder)
                if not status:
                    raise LostError("a result of other settings was taken for this one")
                return "other: " + refusal(status, said, ("another",))
        return ""

    def _repair(self, name: str, verb: Verb, folder: Path) -> str:
        """Give the same command again, as its messages say also with --overwrite; compare."""
        refused, began = "", time.monotonic()
        status, said = run(verb, folder)
        if not status:
            self.seconds.setdefault(name, time.monotonic() - began)
        elif "--overwrite" in said:
            refused = refusal(status, said)
            status, said = run(verb, folder, other="--overwrite")
        if status and "move it away" in refusal(status, said):
            shutil.rmtree(folder / verb.makes)
            status, said = run(verb, folder)
        if status:
            raise LostError(last_line(said))
        if different := difference(self.world / verb.makes, folder / verb.makes):
            raise LostError(f"{different} differs")
        return refused

    def _kill(self, name: str, verb: Verb, folder: Path) -> None:
        seconds = self.dice.uniform(0.02, 1.1 * self.seconds.get(name, USUAL))
        finish(*start(verb, folder), kill_after=seconds)

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
            del content[place:]
        else:
            content[place] ^= 1 << self.dice.randrange(8)
        file.write_bytes(content)
        return file.relative_to(folder).as_posix()

    def _on_full_disk(self, verb: Verb, folder: Path) -> tuple[int, str]:
        if self.small_disk is None or verb.makes.startswith("corpus/") or self.dice.random() < 0.3:
            return run(verb, folder, file_limit=self.dice.choice([0, 300, 3000, 30_000]))
        shutil.rmtree(self.small_disk / "out", ignore_errors=True)
        (out := self.small_disk / "out").mkdir()
        free = shutil.disk_usage(out).free
        ballast = self.dice.randrange(free // 2, max(free - 4096, free // 2 + 1))
        (out / "ballast").write_bytes(b"0" * ballast)
        command = verb.command.replace(f"{{{verb.makes}}}", str(out / Path(verb.makes).name))
        return run(verb._replace(command=command), folder)


def copy(source: Path, target: Path) -> None:
    """Copy a file or folder."""
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


def refusal(status: int, said: str, words: Sequence[str] = NAMED) -> str:
    """The error in the user's terms, with one of these words, that a command ended with; "" if it did not.

    Raises:
        LostError: it ended with another one.
    """
    line = last_line(said)
    named = line.startswith("error: ") and "(unexpected" not in line and any(each in line for each in words)
    if status and not named:
        raise LostError(line)
    return line if status else ""


def last_line(said: str) -> str:
    """The last line of what a command said."""
    return (said.strip().splitlines() or [""])[-1]


def difference(expected: Path, found: Path) -> str | None:
    """The first file that is not as in the undisturbed result."""
    if expected.is_file():
        return None if found.is_file() and found.read_bytes() == expected.read_bytes() else expected.name
    # A search with other settings adds other vectors.
    folders = (expected,) if expected.name == ".vectors" else (expected, found)
    for name in sorted({name for folder in folders for name in contents(folder)}):
        one, other = expected / name, found / name
        if not one.is_file() or not other.is_file():
            return name
        if one.name not in VARYING and one.read_bytes() != other.read_bytes():
            return name
    return None


def contents(folder: Path) -> Iterator[str]:
    """The files that must be the same."""
    for file in folder.rglob("*"):
        name = file.relative_to(folder)
        if file.is_file() and not any(part in IGNORED or part.startswith(".") for part in name.parts):
            yield name.as_posix()


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
    given = options(__doc__, trials=200, seed=0, verb=list(VERBS), out=RESULTS)
    names = with_sources(given.verb)
    import_all(names)
    began = time.monotonic()
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary, small_disk() as disk:
        world = Path(temporary) / "world"
        world.mkdir()
        prepare(world, names)
        chaos = Chaos(world, given.seed, disk)
        for _ in range(given.trials):
            outcomes.append(chaos.trial(given.verb))
            print(outcomes[-1], flush=True)
    text = f"""# Is anything lost?

Made by `python benchmarks/chaos.py --trials {given.trials} --seed {given.seed}` in
{(time.monotonic() - began) / 60:.0f} minutes. survived: the same command again gave the bytes of the
undisturbed run. refused: a command named what was wrong in one line, and the bytes were the same after that.
lost: neither. Trials that left temporary files behind: {sum(bool(each.leftovers) for each in outcomes)}.
Full disk: {"a disk of 600 kB, or " if disk else ""}a limit on the size of files.

{verdicts(outcomes, ("tried", SURVIVED, REFUSED, LOST))}"""
    rows = [each._replace(message=re.sub(r"/tmp/[\w-]+/?", "", each.message))._asdict() for each in outcomes]
    write("chaos", {"trials": rows}, text, given.out)


if __name__ == "__main__":
    main()
