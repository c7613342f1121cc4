"""Leftovers of killed processes are removed, but never what another process or the user wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import RECORD, locked, output


def finished_run(out: Path) -> dict[str, Any]:
    """A finished result that grows in its folder; its record."""
    with output(out, "run", names=["a"], grows=True) as place:
        place.begin({})
        (out / "a").write_text("1")
        place.finish()
    record: dict[str, Any] = json.loads((out / RECORD).read_text())
    return record


def test_what_another_process_writes_in_the_folder_stays(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        live = tmp_path / f".v.npy.{process.pid}.new.tmp"
        live.touch()
        with locked(tmp_path, "write"):
            assert live.exists()
        process.communicate(b"\n")
    with locked(tmp_path, "write"):
        assert not live.exists()


def test_output_in_a_folder_whose_own_lock_is_held_stays(tmp_path: Path) -> None:
    with output(tmp_path / "v.txt", "text", is_file=True) as place:
        place.begin({})
        with place.replacing() as file:
            file.write_text("1")
            with locked(tmp_path, "write"):
                pass
    assert (tmp_path / "v.txt").read_text() == "1"


def test_what_a_killed_replacement_was_writing_goes_when_it_is_finished(tmp_path: Path) -> None:
    out = tmp_path / "run"
    finished_run(out)

    replacing: Any = {"names": ["a"], "grows": True, "overwrite": True}
    with output(out, "run", **replacing) as place:
        place.begin({"seed": 1})
        unfinished = place.path
    (unfinished / f".a.{dead_process()}.new.tmp").touch()
    (unfinished / "a").write_text("2")
    with output(out, "run", **replacing) as place:
        assert place.begin({"seed": 1}) == "unfinished"
        place.finish()
    assert sorted(os.listdir(out)) == ["a", RECORD]


def test_folder_retired_within_an_output_comes_back(tmp_path: Path) -> None:
    (tmp_path / "run" / f".model.{dead_process()}.old.tmp").mkdir(parents=True)
    with locked(tmp_path / "run", "train"):
        pass
    assert os.listdir(tmp_path / "run") == ["model"]


def dead_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


@pytest.mark.parametrize(
    "damage",
    [
        {"files": {"../mine/photo.jpg": "0"}},
        {"files": None, "owned": ["../mine"]},
        {"owned": ["/"]},
        {"files": []},
        {"files": {"a": None}},
        {"settings": None},
        {"what": 1},
    ],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_record_that_no_run_writes_is_damaged_and_deletes_nothing(
    tmp_path: Path, damage: dict[str, Any], overwrite: bool
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "photo.jpg").touch()
    record = finished_run(tmp_path / "run")
    (tmp_path / "run" / RECORD).write_text(json.dumps(record | damage))
    begin: Callable[[], Any] = lambda: begin_again(tmp_path / "run", overwrite)  # noqa: E731
    if overwrite:
        begin()
    else:
        with pytest.raises(InputError, match=rf"{RECORD}: damaged"):
            begin()
    assert (tmp_path / "mine" / "photo.jpg").exists()


def begin_again(out: Path, overwrite: bool) -> None:
    with output(out, "run", names=["a"], grows=True, overwrite=overwrite) as place:
        place.begin({})


def test_link_out_of_the_folder_is_not_followed_to_remove(tmp_path: Path) -> None:
    record = finished_run(tmp_path / "run")
    (tmp_path / "run" / RECORD).write_text(json.dumps(record | {"owned": ["a"]}))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "b").touch()
    (tmp_path / "run" / "a").unlink()
    (tmp_path / "run" / "a").symlink_to(tmp_path / "mine")
    begin_again(tmp_path / "run", overwrite=True)
    assert (tmp_path / "mine" / "b").exists()


def write_model(out: Path, seed: int, **options: Any) -> None:
    with output(out, "model", **options) as place:
        if place.begin({"seed": seed}) != "finished":
            with place.replacing() as folder:
                (folder / "sub").mkdir()
                (folder / "sub" / f"a{seed}").write_text(str(seed))


def test_all_that_the_user_put_beside_a_result_stays(tmp_path: Path) -> None:
    out = tmp_path / "model"
    write_model(out, 1)
    out.chmod(0o700)
    (out / "empty").mkdir()
    (out / "mine").mkdir(0o750)
    (out / "mine" / "notes").touch()
    (out / "link").symlink_to(tmp_path)
    (out / "sub" / "dangling").symlink_to("nowhere")
    for name in (".notes.tmp", ".notes.2024.old", ".yarn.lock"):
        (out / name).touch()
    write_model(out, 2, overwrite=True)
    found = {file.relative_to(out).as_posix() for file in out.rglob("*")}
    users = {
        "empty",
        "mine",
        "mine/notes",
        "link",
        "sub/dangling",
        ".notes.tmp",
        ".notes.2024.old",
        ".yarn.lock",
    }
    assert found == users | {"sub", "sub/a2", RECORD}
    assert out.stat().st_mode & 0o777 == 0o700
    assert (out / "mine").stat().st_mode & 0o777 == 0o750


def test_link_in_the_way_of_a_folder_is_named(tmp_path: Path) -> None:
    out = tmp_path / "model"
    out.mkdir()
    (out / "sub").symlink_to(tmp_path)
    with pytest.raises(UsageError, match=r"sub: not written by this program"):
        write_model(out, 1, overwrite=True)


class KilledError(Exception):
    """Ends a run as `kill` does."""


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_folder_that_was_being_filled_is_filled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path, 1)
    (tmp_path / "sub" / "notes").write_text("mine")
    replace, calls = os.replace, []

    def replace_some(old: Any, new: Any) -> None:
        calls.append(new)
        if len(calls) == number:
            raise KilledError
        replace(old, new)

    monkeypatch.setattr(os, "replace", replace_some)
    with pytest.raises(KilledError):
        write_model(tmp_path, 2, overwrite=True)
    monkeypatch.setattr(os, "replace", replace)
    write_model(tmp_path, 2, overwrite=number <= 2)
    found = {file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*")}
    assert found == {"sub", "sub/a2", "sub/notes", RECORD}
