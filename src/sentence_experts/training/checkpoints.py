"""The checkpoints of a run: the newest that is whole, from which a run continues, and the best one."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from sentence_experts.errors import InputError
from sentence_experts.models.loading import load
from sentence_experts.models.sources import UNTRAINED
from sentence_experts.storage import hashes_of, is_unchanged, read_json, write_json
from sentence_experts.training import processes
from sentence_experts.training.trainer import Trainer

logger = logging.getLogger(__name__)

HASHES = "sha256.json"


class NoteHashes(TrainerCallback):
    """Writes the hashes of a checkpoint's files into it, which marks it as whole."""

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write them, in the first process, when each process has written its random state."""
        folder = Path(str(args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        processes.wait_for_all()
        if processes.is_first():
            write_json(folder / HASHES, hashes_of(folder, [each.name for each in folder.iterdir()]))


def last_whole_checkpoint(folder: Path) -> str | None:
    """Return the newest checkpoint in `folder` that is as it was written; remove newer ones.

    The trainer rotates and counts checkpoints by folder name, whole or not.
    """
    checkpoints = sorted(
        folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*"), key=lambda path: int(path.name.split("-")[1])
    )
    for checkpoint in reversed(checkpoints):
        if is_whole(checkpoint):
            return str(checkpoint)
        shutil.rmtree(checkpoint)
    return None


def is_whole(checkpoint: Path) -> bool:
    """Return whether the files of a checkpoint are as they were written."""
    try:
        hashes = read_json(checkpoint / HASHES)
        return bool(hashes) and is_unchanged(checkpoint, hashes)
    except (InputError, OSError, AttributeError):
        return False


Weights = dict[str, Tensor]


def copy_of(trainer: Trainer) -> tuple[Weights, Weights]:
    """Copy the trained weights of the model, and the loss's own, to the CPU's memory."""
    of_model = {name: weight for name, weight in trainer.model.named_parameters() if weight.requires_grad}
    model, loss = (
        {name: weight.detach().to("cpu", copy=True) for name, weight in weights.items()}
        for weights in (of_model, trainer.loss.own_weights())
    )
    return model, loss


def take_best(trainer: Trainer, before: tuple[Weights, Weights]) -> None:
    """Put the weights of the best step into the model and the loss, in every process."""
    if trainer.args.metric_for_best_model is None:
        return  # the last step is kept
    step = trainer.state.best_global_step
    if not step:
        for module, weights in zip((trainer.model, trainer.loss), before, strict=True):
            module.load_state_dict(weights, strict=False)
        start = trainer.state.best_metric
        logger.warning(
            f"{UNTRAINED}: no step was better than the model before training ({start:.4f}), which was kept"
        )
        return
    checkpoint = Path(str(trainer.args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{step}"
    if not is_whole(checkpoint):
        raise InputError(f"{checkpoint}: damaged since it was written; give `overwrite` to train again")
    # On the CPU, since a GPU may have no room for the model twice.
    trainer.model.load_state_dict(load(checkpoint, device="cpu").state_dict())
    trainer.load_loss(checkpoint)
