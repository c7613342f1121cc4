"""Folders of pairs and tasks: every file that is read is as it was written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.small_tasks import compiled, task_content
from sentence_experts.errors import InputError
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.importing import import_pairs
from sentence_experts.tasks.dataset import Tasks
from sentence_experts.tasks.task_file import TaskFile


def write_pairs(folder: Path) -> Path:
    rows = [{"anchor": f"rice {n}", "positive": f"field {n}", "domain": "crops"} for n in range(40)]
    import_pairs(rows, out=folder / "pairs")
    return folder / "pairs"


def write_tasks(folder: Path) -> Path:
    made = compiled(folder, task_content(folder))
    assert made.path is not None
    return made.path


@pytest.mark.parametrize(
    ("write", "readers"),
    [(write_pairs, [Pairs.open]), (write_tasks, [Tasks.open, TaskFile.read])],
    ids=["pairs", "tasks"],
)
def test_a_changed_manifest_is_refused(
    tmp_path: Path, write: Callable[[Path], Path], readers: list[Callable[[Path], Any]]
) -> None:
    folder = write(tmp_path)
    manifest = folder / "manifest.json"
    whole = manifest.read_text()
    for place in [place for place, letter in enumerate(whole) if letter.isdigit()][::97]:
        manifest.write_text(whole[:place] + str(9 - int(whole[place])) + whole[place + 1 :])
        for read in readers:
            with pytest.raises(InputError, match=r"manifest\.json has changed since it was written"):
                read(folder)
    manifest.write_text(whole)
    for read in readers:
        read(folder)
