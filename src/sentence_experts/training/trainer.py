"""The sentence-transformers trainer, with what it lacks here: schedules, losses' own weights, bad numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import BatchSampler

from sentence_experts.errors import InputError
from sentence_experts.training.callbacks import BadNumbersError
from sentence_experts.training.data import TEXT_COLUMNS
from sentence_experts.training.schedules import one_cycle

REMEDY = "lower --learning-rate, or leave out --bf16, and give another --out"
# Beside the model in a checkpoint: the weights that the loss owns, such as a learned temperature.
LOSS_FILE = "loss.safetensors"


class Trainer(SentenceTransformerTrainer):
    """The sentence-transformers trainer, stopped at the first bad loss and without its model card.

    Attributes:
        use_one_cycle: whether the learning rate goes through one cycle (`schedules.one_cycle`).
        undecayed: names of the model's weights that take no weight decay beside the usual ones.
    """

    loss: Any  # a ContrastiveLoss
    use_one_cycle = False
    undecayed: Sequence[str] = ()

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """One step.

        Raises:
            BadNumbersError: the loss is NaN or infinite.
        """
        loss = super().training_step(*args, **kwargs)
        if not math.isfinite(loss.item()):
            raise BadNumbersError(f"the loss is {loss.item()} at step {self.state.global_step + 1}: {REMEDY}")
        return loss

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Figures on the validation split.

        Raises:
            BadNumbersError: the last update made vectors that are not finite.
        """
        try:
            figures: dict[str, float] = super().evaluate(*args, **kwargs)
        except InputError as error:
            raise BadNumbersError(f"after step {self.state.global_step} {error}: {REMEDY}") from error
        return figures

    def get_batch_sampler(self, dataset: Dataset, *args: Any, **kwargs: Any) -> BatchSampler | None:
        """Batches without the same anchor or positive twice.

        A mined negative may stand beside the pair whose text it is: the mask of known positives leaves it
        out there, and texts that are near many others would make most batches impossible.
        """
        return super().get_batch_sampler(dataset.select_columns([*TEXT_COLUMNS, "label"]), *args, **kwargs)

    def get_decay_parameter_names(self, model: torch.nn.Module) -> list[str]:
        """The weights that AdamW shrinks: as usual, but neither the loss's own nor `undecayed`."""
        names: list[str] = super().get_decay_parameter_names(model)
        kept = {f"model.{name}" for name in self.undecayed} | self._loss_weights().keys()
        return [name for name in names if name not in kept]

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LRScheduler:
        """The learning rate's schedule."""
        if self.use_one_cycle and self.lr_scheduler is None:
            assert self.optimizer is not None
            warmup = self.args.get_warmup_steps(num_training_steps)
            schedule = one_cycle(optimizer or self.optimizer, num_training_steps, warmup)
            self.lr_scheduler = schedule  # type: ignore[assignment]  # any scheduler will do
            self._created_lr_scheduler = True
        scheduler: LRScheduler = super().create_scheduler(num_training_steps, optimizer)
        return scheduler

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Nothing: `training.card` writes the card once, at the end."""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        folder = str(output_dir or self.args.output_dir)
        self.model.save_pretrained(folder, create_model_card=False)
        torch.save(self.args, f"{folder}/training_args.bin")
        if weights := self._loss_weights():
            save_file(weights, f"{folder}/{LOSS_FILE}")

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:  # type: ignore[override]  # as the base
        super()._load_from_checkpoint(checkpoint_path)
        if self._loss_weights():
            self.loss.load_state_dict(load_file(Path(checkpoint_path) / LOSS_FILE), strict=False)

    def _loss_weights(self) -> dict[str, Tensor]:
        """The weights of the loss that are not the model's."""
        return {
            name: weight for name, weight in self.loss.state_dict().items() if not name.startswith("model.")
        }
