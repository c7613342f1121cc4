from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sentence_experts.errors import UsageError
from sentence_experts.storage import InUseError, locked, output

HOLDER = """
import sys, time
from sentence_experts.storage import locked
with locked(sys.argv[1], "hold it"):
    print("held", flush=True)
    time.sleep(60)
"""

INCREMENT = """
import sys
from pathlib import Path
from sentence_experts.storage import locked
file = Path(sys.argv[1])
for _ in range(20):
    with locked(file, "count", wait=True):
        file.write_text(str(int(file.read_text()) + 1))
"""


def start_holder(path: Path) -> subprocess.Popen:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def test_second_process_is_refused_with_name_of_first(tmp_path: Path):
    holder = start_holder(tmp_path / "out")
    refusal = rf"out is in use by process {holder.pid} \(hold it; `-c .*since 2"
    with pytest.raises(InUseError, match=refusal), locked(tmp_path / "out", "write"):
        pass
    with locked(tmp_path / "another", "write"):
        pass
    holder.kill()
    holder.wait()


def test_lock_is_free_after_kill(tmp_path: Path):
    holder = start_holder(tmp_path / "out")
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert (tmp_path / ".out.lock").exists()
    with locked(tmp_path / "out", "write"):
        assert "(write; `" in (tmp_path / ".out.lock").read_text()
    assert list(tmp_path.iterdir()) == []


def test_waiting_gets_the_lock_when_it_is_free(tmp_path: Path):
    order = []

    def wait_for_it() -> None:
        with locked(tmp_path / "cache", "second", wait=True):
            order.append("second")

    thread = threading.Thread(target=wait_for_it)
    with locked(tmp_path / "cache", "first"):
        thread.start()
        time.sleep(0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_many_processes_that_wait_lose_no_update(tmp_path: Path):
    file = tmp_path / "count"
    file.write_text("0")
    processes = [subprocess.Popen([sys.executable, "-c", INCREMENT, file]) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    assert file.read_text() == "80"
    assert [path.name for path in tmp_path.iterdir()] == ["count"]


def test_only_a_shared_output_is_shared_by_the_processes_of_one_torchrun(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("RANK", "1")
    with locked(tmp_path / "out", "train"):
        with output(tmp_path / "out", "training run", shared=True):
            pass
        for shared, rank in ((False, "1"), (True, "0")):
            monkeypatch.setenv("RANK", rank)
            with pytest.raises(InUseError), output(tmp_path / "out", "training run", shared=shared):
                pass


def test_lock_of_folder_in_read_only_folder_lies_within(tmp_path: Path, monkeypatch):
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with locked(tmp_path / "out", "write"):
        assert (tmp_path / "out" / ".lock").exists()
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("name", ["/", "bad\udcff", "a/" * 2000 + "b"])
def test_names_that_no_output_can_have_are_refused(tmp_path: Path, monkeypatch, name: str):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"whole file system|not UTF-8|shorter path"), locked(name, "x"):
        pass
    assert not list(tmp_path.iterdir())
