"""The life of a training run, whatever it learns from: begin or go on, train, keep the best model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from transformers import ProgressCallback, TrainerCallback
from transformers.integrations.integration_utils import TensorBoardCallback, WandbCallback
from transformers.trainer_callback import PrinterCallback

from sentence_experts.errors import InputError, UsageError, require
from sentence_experts.models.loading import load
from sentence_experts.models.routing.automatic import AutoRoutedEncoder
from sentence_experts.models.surgery.lora import merge_lora, save_adapter
from sentence_experts.progress import progress
from sentence_experts.storage import read_json, replacing_folder, write_json, write_text
from sentence_experts.training.callbacks import Progress
from sentence_experts.training.checkpoints import last_whole_checkpoint
from sentence_experts.training.config import RunConfig
from sentence_experts.training.trainer import Trainer

logger = logging.getLogger(__name__)

FINISHED = "finished"

# (best model, what stands in run.json) -> README.md
Card = Callable[[SentenceTransformer, dict[str, Any]], str]


@dataclass(frozen=True)
class Figure:
    """The validation figure that chooses the best step.

    Attributes:
        name: in run.json, after "best_validation_".
        shown: the trainer's metrics that are said after each validation -> what they are called; the first
            is the figure itself.
    """

    name: str
    shown: Mapping[str, str]

    @property
    def metric(self) -> str:
        """The trainer's name of it."""
        return next(iter(self.shown))


def prepare(out: Path, identity: dict[str, Any], resume: bool, leftovers: Sequence[str] = ()) -> str | None:
    """Where to go on from: a checkpoint, `FINISHED`, or None for the beginning.

    Args:
        out: the run's folder.
        identity: what the run is of; one that goes on must be of the same.
        resume: whether going on was asked for.
        leftovers: files of a run that never got to a checkpoint, removed before a new beginning.

    Raises:
        UsageError: `out` holds a run and `resume` was not asked for, or another run, or something else.
    """
    started = out / "started.json"
    if not started.exists() and out.exists() and any(out.iterdir()):
        raise UsageError(f"{out}: not empty and not a training run; give another --out")
    checkpoint = last_whole_checkpoint(out / "checkpoints")
    if checkpoint is None and not (out / "run.json").exists():
        # Nothing to lose: no run yet, or one that stopped before its first checkpoint.
        out.mkdir(parents=True, exist_ok=True)
        for name in leftovers:
            (out / name).unlink(missing_ok=True)
        write_json(started, identity)
        return None
    if not resume:
        raise UsageError(f"{out}: holds a run already; go on with --resume, or give another --out")
    before = read_json(started)
    for key, value in identity.items():
        if before.get(key) != value:
            raise UsageError(f"{out}: this run was started with another {key}: {before.get(key)}")
    return FINISHED if (out / "run.json").exists() else checkpoint


def finished(out: Path) -> dict[str, Any]:
    """What a finished run has in run.json."""
    logger.info(f"{out}: this run is finished")
    result: dict[str, Any] = read_json(out / "run.json")
    return result


def drop_auto_routes(model: SentenceTransformer) -> SentenceTransformer:
    """The model without automatic routes, which were fitted to its experts as they were before this run."""
    if not isinstance(model, AutoRoutedEncoder):
        return model
    logger.info(
        "the trained model has no automatic routes: train them again with sentence-experts auto-route"
    )
    return model.without_auto_routes()


def train_steps(
    trainer: Trainer, out: Path, config: RunConfig, figure: Figure, checkpoint: str | None
) -> None:
    """Train to the last step, or until the figure rises no more, from a checkpoint if there is one."""
    for theirs in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(theirs)
    with progress(f"train {out.name}", trainer.args.max_steps) as advance:
        for callback in (*_loggers(out, config), Progress(advance, figure.shown)):
            trainer.add_callback(callback)
        trainer.train(resume_from_checkpoint=checkpoint)


def keep_best(
    trainer: Trainer, max_length: int | None, out: Path, identity: dict[str, Any], figure: Figure, card: Card
) -> dict[str, Any]:
    """Write the best checkpoint's model, its card and the run's figures.

    Args:
        trainer: after training; it has loaded the best checkpoint.
        max_length: the model's own, in tokens, whatever the run cut texts to.
        out: the run's folder.
        identity: what the run is of.
        figure: what chose the best step.
        card: makes the model's README.md.

    Raises:
        InputError: the run ended before any validation.
    """
    state = trainer.state
    if state.best_model_checkpoint is None:
        raise InputError(
            f"the run ended at step {state.global_step} before any validation: too few of the training texts "
            "differ for batches of this size; lower --batch-size, or give more pairs"
        )
    result = {
        **identity,
        **trainer.loss.learned(),
        "steps": state.global_step,
        "best_step": state.best_global_step,
        f"best_validation_{figure.name}": state.best_metric,
        "history": [
            {
                key: value
                for key, value in entry.items()
                if key == "step" or key.startswith("eval_validation_")
            }
            for entry in state.log_history
            if figure.metric in entry
        ],
        "losses": [[entry["step"], entry["loss"]] for entry in state.log_history if "loss" in entry],
    }
    best = load(state.best_model_checkpoint)
    best.max_seq_length = max_length
    if identity["config"]["lora_rank"]:
        save_adapter(best, out / "adapter")
        merge_lora(best)
    with replacing_folder(out / "model") as folder:
        best.save_pretrained(str(folder), create_model_card=False)
        write_text(folder / "README.md", card(best, result))
    write_json(out / "run.json", result)
    return result


def check_loggers(config: RunConfig) -> None:
    """Whether the loggers that are asked for are installed.

    Raises:
        SentenceExpertsError: one is not.
    """
    for name, wanted in (("tensorboard", config.tensorboard), ("wandb", config.wandb)):
        if wanted:
            require(name, name)


def _loggers(out: Path, config: RunConfig) -> list[TrainerCallback]:
    """TensorBoard and Weights & Biases, where asked for."""
    loggers: list[TrainerCallback] = []
    if config.tensorboard:
        from torch.utils.tensorboard import SummaryWriter

        loggers.append(TensorBoardCallback(SummaryWriter(out / "logs")))
    if config.wandb:
        loggers.append(WandbCallback())
    return loggers
