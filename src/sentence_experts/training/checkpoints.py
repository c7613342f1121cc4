"""The checkpoints of a run that may have been killed while it wrote one."""

from __future__ import annotations

import shutil
from pathlib import Path

from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR


def last_whole_checkpoint(folder: Path) -> str | None:
    """The newest checkpoint in `folder` that was written to its end; newer, torn ones are removed.

    The trainer takes the newest folder by its name, torn or not, so it may not find a torn one.
    """
    found = sorted(folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*"), key=lambda path: int(path.name.split("-")[1]))
    for checkpoint in reversed(found):
        if _is_whole(checkpoint):
            return str(checkpoint)
        shutil.rmtree(checkpoint)
    return None


def _is_whole(checkpoint: Path) -> bool:
    """The trainer writes the state last."""
    try:
        TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    except (OSError, ValueError):
        return False
    return True
