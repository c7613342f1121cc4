"""Every engine writes the bytes of this process, also after workers and drivers were killed."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from helpers.text_tables import text_partitions
from sentence_experts.encoding.encode import encode
from sentence_experts.errors import InputError

SETTINGS = {
    "column": "text", "id_column": "id", "chunk_size": 8, "shard_size": 16, "route": "all",
    "load_config": {"device": "cpu"},
}  # fmt: skip
ENGINES = [
    pytest.param(
        "ray[1]",
        marks=[pytest.mark.slow, pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")],
        id="ray",
    ),
]


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bulk") / "texts"
    text_partitions(folder)
    return folder


@pytest.fixture(scope="module")
def undisturbed(texts, experts_model, tmp_path_factory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("local") / "vectors"
    encode(experts_model, texts, out=out, engine="local[2]", **SETTINGS)
    return bytes_of(out)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_writes_the_bytes_of_this_process(engine, texts, experts_model, undisturbed, tmp_path):
    out = tmp_path / "vectors"
    encode(experts_model, texts, out=out, engine=engine, **SETTINGS)
    assert bytes_of(out) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_an_error_of_a_worker_is_one_of_the_input(engine, texts, experts_model, tmp_path):
    copy = tmp_path / "texts"
    shutil.copytree(texts, copy)
    with open(copy / "b.jsonl", "a", encoding="utf-8") as file:
        file.write('{"id": "last", "text": ["no", "text"]}\n')
    with pytest.raises(InputError, match=r"b\.jsonl: row 34: a text is expected"):
        encode(experts_model, copy, out=tmp_path / "vectors", engine=engine, **SETTINGS)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local[2]", *ENGINES])
def test_killed_at_random_and_continued_it_is_the_same(engine, texts, experts_model, undisturbed, tmp_path):
    out, parts, dice = tmp_path / "vectors", tmp_path / ".vectors.parts", random.Random(0)
    code = (
        "import sys; from sentence_experts.encoding.encode import encode; "
        f"encode(sys.argv[1], sys.argv[2], out=sys.argv[3], engine={engine!r}, **{SETTINGS!r})"
    )
    command = [sys.executable, "-c", code, str(experts_model), str(texts), str(out)]
    for shards in (1, 3):
        driver = subprocess.Popen(command, start_new_session=True)
        while driver.poll() is None and len(list(parts.glob("*.parquet"))) < shards:
            time.sleep(0.01)
        family = psutil.Process(driver.pid).children(recursive=True)
        killed = driver if dice.random() < 0.5 or not family else dice.choice(family)
        os.kill(killed.pid, signal.SIGKILL)
        if killed is not driver:
            driver.wait()
        for each in family:  # what is left of a driver's cluster ends by itself, but not at once
            end(each)
        driver.wait()
    subprocess.run(command, check=True)
    assert bytes_of(out) == undisturbed


def end(process: psutil.Process) -> None:
    """End a process that this test started, if it is still there."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
