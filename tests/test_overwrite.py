"""Whatever ends a verb early, the result that it was to replace is there as before, to the bit."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import sentence_experts as package
from helpers.example_folder import fill
from helpers.fresh_process import fresh
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError

TEXTS = [f"Drought in rice, study {number}" for number in range(12)]


class Verb(NamedTuple):
    """A call that writes, by what it reads and where it writes; the other arguments are given."""

    reads: str
    call: Callable[..., Any]
    out: str = "out"


def _evaluate(model: str, out: str, **more: Any) -> Any:
    return package.evaluate({"m": model}, "pairs", out=out, baseline="tfidf", bootstrap=0, **more)


SPACE = {"batch_size": {"type": "int", "low": 4, "high": 6}}
VERBS = {
    "import_corpus": Verb(
        "articles", lambda read, out, **more: package.import_corpus([read], out, workers=1, **more)
    ),
    "compile_pairs": Verb(
        "corpus",
        lambda read, out, **more: package.compile_pairs(
            read, out=out, domains="domains.yaml", unit="title", max_eval_per_domain=16, **more
        ),
    ),
    "import_pairs": Verb("rows.csv", package.import_pairs),
    "compile_tasks": Verb(
        "tasks.yaml", lambda read, out, **more: package.compile_tasks(read, out=out, **more)
    ),
    "audit": Verb("pairs", lambda read, out, **more: package.audit((), read, out=out, bootstrap=0, **more)),
    "extend": Verb("base", lambda read, out, **more: package.extend(read, ["copd", "cvd"], out=out, **more)),
    "add_route": Verb(
        "model", lambda read, out, **more: package.add_route(read, "botany", out=out, **more)
    ),
    "drop_route": Verb(
        "model", lambda read, out, **more: package.drop_route(read, "genomics", out=out, **more)
    ),
    "export": Verb("model", lambda read, out, **more: package.export(read, out, route="genomics", **more)),
    "export_graph": Verb(
        "model", lambda read, out, **more: package.export(read, out, format="onnx", int8=TEXTS * 4, **more)
    ),
    "train": Verb(
        "model",
        lambda read, out, **more: package.train(read, "pairs", out=out, max_steps=2, batch_size=4, **more),
    ),
    "fit": Verb(
        "labelled.jsonl",
        lambda read, out, **more: package.fit("base", read, out=out, by=["topic"], steps=2, **more),
    ),
    "tune": Verb(
        "model",
        lambda read, out, **more: package.tune(
            read, "pairs", out=out, trials=1, max_steps=2, eval_steps=2, space=SPACE, **more
        ),
    ),
    "evaluate": Verb("model", _evaluate),
    "similarity": Verb("model", lambda read, out, **more: package.similarity(read, TEXTS, out=out, **more)),
    "encode": Verb(
        "texts.txt",
        lambda read, out, **more: package.encode(
            "model", read, out=out, route="genomics", precision="float16", **more
        ),
        "out.npy",
    ),
    "encode_folder": Verb(
        "rows.jsonl",
        lambda read, out, **more: package.encode(
            "model", read, out=out, route="genomics", column="text", **more
        ),
    ),
    "make_embedder": Verb("language-model", package.make_embedder),
    "analyse": Verb(
        "language-model",
        lambda read, out, **more: package.analyse(
            read, "sts.csv", out=out, prompts=["none"], clusters=2, bootstrap=0, **more
        ),
    ),
}  # fmt: skip
# One of each way to write: many tables, one file, a model, a report. The others end in the same ways.
QUICK = {"import_corpus", "add_route", "evaluate", "encode"}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    folder = tmp_path_factory.mktemp("overwrite")
    fill(folder, minilm)
    rows = [f"rice {number},wheat {number % 7},{number % 5}" for number in range(20)]
    (folder / "sts.csv").write_text("sentence1,sentence2,score\n" + "\n".join(rows))
    (folder / "rows.csv").write_text("anchor,positive\n" + "\n".join(f"q {n},a {n}" for n in range(20)))
    lines = [f'{{"text": "{text}", "label": "{number % 2}"}}\n' for number, text in enumerate(TEXTS * 4)]
    (folder / "rows.jsonl").write_text("".join(lines))
    labelled = [f'{{"text": "{hex(n**5)} {n % 3}", "topic": "{n % 3}"}}\n' for n in range(90)]
    (folder / "labelled.jsonl").write_text("".join(labelled))
    task = "tasks:\n  topic:\n    kind: classification\n    datasets:\n      rows: {file: rows.jsonl}\n"
    (folder / "tasks.yaml").write_text(task)
    return folder


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in VERBS])
def verb(
    request: pytest.FixtureRequest, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Verb:
    """A verb whose result is in its place, in the working directory."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    verb = VERBS[request.param]
    verb.call(verb.reads, verb.out)
    return verb


def state(out: str) -> dict[str, Any]:
    """The files of a result: their bytes, and which files they are. Hidden ones and caches aside.

    A new file may get the number of one that is gone, so that its time counts too.
    """
    files = [Path(out), *Path(out).rglob("*"), *Path(out).parent.glob(f"{Path(out).stem}.*")]
    return {
        str(file): (file.read_bytes(), file.stat().st_ino, file.stat().st_mtime_ns)
        for file in files
        if file.is_file() and not any(part[0] == "." or part in ("vectors", "states") for part in file.parts)
    }


def full_disk(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.usefixtures("undrawn")
def test_old_result_outlasts_what_fails(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    before = state(verb.out)
    with pytest.raises((SentenceExpertsError, OSError)):
        verb.call("nowhere", verb.out, overwrite=True)
    assert state(verb.out) == before
    shutil.copytree(verb.reads, "read") if Path(verb.reads).is_dir() else shutil.copy(verb.reads, "read")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)  # when all is written, before it takes its place
        with pytest.raises(InputError, match=r"out.*: (the file is larger|no space left)"):
            verb.call(verb.reads, verb.out, overwrite=True)
    assert state(verb.out) == before
    verb.call(verb.reads, verb.out)  # the interrupted run continues, or is not needed
    verb.call(verb.reads, verb.out, overwrite=True)
    after = state(verb.out)
    assert after.keys() == before.keys()
    assert after != before
    left = [file for file in Path().rglob(".*") if file.name.endswith((".tmp", ".old", ".new", ".whole"))]
    assert not left


@pytest.mark.parametrize("inside", ["itself", "a file"])
def test_input_in_the_output_is_refused_first(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    package.import_corpus(["articles"], "out", workers=1)
    before = state("out")
    given = {"papers": "out/papers.parquet"} if inside == "a file" else {"sources": ["out"]}
    with pytest.raises(UsageError, match=r"out.* is read, and is in out, which `overwrite` would replace"):
        package.import_corpus(out="out", overwrite=True, **given)  # type: ignore[arg-type]
    for call in (
        lambda: package.train("out/papers.parquet", "pairs", out="out", overwrite=True),
        lambda: package.evaluate({"m": ["out"]}, "pairs", out="out", overwrite=True),
        lambda: package.compile_pairs("out", out="out", overwrite=True),
        lambda: package.extend("out", ["a"], out="out", overwrite=True),
        lambda: package.export("out", "out", overwrite=True, route="a"),
        lambda: package.encode("model", "out/papers.parquet", out="out", overwrite=True, column="title"),
    ):
        with pytest.raises(UsageError, match="which `overwrite` would replace"):
            call()
    assert state("out") == before


def _work(name: str, folder: str, file_limit: int | None, at_the_end: bool) -> None:
    os.chdir(folder)
    if file_limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    if at_the_end:
        os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    VERBS[name].call(VERBS[name].reads, VERBS[name].out, overwrite=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
def test_old_result_outlasts_kills_and_full_disks(
    name: str, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    verb, dice = VERBS[name], random.Random(name)
    verb.call(verb.reads, verb.out)
    before = state(verb.out)
    for limit, at_the_end in ((0, False), (3000, False), (None, True), (None, False), (None, False)):
        child = fresh().Process(target=_work, args=(name, str(tmp_path), limit, at_the_end))
        child.start()
        if limit is None and not at_the_end:
            time.sleep(dice.uniform(0.1, 4))
            child.kill()
        child.join()
        after = state(verb.out)
        if child.exitcode and after != before:  # killed when all was there
            assert limit is None
            assert not at_the_end
            if after.keys() != before.keys():  # between the last renames: the same command completes it
                verb.call(verb.reads, verb.out, overwrite=True)
                after = state(verb.out)
            assert after.keys() == before.keys()
            assert all(after[name][1:] != before[name][1:] for name in before), name
        before = after
    verb.call(verb.reads, verb.out)
    assert state(verb.out).keys() == before.keys()
