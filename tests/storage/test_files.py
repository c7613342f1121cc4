"""Files that cannot be read, and full disks, are one line."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sentence_experts.errors import InputError
from sentence_experts.storage import (
    NoSpaceError,
    allocate_npy,
    explained,
    have_writers_wait,
    locked,
    read_json,
    replacing,
    replacing_folder,
    walk_files,
    write_new_text,
)


@pytest.mark.parametrize("content", [b"[" * 100_000, b"9" * 5000, b"\xff", b"{", b""])
def test_json_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.json: not valid JSON") as caught:
        read_json(tmp_path / "a.json")
    assert len(str(caught.value).splitlines()) == 1


def test_folders_that_lead_to_each_other_are_walked_in_time(tmp_path: Path) -> None:
    names = [f"f{number}" for number in range(9)]  # a million paths
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(name)
        for other in names:
            (tmp_path / name / other).symlink_to(tmp_path / other)
    found = list(walk_files(tmp_path))
    assert {file.name for file in found} == {f"{name}.txt" for name in names}
    assert len(found) < 1000


def test_folder_is_no_json_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="directory"):
        read_json(tmp_path)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_weights_get_the_mode_of_any_new_file(tmp_path: Path, umask: int, mode: int) -> None:
    def write(path: Path) -> None:
        path.touch(mode=0o600)  # as safetensors does

    before = os.umask(umask)
    try:
        with replacing(tmp_path / "file") as temporary:
            write(temporary)
        with replacing_folder(tmp_path / "folder") as temporary:
            (temporary / "inner").mkdir()
            write(temporary / "inner" / "file")
            (temporary / "program").touch(mode=0o700)
    finally:
        os.umask(before)
    for file in (tmp_path / "file", tmp_path / "folder" / "inner" / "file"):
        assert file.stat().st_mode & 0o777 == mode
    assert (tmp_path / "folder" / "program").stat().st_mode & 0o777 == 0o700 & ~umask
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EFBIG, "File too large"),
        OSError("7680 requested and 718 written"),
        RuntimeError("[enforce fail at inline_container.cc:659] . unexpected pos 64 vs 0"),
        ValueError("Error while serializing: I/O error: No space left on device (os error 28)"),
        OSError(
            'Async write failed: {"exception_message":"Could not write \\"a\\": File too large","errno":"27"}'
        ),
    ],
)
def test_full_disk_is_one_line_from_every_library(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(NoSpaceError, match=r"MB free in .*make room"), locked(tmp_path / "out", "write"):
        raise error


def test_a_new_file_on_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fill)
    with pytest.raises(NoSpaceError, match=r"list\.csv: no space left"):
        write_new_text(tmp_path / "list.csv", "one")


@pytest.mark.parametrize(
    "error", [KeyError("no space left on device"), ValueError("bad text 'There is no space left.'")]
)
def test_other_errors_stay_what_they_are(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)) as found, explained(tmp_path):
        raise error
    assert found.value is error


def test_an_array_on_the_disk_has_its_space(tmp_path: Path) -> None:
    """Writing to a mapped file crashes the process where the disk turns out to be full."""
    array = allocate_npy(tmp_path / "a.npy", (1000, 32), "float32")
    assert (array.shape, array.dtype) == ((1000, 32), "float32")
    assert (tmp_path / "a.npy").stat().st_blocks * 512 >= array.nbytes


@pytest.mark.parametrize("has_links", [True, False])
def test_a_new_file_takes_no_place_that_is_taken(
    has_links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no links")

    if not has_links:
        monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "list.csv"
    write_new_text(path, "one")
    with pytest.raises(InputError, match=r"list\.csv exists; give another `out`"):
        write_new_text(path, "two")
    assert (path.read_text(), os.listdir(tmp_path)) == ("one", ["list.csv"])


@pytest.mark.skipif(sys.platform != "linux", reason="leases are of Linux")
def test_writers_wait_while_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"before")
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        with have_writers_wait([tmp_path / "a", tmp_path / "missing"]):
            writer = subprocess.Popen([sys.executable, "-c", f"open({str(tmp_path / 'a')!r}, 'wb')"])
            with pytest.raises(subprocess.TimeoutExpired):
                writer.wait(2)
            assert (tmp_path / "a").read_bytes() == b"before"
        assert writer.wait(60) == 0
        assert (tmp_path / "a").read_bytes() == b""
    finally:
        signal.signal(signal.SIGIO, before)
