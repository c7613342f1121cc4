"""One training run: a model, a pairs dataset and a config -> the best model by validation F1max."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from transformers import EarlyStoppingCallback, set_seed

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import UsageError
from sentence_experts.evaluation.evaluator import PairEvaluator
from sentence_experts.models.loading import load
from sentence_experts.models.surgery.lora import add_lora
from sentence_experts.pairs.dataset import PairsFolder
from sentence_experts.training import processes
from sentence_experts.training.arguments import training_arguments
from sentence_experts.training.callbacks import EpochForSwaps, EvaluateLastStep
from sentence_experts.training.card import model_card
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
from sentence_experts.training.lifecycle import (
    FINISHED,
    Figure,
    check_loggers,
    drop_auto_routes,
    finished,
    keep_best,
    prepare,
    train_steps,
)
from sentence_experts.training.losses import make_loss
from sentence_experts.training.options import check_options, router_training
from sentence_experts.training.trainable import choose_trainable
from sentence_experts.training.trainer import Trainer

logger = logging.getLogger(__name__)

F1_MAX = Figure("f1_max", {"eval_validation_f1_max": "F1max", "eval_validation_roc_auc": "ROC-AUC"})
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
    if processes.count() > 1:
        raise UsageError("--pairs: pairs train in one process; several together are for --tasks")
    set_seed(config.seed)
    encoder = BatchEncoder(load(model_source, int8=False))
    model = encoder.model
    identity = {"model": encoder.fingerprint, "pairs": pairs.fingerprint(), "config": config.model_dump()}
    # Whatever can be wrong with the settings shows before anything is written.
    undecayed = check_settings(model, pairs, config)
    training = TrainingPairs.of(pairs, trained_domains(pairs, config, model), model)
    batches = training.batches(config)
    steps = config.max_steps or max(1, math.floor(batches * config.epochs))
    if config.lora_rank is not None:
        add_lora(model, config.lora_rank, config.lora_alpha)
    arguments = training_arguments(out, config, steps, model, F1_MAX.metric)
    checkpoint = prepare(out, identity, resume, leftovers=[HARD_NEGATIVES])
    if checkpoint == FINISHED:
        return finished(out)
    config.write(out / "config.yaml")
    if config.only_expert is not None:
        logger.info(
            f"--only-expert {config.only_expert}: only the pairs of {', '.join(training.domains)} are read"
        )
    model = drop_auto_routes(model)
    max_length = model.max_seq_length
    model.max_seq_length = config.max_length or max_length
    if config.hard_negatives:
        training = with_hard_negatives(training, model, config.hard_negatives, out / HARD_NEGATIVES)
    trainer = _trainer(model, training, pairs, arguments, config)
    trainer.undecayed = undecayed
    train_steps(trainer, out, config, F1_MAX, checkpoint)
    return keep_best(
        trainer, max_length, out, identity, F1_MAX, lambda best, result: model_card(best, pairs, result)
    )


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
    check_loggers(config)
    return undecayed


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
    return trainer
