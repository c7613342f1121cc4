from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest

from sentence_experts.storage import PartStore


def write(parts: PartStore, key: str | int, text: str, suffix: str | None = None) -> None:
    with parts.writing(key, suffix) as file:
        file.write_text(text)


def test_parts_are_found_again_under_same_settings(tmp_path: Path):
    parts = PartStore.open(tmp_path / "parts", {"a": 1, "b": None}, ".txt")
    write(parts, 10, "ten", ".side")
    write(parts, 10, "ten")
    write(parts, 9, "nine")
    again = pickle.loads(pickle.dumps(PartStore.open(tmp_path / "parts", {"b": None, "a": 1}, ".txt")))
    assert again.is_done(9)
    assert not again.is_done(8)
    assert [path.read_text() for path in again.paths()] == ["nine", "ten"]
    assert again.keys(".side") == ["000010"]
    again.remove()
    assert list(tmp_path.iterdir()) == []


def test_interrupted_part_is_not_there(tmp_path: Path):
    parts = PartStore.open(tmp_path / "parts", {}, ".txt")
    with pytest.raises(TypeError), parts.writing("one") as file:
        file.write_text(None)
    assert not parts.is_done("one")
    assert [file.name for file in parts.folder.iterdir()] == ["settings.json"]


def test_parts_of_other_settings_are_removed(tmp_path: Path):
    write(PartStore.open(tmp_path, {"model": "a"}, ".txt"), 0, "a")
    assert not PartStore.open(tmp_path, {"model": "b"}, ".txt").is_done(0)
    assert [file.name for file in tmp_path.iterdir()] == ["settings.json"]
    assert json.loads((tmp_path / "settings.json").read_text())["parts_of"] == {"model": "b"}


def test_a_part_that_was_copied_from_elsewhere_is_not_there(tmp_path: Path):
    one, other = (PartStore.open(tmp_path / name, {"model": name}, ".txt") for name in ("a", "b"))
    write(one, 0, "a")
    for file in one.folder.glob("000000*"):
        shutil.copy(file, other.folder)
        shutil.copy(file, one.folder / file.name.replace("0", "1"))
    assert (one.is_done(0), one.is_done(111111), other.is_done(0)) == (True, False, False)


def test_folder_without_readable_settings_is_emptied(tmp_path: Path):
    parts = PartStore.open(tmp_path, {}, ".txt")
    write(parts, 0, "")
    (tmp_path / "settings.json").write_text("{")
    assert not PartStore.open(tmp_path, {}, ".txt").is_done(0)


def test_parts_beyond_a_million_keep_their_order(tmp_path: Path):
    parts = PartStore.open(tmp_path / "parts", {}, ".txt")
    numbers = [99_999, 100_000, 999_999, 1_000_000, 1_000_001]
    for number in reversed(numbers):
        write(parts, number, str(number))
    assert [int(key) for key in parts.keys()] == numbers  # noqa: SIM118
