"""The best step of a run: how it is chosen, when a run ends, how its weights are taken."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from sentence_experts.models.loading import load
from sentence_experts.models.sources import UNTRAINED
from sentence_experts.progress import Advance
from sentence_experts.storage import hashes_of, write_json
from sentence_experts.training.trainer import BEST_BY, HASHES, Trainer

logger = logging.getLogger(__name__)


class RunCallback(TrainerCallback):
    """A callback that reports steps and figures, validates after the last step, and stops without progress.

    Where no step is chosen, every step is made.
    """

    def __init__(self, advance: Advance, patience: int, shown: Mapping[str, str]) -> None:
        """Prepare to log the metrics in `shown` after a validation, with their titles."""
        self._advance = advance
        self._patience = patience
        self._shown = shown

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Count a step; validate and save at the end, so that the last steps count too."""
        self._advance()
        if state.global_step >= state.max_steps:
            control.should_evaluate = args.eval_strategy != "no"
            control.should_save = True

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Write the hashes of a checkpoint's files, by which damage is found when a run continues."""
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
            # Other processes may still write the states of their random numbers.
            names = [file.name for file in folder.iterdir() if not file.name.startswith("rng_state_")]
            write_json(folder / HASHES, hashes_of(folder, names))

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Show the training loss."""
        if "loss" in (kwargs["logs"] or ()):
            self._advance(0, f"loss {float(kwargs['logs']['loss']):.4f}")

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Log the figures; stop if the best one is `patience` validations ago.

        The model before training is the first candidate for the best one.
        """
        metrics: dict[str, float] = kwargs["metrics"]
        chooses = args.metric_for_best_model is not None
        if state.global_step == 0 and chooses:
            state.best_metric, state.best_global_step = metrics[BEST_BY], 0
        figures = [
            f"{title} {metrics[metric]:.4f}" for metric, title in self._shown.items() if metric in metrics
        ]
        losses = [entry["loss"] for entry in state.log_history if "loss" in entry]
        loss = f"training loss {losses[-1]:.4f}, " if losses else ""
        logger.info(f"  step {state.global_step}: {loss}validation {', '.join(figures)}")
        if state.best_metric is None or metrics[BEST_BY] > state.best_metric:
            return
        if chooses and is_over(state, self._patience):
            control.should_training_stop = True


def is_over(state: TrainerState, patience: int) -> bool:
    """Return whether a run has made all its steps, or the last `patience` validations were not better."""
    since = [
        entry
        for entry in state.log_history
        if BEST_BY in entry and entry["step"] > (state.best_global_step or 0)
    ]
    return state.global_step >= state.max_steps or len(since) >= patience


def copy_of(trainer: Trainer) -> list[dict[str, Tensor]]:
    """Copy the trained weights of the model, and the loss's own, to the CPU's memory."""
    trained = {name: weight for name, weight in trainer.model.named_parameters() if weight.requires_grad}
    return [
        {name: weight.detach().to("cpu", copy=True) for name, weight in weights.items()}
        for weights in (trained, trainer.loss.own_weights())
    ]


def take_best(trainer: Trainer, before: Sequence[dict[str, Tensor]] | None) -> None:
    """Put the weights of the best step into the model and the loss, in every process.

    `before` is the `copy_of` the model before training, which stays if no step was better; None to keep the
    last step.
    """
    if before is None:
        return
    state = trainer.state
    if state.best_global_step:
        checkpoint = Path(str(trainer.args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{state.best_global_step}"
        # On the CPU, since a GPU may have no room for the model twice.
        trainer.model.load_state_dict(load(checkpoint, device="cpu").state_dict())
        trainer.load_loss(checkpoint)
        return
    for module, weights in zip((trainer.model, trainer.loss), before, strict=True):
        module.load_state_dict(weights, strict=False)
    logger.warning(
        f"{UNTRAINED}: no step was better than the model before training ({state.best_metric:.4f}), which "
        "was kept"
    )
