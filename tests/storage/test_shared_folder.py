from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sentence_experts.storage import SharedFolder


@pytest.fixture(params=["disk", "memory"])
def folder(request, tmp_path) -> Iterator[SharedFolder]:
    if request.param == "disk":
        yield SharedFolder(str(tmp_path / "out"))
        return
    storage = pytest.importorskip("fsspec").filesystem("memory")
    yield SharedFolder("memory://shared/out")
    if storage.exists("/shared"):
        storage.rm("/shared", recursive=True)


def test_a_file_is_written_once(folder):
    assert (folder.names(), folder.read("a")) == (set(), None)
    assert folder.create("a", b"first")
    assert not folder.create("a", b"second")
    with pytest.raises(FileExistsError), folder.writing("a") as temporary:
        temporary.write_bytes(b"third")
    assert (folder.names(), folder.read("a")) == ({"a"}, b"first")
    assert folder.sha256("a") == hashlib.sha256(b"first").hexdigest()
    folder.remove("a")
    folder.remove("a")
    assert folder.names() == set()


def test_nothing_is_left_of_a_file_that_fails(folder):
    def fail() -> None:
        with folder.writing("a") as temporary:
            temporary.write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert folder.names() == set()


def test_of_several_at_once_one_writes_it(tmp_path):
    folder = SharedFolder(str(tmp_path))
    with ThreadPoolExecutor(8) as pool:
        written = list(pool.map(lambda number: folder.create("a", b"%d" % number), range(8)))
    assert written.count(True) == 1
    assert folder.read("a") == b"%d" % written.index(True)
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_a_disk_without_links_will_do(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr(os, "link", refuse)
    folder = SharedFolder(str(tmp_path))
    assert (folder.create("a", b"first"), folder.create("a", b"second")) == (True, False)
    assert folder.read("a") == b"first"


def test_only_leftovers_of_its_own_are_removed(tmp_path):
    (tmp_path / f".part.{1:032x}.tmp").write_text("of a killed process")
    (tmp_path / ".mine.tmp").write_text("mine")
    SharedFolder(str(tmp_path)).remove_leftovers()
    assert [file.name for file in tmp_path.iterdir()] == [".mine.tmp"]
