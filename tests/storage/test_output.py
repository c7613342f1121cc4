"""One rule for everything that is written, whatever was there before."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import (
    RECORD,
    check_apart,
    check_unchanged,
    output,
    record,
)
from sentence_experts.storage.record import find_different_setting

Settings = dict[str, Any]


def write_folder(out: Path, settings: Settings, texts: dict[str, str], **options: Any) -> str:
    """Write texts by name into a folder that takes its place when it is whole; the state that was found."""
    with output(out, "model", **options) as place:
        state = place.begin(settings)
        if state != "finished":
            with place.replacing() as folder:
                for name, text in texts.items():
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    (folder / name).write_text(text)
        return state


def grow(out: Path, settings: Settings, steps: int, total: int = 3, **options: Any) -> str:
    """Write some of the parts of a result that grows in its folder; the state that was found."""
    with output(out, "run", names=("parts", "log", "end.txt"), grows=True, **options) as place:
        state = place.begin(settings)
        if state == "finished":
            return state
        (place.path / "parts").mkdir(exist_ok=True)
        for step in range(steps):
            (place.path / "parts" / str(step)).write_text(str(settings))
        if steps == total:
            (place.path / "end.txt").write_text("end")
            place.finish("parts", "end.txt")
        return state


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_finished_output_is_found_and_not_written_again(tmp_path: Path):
    assert write_folder(tmp_path / "m", {"seed": 1}, {"a": "1"}) == "new"
    before = (tmp_path / "m" / "a").stat().st_mtime_ns
    assert write_folder(tmp_path / "m", {"seed": 1}, {"a": "2"}) == "finished"
    assert (tmp_path / "m" / "a").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"seed": 2, "config": {"rate": 0.1}}, r"another seed \(1\)"),
        ({"seed": 1, "config": {"rate": 0.2}}, r"another rate \(0\.1\)"),
        ({"seed": 1}, "another config"),
    ],
)
def test_other_settings_are_refused_by_name(tmp_path: Path, settings: Settings, named: str):
    write_folder(tmp_path / "m", {"seed": 1, "config": {"rate": 0.1}}, {"a": "1"})
    with pytest.raises(UsageError, match=named + ".*`overwrite`"):
        write_folder(tmp_path / "m", settings, {"a": "2"})
    assert (tmp_path / "m" / "a").read_text() == "1"


def test_an_output_of_another_kind_is_never_overwritten(tmp_path: Path):
    """It may be what the run reads."""
    write_folder(tmp_path / "out", {}, {"a.txt": "a"})
    with pytest.raises(UsageError, match="holds a model: give another `out`"):
        grow(tmp_path / "out", {}, steps=1, overwrite=True)
    assert (tmp_path / "out" / "a.txt").read_text() == "a"


@pytest.mark.parametrize("is_file", [True, False])
def test_a_pipe_or_device_is_never_replaced(tmp_path: Path, is_file: bool):
    os.mkfifo(tmp_path / "pipe")
    with (
        pytest.raises(UsageError, match="neither a file nor a folder"),
        output(tmp_path / "pipe", "model", is_file=is_file, overwrite=True, names=["pipe"]) as place,
    ):
        place.begin({})
    assert (tmp_path / "pipe").is_fifo()


def test_other_files_are_refused_and_stay_beside_what_overwrite_writes(tmp_path: Path):
    out = tmp_path / "m"
    (out / "sub").mkdir(parents=True)
    (out / "sub" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"other files \(sub\)"):
        write_folder(out, {}, {"a": "1"})
    write_folder(out, {}, {"a": "1", "old": "1"}, overwrite=True)
    write_folder(out, {"seed": 2}, {"a": "2", "sub/new": "2"}, overwrite=True)
    assert files(out) == {"a", "sub/new", "sub/notes.txt", RECORD}
    assert (out / "sub" / "notes.txt").read_text() == "mine"
    # Also under a folder that the product made.
    (out / "a.txt").write_text("mine too")
    with pytest.raises(UsageError, match=r"a\.txt: not written by this program"):
        write_folder(out, {"seed": 3}, {"a.txt": "3"}, overwrite=True)
    assert (out / "a.txt").read_text() == "mine too"
    assert (out / "a").read_text() == "2"


def test_interrupted_run_continues_only_with_its_own_settings(tmp_path: Path):
    out = tmp_path / "run"
    assert grow(out, {"seed": 1}, 1) == "new"
    with pytest.raises(InputError, match="not finished"):
        check_unchanged(out)
    with pytest.raises(UsageError, match=r"begun with another seed \(1\)"):
        grow(out, {"seed": 2}, 1)
    assert grow(out, {"seed": 1}, 3) == "unfinished"
    check_unchanged(out)
    assert grow(out, {"seed": 1}, 3) == "finished"
    assert grow(out, {"seed": 2}, 3, overwrite=True) == "new"
    assert "2" in (out / "parts" / "0").read_text()


def test_old_run_stays_whole_until_the_new_one_is(tmp_path: Path):
    out = tmp_path / "run"
    grow(out, {"seed": 1}, 3)
    before = {name: (out / name).read_bytes() for name in files(out)}
    assert grow(out, {"seed": 2}, 1, overwrite=True) == "new"
    assert {name: (out / name).read_bytes() for name in files(out) if name[:5] != ".new/"} == before
    check_unchanged(out)
    assert grow(out, {"seed": 1}, 3) == "finished"
    with pytest.raises(UsageError, match="another seed"):
        grow(out, {"seed": 3}, 3)
    assert grow(out, {"seed": 2}, 2, overwrite=True) == "unfinished"
    assert grow(out, {"seed": 2}, 3) == "unfinished"  # also without `overwrite`
    assert grow(out, {"seed": 2}, 3) == "finished"
    assert files(out) == {*before}
    assert "2" in (out / "parts" / "0").read_text()


@pytest.mark.parametrize("renames", range(1, 5))
def test_killed_replacement_is_finished_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
):
    out = tmp_path / "run"
    grow(out, {"seed": 1}, 3)
    (out / "notes.txt").write_text("mine")
    real = os.replace

    def replace(source: Path, target: Path) -> None:
        nonlocal renames
        if str(source).startswith(f"{out}/.new") and target.name != RECORD:
            renames -= 1
            if not renames:
                raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        grow(out, {"seed": 2}, 3, overwrite=True)
    if (out / ".new").exists():
        with pytest.raises(InputError, match=r"is being replaced: try again.*give it again"):
            check_unchanged(out)
    grow(out, {"seed": 2}, 3)
    assert grow(out, {"seed": 2}, 3) == "finished"
    assert files(out) == {RECORD, "notes.txt", "parts/0", "parts/1", "parts/2", "end.txt"}


def grow_twice(out: Path) -> None:
    grow(out, {}, 3)
    grow(out, {}, 3, overwrite=True)


@pytest.mark.parametrize("write", [grow_twice, lambda out: encode(out, {}, 2), lambda out: replaced(out)])
def test_finished_output_is_on_the_disk_before_its_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], None]
):
    synced: set[int] = set()
    real, rename = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        real(descriptor)

    def replace(source: Path, target: Path) -> None:
        if Path(target).name == "out" or (
            Path(target).parent.name == "out" and Path(source).parent.name == ".new"
        ):
            missing = [
                each for each in (source, *Path(source).rglob("*")) if each.stat().st_ino not in synced
            ]
            assert not missing
            replaced.append(target)
        rename(source, target)

    replaced: list[Path] = []
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write(tmp_path / "out")
    assert replaced
    assert tmp_path.stat().st_ino in synced or (tmp_path / "out").stat().st_ino in synced


def replaced(out: Path) -> None:
    write_folder(out, {}, {"a": "1", "b/c": "2"})


def test_inputs_in_the_output_are_refused_only_if_they_would_be_lost(tmp_path: Path):
    out = tmp_path / "run"
    grow(out, {}, 3)
    (out / "mine.txt").write_text("mine")
    (tmp_path / "link").symlink_to(out / "parts")
    check_apart(
        out, True, tmp_path, out / "mine.txt", [{"text": str(out)}], None, "s3://bucket/run", object()
    )
    check_apart(out, False, out)
    for read in (out, out / "parts", str(out / "parts" / "1"), tmp_path / "link", {"a": [out / "end.txt"]}):
        with pytest.raises(UsageError, match=r"is read, and is in .*run, which `overwrite`"):
            check_apart(out, True, read)


@pytest.mark.parametrize("is_file", [True, False])
def test_a_file_system_is_not_replaced(is_file: bool):
    with pytest.raises(UsageError, match="whole file system"), output("/", "x", is_file=is_file):
        pass


def test_a_name_that_begins_with_a_tilde_stays_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with output("~/x", "x") as place:
        assert place.path == tmp_path / "~" / "x"


def test_overwriting_a_run_leaves_files_of_the_user(tmp_path: Path):
    out = tmp_path / "run"
    grow(out, {"seed": 1}, 3)
    (out / "notes.txt").write_text("mine")
    (out / "parts" / "notes.txt").write_text("mine")
    grow(out, {"seed": 2}, 2, 2, overwrite=True)
    assert files(out) == {RECORD, "notes.txt", "parts/notes.txt", "parts/0", "parts/1", "end.txt"}


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_damaged_result_is_named_and_made_again_on_request(tmp_path: Path, damage: str):
    out = tmp_path / "m"
    write_folder(out, {}, {"a": "1"})
    if damage == "missing":
        (out / "a").unlink()
    else:
        (out / "a").write_text("x")
    with pytest.raises(InputError, match=rf"m/a.*{damage}.*`overwrite`"):
        write_folder(out, {}, {"a": "1"})
    write_folder(out, {}, {"a": "1"}, overwrite=True)
    assert (out / "a").read_text() == "1"


def test_damaged_record_is_named_and_replaced_with_overwrite(tmp_path: Path):
    for out, write in ((tmp_path / "run", grow_all), (tmp_path / "v.npy", encode_all)):
        write(out)
        record = out / RECORD if out.is_dir() else tmp_path / "v.npy.json"
        record.write_text(record.read_text()[:-20])
        with pytest.raises(InputError, match=rf"{record.name}: damaged"):
            write(out)
        write(out, overwrite=True)


@pytest.mark.parametrize("share", [0.9, 0.5, 0.01, 0])
def test_damaged_record_is_named_to_every_reader(tmp_path: Path, share: float):
    out = tmp_path / "m"
    write_folder(out, {}, {"a": "1"})
    check_unchanged(out)
    text = (out / RECORD).read_text()
    (out / RECORD).write_text(text[: int(share * len(text))] if share > 0.1 else "\0" * int(99 * share))
    with pytest.raises(InputError, match=rf"{RECORD}: damaged: make .*m again, or remove this file"):
        check_unchanged(out)
    (out / RECORD).write_text('{"of": "the user"}')
    check_unchanged(out)


def test_large_weights_are_not_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_folder(tmp_path / "m", {}, {"w.safetensors": "weights"})
    monkeypatch.setattr(record, "sha256_unchanging", lambda file: pytest.fail(f"{file} was hashed"))
    monkeypatch.setattr(record, "LARGE", 1)
    check_unchanged(tmp_path / "m")
    (tmp_path / "m" / "w.safetensors").unlink()
    with pytest.raises(InputError, match="is missing"):
        check_unchanged(tmp_path / "m")


def grow_all(out: Path, **options: Any) -> None:
    grow(out, {}, 3, **options)


def encode_all(out: Path, **options: Any) -> None:
    encode(out, {}, 2, **options)


def test_failing_run_keeps_what_it_should_have_replaced(tmp_path: Path):
    write_folder(tmp_path / "m", {}, {"a": "1"})
    with pytest.raises(TypeError):
        write_folder(tmp_path / "m", {"seed": 2}, {"a": None}, overwrite=True)  # type: ignore[dict-item]
    assert (tmp_path / "m" / "a").read_text() == "1"
    assert files(tmp_path) == {"m/a", f"m/{RECORD}"}


def test_input_that_changes_meanwhile_is_named(tmp_path: Path):
    read = tmp_path / "in.txt"
    read.write_text("1")

    def copy() -> None:
        with output(tmp_path / "m", "model") as place:
            place.begin({}, {"texts": read.read_text})
            with place.replacing() as folder:
                (folder / "a").write_text("1")
                read.write_text("2")

    with pytest.raises(InputError, match="since its texts changed"):
        copy()
    assert not (tmp_path / "m").exists()


def encode(out: Path, settings: Settings, chunks: int, total: int = 2, **options: Any) -> tuple[str, int]:
    """Write a file from parts, of which some are computed; the state found, and the parts that were there."""
    with output(out, "vectors", is_file=True, **options) as place:
        state = place.begin(settings)
        if state == "finished":
            return state, place.result["chunks"]
        parts = place.parts(".txt", chunk_size=3)
        there = sum(parts.is_done(number) for number in range(total))
        for number in range(chunks):
            with parts.writing(number) as file:
                file.write_text(str(settings))
        if chunks == total:
            place.result = {"chunks": there}
            with place.replacing() as file:
                file.write_text("".join(part.read_text() for part in parts.paths()))
        return state, there


def test_file_is_made_from_parts_of_its_own_settings(tmp_path: Path):
    out = tmp_path / "v.npy"
    assert encode(out, {"model": "a"}, 1) == ("new", 0)
    with pytest.raises(UsageError, match=r"begun with another model \(a\)"):
        encode(out, {"model": "b"}, 1)
    assert encode(out, {"model": "a"}, 2) == ("unfinished", 1)
    assert encode(out, {"model": "a"}, 2) == ("finished", 1)
    assert files(tmp_path) == {"v.npy", "v.npy.json"}
    with pytest.raises(UsageError, match=r"made with another model \(a\)"):
        encode(out, {"model": "b"}, 2)
    assert encode(out, {"model": "b"}, 1, overwrite=True) == ("new", 0)
    assert "a" in out.read_text()
    assert encode(out, {"model": "b"}, 2) == ("unfinished", 1)
    assert "b" in out.read_text()


@pytest.mark.parametrize("moved", [True, False])
def test_record_of_another_file_costs_no_other_file(tmp_path: Path, moved: bool):
    encode(tmp_path / "v.npy", {}, 2)
    if moved:
        for name in ("v.npy", "v.npy.json"):
            (tmp_path / name).rename(tmp_path / name.replace("v.", "kept."))
        encode(tmp_path / "v.npy", {"seed": 2}, 2)
    else:
        (tmp_path / "kept.npy.json").write_bytes((tmp_path / "v.npy.json").read_bytes())
    before = (tmp_path / "v.npy").read_bytes()
    with pytest.raises(UsageError, match=r"kept\.npy: its record is of another file, v\.npy: .*`overwrite`"):
        encode(tmp_path / "kept.npy", {}, 2)
    assert encode(tmp_path / "kept.npy", {"seed": 3}, 2, overwrite=True) == ("new", 0)
    assert (tmp_path / "v.npy").read_bytes() == before
    assert encode(tmp_path / "kept.npy", {"seed": 3}, 2) == ("finished", 0)


def test_parts_of_a_replacement_stay_where_the_old_file_is_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    out = tmp_path / "v.npy"
    encode(out, {}, 3, total=3)
    caplog.set_level("INFO")
    encode(out, {"seed": 2}, 2, total=3, overwrite=True)
    assert encode(out, {}, 3, total=3)[0] == "finished"
    assert ".v.npy.parts holds what an interrupted command" in caplog.text
    assert encode(out, {"seed": 2}, 3, total=3) == ("unfinished", 2)
    caplog.clear()
    assert encode(out, {"seed": 2}, 3, total=3)[0] == "finished"
    assert "interrupted" not in caplog.text
    assert files(tmp_path) == {"v.npy", "v.npy.json"}


def test_file_of_the_user_is_replaced_only_by_name_and_with_overwrite(tmp_path: Path):
    for name in ("v.npy", "v.npy.json"):
        (tmp_path / name).write_text("mine")
        for overwrite in (False, True)[: 1 if name == "v.npy" else 2]:
            with pytest.raises(UsageError, match=rf"{name}: not written by this program"):
                encode(tmp_path / "v.npy", {}, 2, overwrite=overwrite)
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()


def test_file_of_the_user_stays_until_the_new_one_is_whole(tmp_path: Path):
    out = tmp_path / "v.npy"
    out.write_text("mine")
    with pytest.raises(UsageError, match="or give `overwrite` to replace it"):
        encode(out, {}, 2)
    assert encode(out, {}, 1, overwrite=True) == ("new", 0)  # it ended early
    assert out.read_text() == "mine"

    def fail() -> None:
        with output(out, "vectors", is_file=True, overwrite=True) as place:
            place.begin({})
            with place.replacing() as file:
                file.write_text("half")
                raise InterruptedError

    with pytest.raises(InterruptedError):
        fail()
    assert out.read_text() == "mine"
    assert {name for name in files(tmp_path) if name[0] != "."} == {"v.npy"}
    assert encode(out, {}, 2, overwrite=True) == ("new", 0)
    assert out.read_text() == "{}{}"
    assert encode(out, {}, 2) == ("finished", 0)


def test_output_of_a_newer_version_is_refused_by_name(tmp_path: Path):
    write_folder(tmp_path / "m", {}, {"a": "1"})
    record = json.loads((tmp_path / "m" / RECORD).read_text())
    (tmp_path / "m" / RECORD).write_text(json.dumps(record | {"format_version": 2}))
    with pytest.raises(InputError, match="newer sentence-experts"):
        write_folder(tmp_path / "m", {}, {"a": "1"}, overwrite=True)
    with pytest.raises(InputError, match="newer sentence-experts"):
        check_unchanged(tmp_path / "m")


def test_leftovers_of_killed_runs_go(tmp_path: Path):
    write_folder(tmp_path / "m", {}, {"a": "1"})
    os.replace(tmp_path / "m", tmp_path / ".m.77.old.tmp")  # killed between the two renames of a replacement
    (tmp_path / ".m.77.new.tmp").mkdir()
    (tmp_path / ".m.77.new.tmp" / "half").touch()
    (tmp_path / ".m.77.scratch.x_y1.tmp").mkdir()  # of the engine that compiles pairs
    (tmp_path / ".other.77.new.tmp").touch()
    assert write_folder(tmp_path / "m", {}, {"a": "1"}) == "finished"
    assert files(tmp_path) == {"m/a", f"m/{RECORD}", ".other.77.new.tmp"}


def test_folder_that_is_worked_in_is_filled_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".hidden").write_text("mine")
    number = tmp_path.stat().st_ino
    write_folder(Path(), {}, {"a": "1", "b/c": "1"})
    write_folder(Path(), {"seed": 2}, {"a": "2"}, overwrite=True)
    assert tmp_path.stat().st_ino == number
    assert files(tmp_path) == {".hidden", "a", RECORD}


def test_target_of_a_link_is_replaced(tmp_path: Path):
    (tmp_path / "big").mkdir()
    (tmp_path / "m").symlink_to(tmp_path / "big")
    write_folder(tmp_path / "m", {}, {"a": "1"})
    assert (tmp_path / "m").is_symlink()
    assert files(tmp_path / "big") == {"a", RECORD}


def test_name_that_is_too_long_is_one_line(tmp_path: Path):
    with pytest.raises(InputError, match="too long"):
        write_folder(tmp_path / ("é" * 125), {}, {"a": "1"})


def _fail(out: Path, number: int) -> None:
    with output(out, "file", is_file=True) as place:
        place.begin({"number": number})
        place.parts(".npy")
        with place.replacing():
            raise InputError("cannot")


def test_a_file_that_failed_before_anything_was_kept_leaves_no_trace(tmp_path: Path) -> None:
    for number in range(2):  # the second has other settings, of which no earlier run is left
        with pytest.raises(InputError, match="cannot"):
            _fail(tmp_path / "v", number)
    assert not list(tmp_path.iterdir())


def test_an_output_that_wrote_only_empty_folders_can_be_begun_again(tmp_path: Path) -> None:
    def begin() -> None:
        with output(tmp_path / "run", "training run", names=("model", "checkpoints"), grows=True) as place:
            assert place.begin({"steps": 1}) == "new"
            (place.path / "checkpoints").mkdir()
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            begin()
    assert not (tmp_path / "run").exists()


def test_settings_that_earlier_records_lack_are_no_difference_unless_they_decide_the_rows() -> None:
    assert (
        find_different_setting({"a": 1}, {"a": 1, "order": ["x"], "baselines": [], "followed": True}) is None
    )
    assert find_different_setting({"order": ["x"]}, {"order": ["y"]}) == "order"
    split = {"sources": {"mood": {"splits": ["train", "test"]}}}
    assert find_different_setting({"sources": {"mood": {}}}, split) == "sources.mood.splits"


def test_the_same_call_with_overwrite_continues(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    out, run = tmp_path / "v.npy", tmp_path / "run"
    assert encode(out, {"seed": 1}, 2, total=3) == ("new", 0)
    assert encode(out, {"seed": 1}, 1, total=3, overwrite=True) == ("new", 0), "another call has begun it"
    assert encode(out, {"seed": 1}, 2, total=3, overwrite=True) == ("unfinished", 1)
    assert encode(out, {"seed": 1}, 2, total=3) == ("unfinished", 2)
    assert encode(out, {"seed": 2}, 1, total=3, overwrite=True) == ("new", 0)
    assert encode(out, {"seed": 2}, 3, total=3, overwrite=True) == ("unfinished", 1)
    assert encode(out, {"seed": 2}, 3, total=3, overwrite=True) == ("new", 0)
    assert grow(run, {"seed": 1}, 1, overwrite=True) == "new"
    assert grow(run, {"seed": 1}, 2, overwrite=True) == "unfinished"
    assert grow(tmp_path / "other", {"seed": 1}, 1) == "new"
    assert grow(tmp_path / "other", {"seed": 1}, 1, overwrite=True) == "new", "another call has begun it"
    assert grow(run, {"seed": 2}, 3, overwrite=True) == "new"
    assert "2" in (run / "parts" / "0").read_text()
    assert grow(run, {"seed": 2}, 3, overwrite=True) == "new"
