"""One training run: a model, a pairs dataset and a config -> the best model by validation F1max."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.sampler import BatchSamplers, MultiDatasetBatchSamplers
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from transformers import EarlyStoppingCallback, ProgressCallback, TrainerCallback, TrainerState, set_seed
from transformers.integrations.integration_utils import TensorBoardCallback, WandbCallback
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import get_last_checkpoint

from sentence_experts.console import progress, say
from sentence_experts.encoding.engine import Encoder
from sentence_experts.errors import InputError, UsageError, require
from sentence_experts.evaluation.evaluator import PairEvaluator
from sentence_experts.models.loading import load_model
from sentence_experts.pairs.dataset import PairsFolder
from sentence_experts.storage import read_json, replacing_folder, write_json, write_text
from sentence_experts.training.callbacks import BadNumbersError, EpochForSwaps, EvaluateLastStep, Progress
from sentence_experts.training.card import model_card
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.data import SwappingCollator, in_batches, routes_for, training_pairs

BEST_BY = "eval_validation_f1_max"
FINISHED = "finished"
REMEDY = "lower --learning-rate, or leave out --bf16, and give another --out"


class Trainer(SentenceTransformerTrainer):
    """The sentence-transformers trainer, stopped at the first bad loss and without its model card."""

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
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

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Nothing: `training.card` writes the card once, at the end."""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        folder = str(output_dir or self.args.output_dir)
        self.model.save_pretrained(folder, create_model_card=False)
        torch.save(self.args, f"{folder}/training_args.bin")


def train(
    model_source: str, pairs: PairsFolder, out: Path, config: TrainConfig, resume: bool = False
) -> dict[str, Any]:
    """Train, and write to `out`: `model/` (the best by validation F1max), config.yaml, run.json, checkpoints.

    The test split is never looked at. With `resume`, an interrupted run goes on from its last checkpoint.

    Returns:
        What stands in `run.json`: steps, the history of validation figures, the best step.

    Raises:
        UsageError: `out` holds a run and `resume` was not asked for, or the run was another one.
        InputError: the model cannot be loaded, or there are too few pairs.
        RouteError: the model has routes, but not for a domain of the pairs.
        BadNumbersError: the loss became NaN or infinite.
    """
    set_seed(config.seed)
    encoder = Encoder.open(model_source)
    model = encoder.model
    identity = {"model": encoder.fingerprint, "pairs": pairs.fingerprint(), "config": config.model_dump()}
    routes = routes_for(model, pairs.domains)
    every_pair = training_pairs(pairs.split("train"), routes)
    data, batches = in_batches(every_pair, config.batches, config.batch_size)
    steps = config.max_steps or max(1, math.floor(batches * config.epochs))
    # Whatever can be wrong with the settings shows before anything is written.
    arguments = _arguments(out, config, steps)
    _check_loggers(config)
    checkpoint = _prepare(out, identity, resume)
    if checkpoint == FINISHED:
        say(f"{out}: this run is finished")
        finished: dict[str, Any] = read_json(out / "run.json")
        return finished
    config.write(out / "config.yaml")
    max_length = model.max_seq_length
    model.max_seq_length = config.max_length or max_length
    trainer = _trainer(model, data, pairs, arguments, config)
    with progress(f"train {out.name}", steps) as advance:
        for callback in (*_loggers(out, config), Progress(advance, BEST_BY)):
            trainer.add_callback(callback)
        trainer.train(resume_from_checkpoint=checkpoint)
    return _keep_best(trainer.state, max_length, pairs, out, identity)


def _keep_best(
    state: TrainerState, max_length: int | None, pairs: PairsFolder, out: Path, identity: dict[str, Any]
) -> dict[str, Any]:
    """Write the best checkpoint's model, its card and the run's figures."""
    result = {
        **identity,
        "steps": state.global_step,
        "best_step": state.best_global_step,
        "best_validation_f1_max": state.best_metric,
        "history": [
            {
                key: value
                for key, value in entry.items()
                if key == "step" or key.startswith("eval_validation_")
            }
            for entry in state.log_history
            if BEST_BY in entry
        ],
        "losses": [[entry["step"], entry["loss"]] for entry in state.log_history if "loss" in entry],
    }
    best = load_model(str(state.best_model_checkpoint))
    best.max_seq_length = max_length
    with replacing_folder(out / "model") as folder:
        best.save_pretrained(str(folder), create_model_card=False)
        write_text(folder / "README.md", model_card(best, pairs, result))
    write_json(out / "run.json", result)
    return result


def _prepare(out: Path, identity: dict[str, Any], resume: bool) -> str | None:
    """Where to go on from: a checkpoint, `FINISHED`, or None for the beginning."""
    started = out / "started.json"
    if not started.exists() and out.exists() and any(out.iterdir()):
        raise UsageError(f"{out}: not empty and not a training run; give another --out")
    checkpoint = get_last_checkpoint(str(out / "checkpoints")) if (out / "checkpoints").exists() else None
    if checkpoint is None and not (out / "run.json").exists():
        # Nothing to lose: no run yet, or one that stopped before its first checkpoint.
        out.mkdir(parents=True, exist_ok=True)
        write_json(started, identity)
        return None
    if not resume:
        raise UsageError(f"{out}: holds a run already; go on with --resume, or give another --out")
    before = read_json(started)
    for key, value in identity.items():
        if before[key] != value:
            raise UsageError(f"{out}: this run was started with another {key}: {before[key]}")
    return FINISHED if (out / "run.json").exists() else checkpoint


def _trainer(
    model: SentenceTransformer,
    data: Dataset | DatasetDict,
    pairs: PairsFolder,
    arguments: SentenceTransformerTrainingArguments,
    config: TrainConfig,
) -> Trainer:
    collator = SwappingCollator(preprocess_fn=model.preprocess, seed=config.seed)
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=data,
        loss=_loss(model, config),
        evaluator=PairEvaluator(pairs.split("validation"), batch_size=config.batch_size),
        data_collator=collator if config.swap else None,
        callbacks=[
            EarlyStoppingCallback(config.patience),
            EpochForSwaps(collator),
            EvaluateLastStep(),
        ],
    )
    for theirs in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(theirs)
    return trainer


def _check_loggers(config: TrainConfig) -> None:
    """Whether the loggers that are asked for are installed."""
    for name, wanted in (("tensorboard", config.tensorboard), ("wandb", config.wandb)):
        if wanted:
            require(name, name)


def _loggers(out: Path, config: TrainConfig) -> list[TrainerCallback]:
    """TensorBoard and Weights & Biases, where asked for."""
    loggers: list[TrainerCallback] = []
    if config.tensorboard:
        from torch.utils.tensorboard import SummaryWriter

        loggers.append(TensorBoardCallback(SummaryWriter(out / "logs")))
    if config.wandb:
        loggers.append(WandbCallback())
    return loggers


def _loss(model: SentenceTransformer, config: TrainConfig) -> torch.nn.Module:
    if config.cache_mini_batch is None:
        return MultipleNegativesRankingLoss(model, scale=config.scale)
    return CachedMultipleNegativesRankingLoss(
        model, scale=config.scale, mini_batch_size=config.cache_mini_batch
    )


def _arguments(out: Path, config: TrainConfig, steps: int) -> SentenceTransformerTrainingArguments:
    if config.bf16 and not (torch.cuda.is_available() and torch.cuda.is_bf16_supported()):
        raise UsageError("--bf16: there is no GPU here that computes in bfloat16; leave it out")
    return SentenceTransformerTrainingArguments(
        output_dir=str(out / "checkpoints"),
        max_steps=steps,
        per_device_train_batch_size=config.batch_size,
        # A text that occurs twice in a batch would be its own negative.
        batch_sampler=BatchSamplers.NO_DUPLICATES,
        multi_dataset_batch_sampler=MultiDatasetBatchSamplers.PROPORTIONAL,
        dataloader_drop_last=True,
        learning_rate=config.learning_rate,
        warmup_steps=config.warmup,
        lr_scheduler_type=config.scheduler,
        weight_decay=config.weight_decay,
        eval_strategy="steps",
        eval_steps=config.eval_steps,
        save_strategy="steps",
        save_steps=config.eval_steps,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model=BEST_BY,
        greater_is_better=True,
        logging_steps=10,
        logging_nan_inf_filter=False,
        bf16=config.bf16,
        activation_checkpointing=config.gradient_checkpointing,
        dataloader_pin_memory=torch.cuda.is_available(),
        report_to="none",
        disable_tqdm=True,
        seed=config.seed,
        data_seed=config.seed,
    )
