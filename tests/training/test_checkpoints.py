"""A run goes on from a checkpoint that is whole, whenever it was killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments

from sentence_experts.training.checkpoints import NoteHashes, last_whole_checkpoint


def checkpoint(folder: Path, step: int, noted: bool = True) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "optimizer.pt").write_bytes(b"weights")
    state = TrainerState(global_step=step)
    state.save_to_json(str(path / "trainer_state.json"))
    if noted:
        NoteHashes().on_save(TrainingArguments(str(folder)), state, TrainerControl())
    return path


def test_newest_by_number_is_taken(tmp_path: Path) -> None:
    older, newer = checkpoint(tmp_path, 9), checkpoint(tmp_path, 10)
    assert last_whole_checkpoint(tmp_path) == str(newer)
    assert older.exists()


@pytest.mark.parametrize("damage", ["torn", "truncated", "flipped", "missing"])
def test_incomplete_or_damaged_checkpoint_is_removed(tmp_path: Path, damage: str) -> None:
    whole, broken = checkpoint(tmp_path, 8), checkpoint(tmp_path, 12, noted=damage != "torn")
    weights = broken / "optimizer.pt"
    if damage == "missing":
        weights.unlink()
    elif damage != "torn":
        weights.write_bytes(b"weigh" if damage == "truncated" else b"weighes")
    assert last_whole_checkpoint(tmp_path) == str(whole)
    assert not broken.exists()


def test_no_whole_checkpoint_gives_none(tmp_path: Path) -> None:
    assert last_whole_checkpoint(tmp_path / "nowhere") is None
    checkpoint(tmp_path, 4, noted=False)
    assert last_whole_checkpoint(tmp_path) is None
