"""The sentence-transformers trainer for runs of this package: their batches, their best step, their end."""

from __future__ import annotations

import logging
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR
from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from sentence_experts.errors import InputError, SentenceExpertsError, UsageError
from sentence_experts.models.layers.weight_names import ROUTERS
from sentence_experts.models.loading import load
from sentence_experts.models.sources import UNTRAINED
from sentence_experts.progress import Advance
from sentence_experts.storage import hashes_of, is_unchanged, open_to_readers, read_json, write_json
from sentence_experts.training import processes
from sentence_experts.training.batches import RouteBatches
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.validation import MEAN

logger = logging.getLogger(__name__)

BEST_BY = f"eval_validation_{MEAN}"
CHECKPOINTS = "checkpoints"
# Beside the model in a checkpoint: the weights that the loss owns, such as a learned temperature.
LOSS_FILE = "loss.safetensors"
HASHES = "hashes.json"  # of the files of a checkpoint
RUN = "run_identity.json"  # hash of all that decides the run's result
REMEDY = "lower `learning_rate`, or leave out `bf16`, and give another `out`"


class BadNumbersError(SentenceExpertsError):
    """The loss became NaN or infinite."""


def make_training_arguments(
    out: Path, config: TrainConfig, steps: int, model: SentenceTransformer, validates: bool = True
) -> SentenceTransformerTrainingArguments:
    """Return the trainer's arguments. Making them joins the processes, if several train together.

    Without validation, or if the last step is kept, no step is the best one.

    Raises:
        UsageError: there are too few steps for the schedule.
    """
    chooses = validates and config.keep == "best"
    has_routers = any(ROUTERS in name for name, _ in model.named_parameters())
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(out / CHECKPOINTS),
        max_steps=steps,
        per_device_train_batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        learning_rate_mapping={re.escape(ROUTERS): config.router_learning_rate} if has_routers else {},
        # The trainer reads a number below one as a share of the steps.
        warmup_steps=config.warmup if config.warmup_steps is None else config.warmup_steps,
        # `Trainer.create_scheduler` makes the one cycle.
        lr_scheduler_type="constant" if config.scheduler == "one_cycle" else config.scheduler,
        weight_decay=config.weight_decay,
        eval_strategy="steps" if validates else "no",
        eval_steps=config.eval_steps,
        save_strategy="steps",
        save_steps=config.eval_steps,
        save_total_limit=2,
        metric_for_best_model=BEST_BY if chooses else None,
        greater_is_better=True if chooses else None,
        logging_steps=min(10, config.eval_steps, steps),
        logging_nan_inf_filter=False,
        bf16=config.bf16,
        activation_checkpointing=config.gradient_checkpointing,
        dataloader_pin_memory=torch.cuda.is_available(),
        # An expert that no text of a step is routed to gets no gradient in it.
        ddp_find_unused_parameters=True,
        ddp_timeout=int(processes.WAIT_FOR_WORK.total_seconds()),
        # Our batches are never uneven; said here, the trainer need not warn that it sets it.
        dataloader_drop_last=processes.count() > 1,
        # Without this, processes without a GPU would each train alone.
        use_cpu=processes.count() > 1 and not torch.cuda.is_available(),
        report_to="none",
        disable_tqdm=True,
        seed=config.seed,
        data_seed=config.seed,
    )
    rising = arguments.get_warmup_steps(steps)
    if config.scheduler == "one_cycle" and not 2 <= rising < steps:
        raise UsageError(
            f"`scheduler=one_cycle`: the rate rises in {rising} of {steps} steps; it needs at least 2 and "
            "fewer than all: set `warmup_steps`"
        )
    if config.warmup_steps is not None and rising >= steps:
        raise UsageError(f"`warmup_steps={rising}`: the rate would rise in all {steps} steps; set fewer")
    return arguments


class Trainer(SentenceTransformerTrainer):
    """The sentence-transformers trainer, with the batches of a whole run and a stop at the first bad loss.

    Attributes:
        batches: batches of the run.
        use_one_cycle: whether the learning rate goes up to its peak and down again, as in the preprint
            (Hallee 2024, 3.3; Smith and Topin 2019): from 1/25 of it along a cosine to near zero, while
            AdamW's first beta goes from 0.95 to 0.85 and back.
        undecayed: names of further weights of the model without weight decay.
        identity: hash of all that decides the run's result.
    """

    loss: Any  # a ContrastiveLoss
    batches: RouteBatches
    use_one_cycle = False
    undecayed: Sequence[str] = ()
    identity: str = ""

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """Make one step.

        Raises:
            BadNumbersError: the loss is NaN or infinite.
        """
        loss = super().training_step(*args, **kwargs)
        if not math.isfinite(loss.item()):
            raise BadNumbersError(f"the loss is {loss.item()} at step {self.state.global_step + 1}: {REMEDY}")
        return loss

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Measure the validation split, and leave the random state of the training as it was.

        Raises:
            BadNumbersError: the last update made vectors that are not finite.
        """
        try:
            with torch.random.fork_rng([self.args.device] if self.args.device.type == "cuda" else []):
                figures: dict[str, float] = super().evaluate(*args, **kwargs)
        except InputError as error:
            if not self.state.global_step:
                raise  # no update has changed the model
            raise BadNumbersError(f"after step {self.state.global_step} {error}: {REMEDY}") from error
        return figures

    def get_batch_sampler(self, *args: Any, **kwargs: Any) -> RouteBatches:  # type: ignore[override]
        """Return the batches of the run."""
        return self.batches

    def get_decay_parameter_names(self, model: torch.nn.Module) -> list[str]:
        """Return the weights with weight decay: as usual, without the loss's own and `undecayed`."""
        names: list[str] = super().get_decay_parameter_names(model)
        without = {f"model.{name}" for name in self.undecayed} | self.loss.own_weights().keys()
        return [name for name in names if name not in without]

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LRScheduler:
        """Return the schedule of the learning rate."""
        if self.use_one_cycle and self.lr_scheduler is None:
            assert self.optimizer is not None
            self.lr_scheduler = OneCycleLR(  # type: ignore[assignment]  # any scheduler will do
                self.optimizer,
                max_lr=[group["lr"] for group in self.optimizer.param_groups],
                total_steps=num_training_steps,
                pct_start=self.args.get_warmup_steps(num_training_steps) / num_training_steps,
            )
        scheduler: LRScheduler = super().create_scheduler(num_training_steps, optimizer)
        return scheduler

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Do nothing: `training.card` writes the card once, at the end."""

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the model and the loss's own weights, in the one process that may write.

        transformers calls this in every process, and several that write one folder destroy each other's
        files.
        """
        if not self.args.should_save:
            return
        folder = str(output_dir or self.args.output_dir)
        self.model.save_pretrained(folder, create_model_card=False)
        if weights := self.loss.own_weights():
            save_file(weights, f"{folder}/{LOSS_FILE}")
        open_to_readers(Path(folder))

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:  # type: ignore[override]
        """Take the model's weights from a checkpoint, to continue from it.

        They are read on the CPU, as a GPU may have no room for the model twice.
        """
        self.model.load_state_dict(load(checkpoint_path, device="cpu").state_dict())

    def load_loss(self, checkpoint: str | Path) -> None:
        """Take the loss's own weights from a checkpoint; the trainer itself loads the model's."""
        if self.loss.own_weights():
            self.loss.load_state_dict(load_file(Path(checkpoint) / LOSS_FILE), strict=False)


def find_last_checkpoint(folder: Path, identity: str) -> str | None:
    """Return the newest checkpoint in `folder` that is whole; remove newer ones.

    The best one so far, which is another, must be whole too: the end of the run takes its weights.
    The hashes of its files are what a checkpoint gets last. The trainer rotates and counts checkpoints by
    folder name, whole or not.
    """
    named = re.compile(rf"{PREFIX_CHECKPOINT_DIR}-(\d+)")  # others are no checkpoints
    steps = {path: int(match[1]) for path in folder.glob("*") if (match := named.fullmatch(path.name))}
    for checkpoint in sorted(steps, key=lambda path: steps[path], reverse=True):
        if _is_whole(checkpoint):
            state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
            best = folder / f"{PREFIX_CHECKPOINT_DIR}-{state.best_global_step}"
            # The trainer removes the best one before it so when a better one is written.
            if not state.best_global_step or best == checkpoint or not best.exists() or _is_whole(best):
                _check_run(checkpoint, identity)
                return str(checkpoint)
        shutil.rmtree(checkpoint)
    return None


def _check_run(checkpoint: Path, identity: str) -> None:
    """Refuse a checkpoint of another run; those of earlier versions do not tell."""
    file = checkpoint / RUN
    if file.is_file() and read_json(file) != identity:
        raise InputError(f"{checkpoint} is of a run with other settings: remove it, or give another `out`")


def _is_whole(checkpoint: Path) -> bool:
    with suppress(InputError, OSError):
        return is_unchanged(checkpoint, read_json(checkpoint / HASHES))
    return False


class RunCallback(TrainerCallback):
    """A callback that reports steps and figures, validates after the last step, and stops without progress.

    Where no step is chosen, every step is made.
    """

    def __init__(self, advance: Advance, patience: int, shown: Mapping[str, str], identity: str) -> None:
        """Prepare to log the metrics in `shown` after a validation, with their titles.

        `identity` is a hash of all that decides the run's result, by which its checkpoints are known.
        """
        self._advance, self._identity = advance, identity
        self._patience = patience
        self._shown = shown

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Count a step; validate and save at the end, so that the last steps count too.

        Where a checkpoint is written the loss is too: its mean begins anew in a run that continues.
        """
        self._advance()
        if state.global_step >= state.max_steps:
            control.should_evaluate = args.eval_strategy != "no"
            control.should_save = True
        control.should_log = control.should_log or control.should_save

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Write the hashes of a checkpoint's files, by which damage is found when a run continues."""
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
            write_json(folder / RUN, self._identity)
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


def copy_weights(trainer: Trainer) -> list[dict[str, Tensor]]:
    """Copy the trained weights of the model, and the loss's own, to the CPU's memory."""
    trained = {name: weight for name, weight in trainer.model.named_parameters() if weight.requires_grad}
    return [
        {name: weight.detach().to("cpu", copy=True) for name, weight in weights.items()}
        for weights in (trained, trainer.loss.own_weights())
    ]


def take_best(trainer: Trainer, before: Sequence[dict[str, Tensor]] | None) -> None:
    """Put the weights of the best step into the model and the loss, in every process.

    `before` is the model before training (`copy_weights`), which stays if no step was better; None to keep
    the last step.
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
