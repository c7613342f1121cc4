"""A run goes on from a checkpoint that is whole, whenever it was killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import TrainerState

from sentence_experts.training.run import last_complete_checkpoint


def checkpoint(folder: Path, step: int, state: str | None = None) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "optimizer.pt").write_bytes(b"weights")
    if state is None:
        TrainerState(global_step=step).save_to_json(str(path / "trainer_state.json"))
    elif state:
        (path / "trainer_state.json").write_text(state)
    return path


def test_newest_by_number_is_taken(tmp_path: Path) -> None:
    older, newer = checkpoint(tmp_path, 9), checkpoint(tmp_path, 10)
    assert last_complete_checkpoint(tmp_path) == str(newer)
    assert older.exists()


@pytest.mark.parametrize("state", ["", '{"epoch": 0.5, "global_st'])
def test_incomplete_checkpoint_is_removed(tmp_path: Path, state: str) -> None:
    whole, torn = checkpoint(tmp_path, 8), checkpoint(tmp_path, 12, state)
    assert last_complete_checkpoint(tmp_path) == str(whole)
    assert not torn.exists()


def test_no_complete_checkpoint_gives_none(tmp_path: Path) -> None:
    assert last_complete_checkpoint(tmp_path / "nowhere") is None
    checkpoint(tmp_path, 4, "")
    assert last_complete_checkpoint(tmp_path) is None
