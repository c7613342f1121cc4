"""What happens beside the steps of a training run: progress, epochs, numbers that went bad."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from sentence_experts.errors import SentenceExpertsError
from sentence_experts.progress import Advance
from sentence_experts.training.data import SwappingCollator

logger = logging.getLogger(__name__)


class BadNumbersError(SentenceExpertsError):
    """The loss became NaN or infinite."""


class EpochForSwaps(TrainerCallback):
    """Tells the collator which epoch it is, so that a pair is swapped anew in each."""

    def __init__(self, collator: SwappingCollator) -> None:
        self._collator = collator

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Set the collator's epoch."""
        self._collator.epoch = int(state.epoch or 0)


class EvaluateLastStep(TrainerCallback):
    """Evaluates after the last step too, so that no step is trained in vain."""

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Ask for an evaluation when the run ends here."""
        if state.global_step >= state.max_steps:
            control.should_evaluate = control.should_save = True


class Progress(TrainerCallback):
    """Reports steps and validation figures through the package's console."""

    def __init__(self, advance: Advance, shown: Mapping[str, str]) -> None:
        """Args:
        advance: counts a step.
        shown: the metrics to say after a validation -> what they are called.
        """
        self._advance = advance
        self._shown = shown

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Count a step."""
        self._advance()

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Say how the validation split went."""
        found = metrics or {}
        figures = [f"{title} {found.get(metric, math.nan):.4f}" for metric, title in self._shown.items()]
        logger.info(f"  step {state.global_step}: validation {', '.join(figures)}")
