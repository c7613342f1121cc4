"""A run goes on from a checkpoint that is whole, whenever it was killed."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import TrainerState

from sentence_experts.errors import InputError
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.storage import hashes_of, read_json, write_json
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.run import train
from sentence_experts.training.trainer import HASHES, RUN, Trainer, find_last_checkpoint


def _write(folder: Path, step: int, best: int | None = None) -> Path:
    checkpoint = folder / f"checkpoint-{step}"
    checkpoint.mkdir()
    state = TrainerState(global_step=step, best_global_step=best)
    state.save_to_json(str(checkpoint / "trainer_state.json"))
    write_json(checkpoint / HASHES, hashes_of(checkpoint, ["trainer_state.json"]))
    return checkpoint


def test_the_newest_whole_checkpoint_is_taken_and_torn_ones_are_removed(tmp_path: Path) -> None:
    assert find_last_checkpoint(tmp_path / "nowhere", "run") is None
    for step in (9, 10, 12, 14):
        _write(tmp_path, step)
    (tmp_path / "checkpoint-12" / HASHES).unlink()
    (tmp_path / "checkpoint-14" / "trainer_state.json").write_text('{"best')
    for name in ("checkpoint-best", "checkpoint-15-copy"):  # no checkpoints
        (tmp_path / name).mkdir()
    assert find_last_checkpoint(tmp_path, "run") == str(tmp_path / "checkpoint-10")
    left = ["checkpoint-10", "checkpoint-15-copy", "checkpoint-9", "checkpoint-best"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left


def test_a_checkpoint_whose_best_one_is_damaged_is_not_continued(tmp_path: Path) -> None:
    first, best, last = _write(tmp_path, 5, 0), _write(tmp_path, 10, 10), _write(tmp_path, 20, 10)
    assert find_last_checkpoint(tmp_path, "run") == str(last)
    (best / "trainer_state.json").write_text("other bytes")
    assert find_last_checkpoint(tmp_path, "run") == str(first)
    assert [path.name for path in tmp_path.iterdir()] == [first.name]


@pytest.mark.slow
def test_a_killed_run_records_the_losses_of_a_whole_one(
    pairs: Pairs, experts_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainConfig(batch_size=8, max_steps=22, eval_steps=11, keep="last")
    made, step = count(1), Trainer.training_step

    def die(self: Trainer, *args: Any) -> Any:
        if next(made) == 13:
            raise KeyboardInterrupt
        return step(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "training_step", die)
        with pytest.raises(KeyboardInterrupt):
            train(str(experts_model), pairs, config, tmp_path / "killed")
    resumed = train(str(experts_model), pairs, config, tmp_path / "killed")
    whole = train(str(experts_model), pairs, config)
    assert next(made) == 14
    assert np.array(resumed.losses) == pytest.approx(np.array(whole.losses))


def test_checkpoints_of_another_run_are_refused(pairs: Pairs, experts_model: Path, tmp_path: Path) -> None:
    """As where they were copied from the folder of another seed."""
    config = TrainConfig(batch_size=8, max_steps=4, eval_steps=2, keep_checkpoints=True)
    train(experts_model, pairs, config, tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    own = read_json(checkpoints / "checkpoint-4" / RUN)
    assert find_last_checkpoint(checkpoints, own) == str(checkpoints / "checkpoint-4")
    with pytest.raises(InputError, match="is of a run with other settings: remove it"):
        find_last_checkpoint(checkpoints, "another")
    assert (checkpoints / "checkpoint-4").exists()
