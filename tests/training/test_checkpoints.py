"""A run goes on from a checkpoint that is whole, whenever it was killed."""

from __future__ import annotations

from pathlib import Path

from transformers import TrainerState

from sentence_experts.storage import hashes_of, write_json
from sentence_experts.training.trainer import HASHES, find_last_checkpoint


def test_the_newest_whole_checkpoint_is_taken_and_torn_ones_are_removed(tmp_path: Path) -> None:
    assert find_last_checkpoint(tmp_path / "nowhere") is None
    for step in (9, 10, 12, 14):
        (tmp_path / f"checkpoint-{step}").mkdir()
        folder = tmp_path / f"checkpoint-{step}"
        TrainerState(global_step=step).save_to_json(str(folder / "trainer_state.json"))
        write_json(folder / HASHES, hashes_of(folder, ["trainer_state.json"]))
    (tmp_path / "checkpoint-12" / HASHES).unlink()
    (tmp_path / "checkpoint-14" / "trainer_state.json").write_text('{"best')
    assert find_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-9"]
