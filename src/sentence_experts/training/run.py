"""One training run: a model, a pairs dataset and a config -> the best model by validation F1max."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from transformers import EarlyStoppingCallback, ProgressCallback, TrainerCallback, set_seed
from transformers.integrations.integration_utils import TensorBoardCallback, WandbCallback
from transformers.trainer_callback import PrinterCallback

from sentence_experts.console import progress, say
from sentence_experts.encoding.engine import Encoder
from sentence_experts.errors import InputError, UsageError, require
from sentence_experts.evaluation.evaluator import PairEvaluator
from sentence_experts.models.loading import load_model
from sentence_experts.models.lora import add_lora, merge_lora, save_adapter
from sentence_experts.pairs.dataset import PairsFolder
from sentence_experts.storage import read_json, replacing_folder, write_json, write_text
from sentence_experts.training.arguments import BEST_BY, training_arguments
from sentence_experts.training.callbacks import EpochForSwaps, EvaluateLastStep, Progress
from sentence_experts.training.card import model_card
from sentence_experts.training.checkpoints import last_whole_checkpoint
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.data import (
    SwappingCollator,
    TrainingPairs,
    experts_for,
    pairs_of,
    routes_for,
    trained_domains,
)
from sentence_experts.training.hard_negatives import with_hard_negatives
from sentence_experts.training.losses import LearnedTemperature, make_loss
from sentence_experts.training.options import check_options, router_training
from sentence_experts.training.trainable import choose_trainable
from sentence_experts.training.trainer import Trainer

FINISHED = "finished"
HARD_NEGATIVES = "hard_negatives.parquet"


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
    # Whatever can be wrong with the settings shows before anything is written.
    undecayed = check_settings(model, pairs, config)
    training = TrainingPairs.of(pairs, trained_domains(pairs, config, model), model)
    batches = training.batches(config)
    steps = config.max_steps or max(1, math.floor(batches * config.epochs))
    if config.lora_rank is not None:
        add_lora(model, config.lora_rank, config.lora_alpha)
    arguments = training_arguments(out, config, steps, model)
    checkpoint = _prepare(out, identity, resume)
    if checkpoint == FINISHED:
        say(f"{out}: this run is finished")
        finished: dict[str, Any] = read_json(out / "run.json")
        return finished
    config.write(out / "config.yaml")
    if config.only_expert is not None:
        say(f"--only-expert {config.only_expert}: only the pairs of {', '.join(training.domains)} are read")
    _drop_auto_routes(model)
    max_length = model.max_seq_length
    model.max_seq_length = config.max_length or max_length
    if config.hard_negatives:
        training = with_hard_negatives(training, model, config.hard_negatives, out / HARD_NEGATIVES)
    trainer = _trainer(model, training, pairs, arguments, config)
    trainer.undecayed = undecayed
    with progress(f"train {out.name}", steps) as advance:
        for callback in (*_loggers(out, config), Progress(advance, BEST_BY)):
            trainer.add_callback(callback)
        trainer.train(resume_from_checkpoint=checkpoint)
    return _keep_best(trainer, max_length, pairs, out, identity)


def check_settings(model: SentenceTransformer, pairs: PairsFolder, config: TrainConfig) -> list[str]:
    """Whether the settings suit the model and the domains, however many pairs there are; freezes weights.

    Returns:
        As `choose_trainable`.

    Raises:
        UsageError: an option means nothing for this model, or the dataset lacks a domain.
        RouteError: the model has routes or experts, but not for a domain.
        SentenceExpertsError: a logger is not installed.
    """
    check_options(config, model)
    undecayed = choose_trainable(model, config)
    domains = trained_domains(pairs, config, model)
    routes_for(model, domains)
    experts_for(model, domains)
    _check_loggers(config)
    return undecayed


def _drop_auto_routes(model: SentenceTransformer) -> None:
    """Automatic routes were fitted to the experts as they were before this run."""
    if getattr(model, "auto_routes", None) is not None:
        model.auto_routes = None  # type: ignore[assignment]
        say("the trained model has no automatic routes: train them again with sentence-experts auto-route")


def _keep_best(
    trainer: Trainer, max_length: int | None, pairs: PairsFolder, out: Path, identity: dict[str, Any]
) -> dict[str, Any]:
    """Write the best checkpoint's model, its card and the run's figures."""
    state = trainer.state
    if state.best_model_checkpoint is None:
        raise InputError(
            f"the run ended at step {state.global_step} before any validation: too few of the training texts "
            "differ for batches of this size; lower --batch-size, or give more pairs"
        )
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
    if isinstance(trainer.loss, LearnedTemperature):
        # The trainer has loaded the best checkpoint, so this is its temperature.
        result["temperature"] = 1 / trainer.loss.scale
    best = load_model(str(state.best_model_checkpoint))
    best.max_seq_length = max_length
    if identity["config"]["lora_rank"]:
        save_adapter(best, out / "adapter")
        merge_lora(best)
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
    checkpoint = last_whole_checkpoint(out / "checkpoints")
    if checkpoint is None and not (out / "run.json").exists():
        # Nothing to lose: no run yet, or one that stopped before its first checkpoint.
        out.mkdir(parents=True, exist_ok=True)
        (out / HARD_NEGATIVES).unlink(missing_ok=True)
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
    training: TrainingPairs,
    pairs: PairsFolder,
    arguments: SentenceTransformerTrainingArguments,
    config: TrainConfig,
) -> Trainer:
    validation = pairs_of(pairs.split("validation"), training.domains)
    collator = SwappingCollator(preprocess_fn=model.preprocess, seed=config.seed)
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=training.dataset(config.batches),
        loss=make_loss(
            model, config, training.known if config.mask_known else None, router_training(model, config)
        ),
        evaluator=PairEvaluator(validation, batch_size=config.batch_size),
        data_collator=collator if config.swap else None,
        callbacks=[
            EarlyStoppingCallback(config.patience),
            EpochForSwaps(collator),
            EvaluateLastStep(),
        ],
    )
    trainer.use_one_cycle = config.scheduler == "one_cycle"
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
