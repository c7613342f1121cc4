"""The commands that `chaos.py` disturbs, and the forked processes that they run in."""

from __future__ import annotations

import io
import multiprocessing
import multiprocessing.process
import random
import resource
import shutil
import signal
import sys
from collections.abc import Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # for `helpers`
FORK = multiprocessing.get_context("fork")
Running = tuple[multiprocessing.process.BaseProcess, Connection]
SECONDS = 240  # after which a command counts as hung


class Verb(NamedTuple):
    """A command, what it reads of earlier ones, and what it makes.

    Attributes:
        command: arguments; every name of `reads` and `makes` in braces stands for its path.
        reads: names of the inputs, in the folder of a trial.
        makes: the name of the output.
        other: arguments that make another result.
        imports: modules of the package that it imports.
    """

    command: str
    reads: tuple[str, ...]
    makes: str
    other: str
    imports: tuple[str, ...]


_ENCODING = ("encoding.encode", "models.encoder")
VERBS = {
    "corpus import": Verb(
        "corpus import {articles} --out {corpus} --workers 1", ("articles",), "corpus", "",
        ("corpus.importing", "corpus.simulate"),
    ),
    "pairs": Verb(
        "pairs compile {corpus} --domains {rules.yaml} --relation co-citation --unit title --split paper "
        "--max-train-per-domain 60 --max-eval-per-domain 20 --out {pairs}",
        ("corpus", "rules.yaml"), "pairs", "--seed 1", ("pairs.compile",),
    ),
    "tasks": Verb(
        "tasks {tasks.yaml} --out {tasks}", ("tasks.yaml", "rows.jsonl"), "tasks", "--seed 1",
        ("tasks.compile",),
    ),
    "encode": Verb(
        "encode {base} --input {texts.txt} --chunk-size 8 --device cpu --out {v.npy}", ("base", "texts.txt"),
        "v.npy", "--normalize", _ENCODING,
    ),
    "encode folder": Verb(
        "encode {base} {rows.jsonl} --column text --shard-size 8 --chunk-size 4 --device cpu --out {encoded}",
        ("base", "rows.jsonl"), "encoded", "--normalize", _ENCODING,
    ),
    "search": Verb(
        "search {base} --corpus {corpus} --unit title --json memory", ("base", "corpus"), "corpus/.vectors",
        "--unit abstract", ("retrieval.search", "models.encoder"),
    ),
    "extend": Verb(
        "extend {base} --domains {pairs} --out {model}", ("base", "pairs"), "model", "--normalize",
        ("models.surgery.extend",),
    ),
    "train": Verb(
        "train {model} --pairs {pairs} --max-steps 6 --eval-steps 2 --batch-size 8 --out {run}",
        ("model", "pairs"), "run", "--seed 1", ("training.run",),
    ),
    "evaluate": Verb(
        "evaluate {run}/model --pairs {pairs} --baseline tfidf --bootstrap 0 --device cpu --out {evaluation}",
        ("run", "pairs"), "evaluation", "--split validation",
        ("evaluation.evaluate", "report.write", "report.content"),
    ),
}  # fmt: skip


def import_all(names: Iterable[str]) -> None:
    """Import what these commands need, so that a forked process begins to work at once."""
    import importlib

    from sentence_experts.cli.main import app_with_verbs

    for module in (module for name in names for module in VERBS[name].imports):
        importlib.import_module(f"sentence_experts.{module}")
    app_with_verbs(*{name.split()[0] for name in names})
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)


def with_sources(names: Iterable[str]) -> list[str]:
    """These commands and those that make what they read, in the order of the work."""
    needed = set(names)
    for name in reversed(VERBS):
        if name in needed:
            needed |= {other for other, verb in VERBS.items() if verb.makes in VERBS[name].reads}
    return [name for name in VERBS if name in needed]


def prepare(world: Path, names: Iterable[str], seed: int = 0) -> None:
    """Write what the first commands read, and run these commands once, undisturbed."""
    from helpers.samples import make_tiny_encoder
    from sentence_experts.corpus.simulate import simulate_corpus
    from sentence_experts.models.sources import minilm_path
    from sentence_experts.recipes import RECIPES
    from sentence_experts.storage import write_text

    simulate_corpus(world / "articles", seed, articles=240)
    shutil.copy(RECIPES / "material" / "simulated_domains.yaml", world / "rules.yaml")
    dice = random.Random(seed)
    words = ("rice", "wheat", "neuron", "axon", "sleep", "drought", "root", "spike", "memory", "cell")
    texts = [" ".join(dice.choices(words, k=8)) for _ in range(64)]
    write_text(world / "texts.txt", "".join(f"{text}\n" for text in texts))
    rows = "".join(f'{{"text": "{text}", "label": "{n % 3}"}}\n' for n, text in enumerate(texts))
    write_text(world / "rows.jsonl", rows)
    task = "tasks:\n  topic:\n    kind: classification\n    datasets:\n      rows: {file: rows.jsonl}\n"
    write_text(world / "tasks.yaml", task)
    if any("base" in VERBS[name].reads for name in names):
        making = FORK.Process(target=make_tiny_encoder, args=(world / "base", minilm_path()))
        making.start()  # so that this process stays without threads
        making.join()
    for name in names:
        status, said = run(VERBS[name], world)
        if status:
            raise SystemExit(f"{name}: {said}")


def start(verb: Verb, folder: Path, other: str = "", file_limit: int | None = None) -> Running:
    """Begin a command in a forked process; the connection by which it says how it ended."""
    arguments = [*verb.command.split(), *other.split()]
    for name in (*verb.reads, verb.makes, "corpus"):
        arguments = [word.replace(f"{{{name}}}", str(folder / name)) for word in arguments]
    said, end = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_call, args=(arguments, file_limit, end))
    process.start()
    end.close()
    return process, said


def _call(arguments: list[str], file_limit: int | None, end: Connection) -> None:
    from sentence_experts.cli import console
    from sentence_experts.cli.main import main

    sys.argv = ["sentence-experts", *arguments]
    # The consoles were made for the streams of the parent; a file would count under the limit.
    written = sys.stdout = sys.stderr = console.results.file = console.notes.file = io.StringIO()
    if file_limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    status: object = 0
    try:
        main(arguments)
    except SystemExit as stop:
        status = stop.code or 0
    end.send((status if isinstance(status, int) else 1, written.getvalue()))


def finish(
    process: multiprocessing.process.BaseProcess, said: Connection, kill_after: float = SECONDS
) -> tuple[int, str]:
    """The status of a command (negative: the signal that ended it) and what it said."""
    status, text = 0, ""
    try:
        if said.poll(kill_after):
            status, text = said.recv()
        else:
            process.kill()
    except EOFError:  # it died
        pass
    process.join()
    return process.exitcode or status, text


def run(verb: Verb, folder: Path, **options: Any) -> tuple[int, str]:
    """Run a command to its end."""
    return finish(*start(verb, folder, **options))
