"""One training run on tasks: a model, a tasks folder and a config -> the best model by validation nDCG@10."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from transformers import EarlyStoppingCallback, set_seed

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.models.loading import load
from sentence_experts.models.surgery.lora import add_lora
from sentence_experts.tasks.dataset import TasksFolder
from sentence_experts.training import processes
from sentence_experts.training.arguments import training_arguments
from sentence_experts.training.callbacks import EvaluateLastStep
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
from sentence_experts.training.options import (
    balance_weight,
    has_learned_router,
    has_token_router,
    problems_of_any_run,
    refuse,
)
from sentence_experts.training.task_batches import TaskBatches
from sentence_experts.training.task_card import task_card
from sentence_experts.training.task_config import TaskConfig
from sentence_experts.training.task_data import (
    TaskCollator,
    TrainedTask,
    TrainingTasks,
    chosen_tasks,
    settings_of,
)
from sentence_experts.training.task_evaluator import NDCG, TaskEvaluator
from sentence_experts.training.task_loss import TaskLoss
from sentence_experts.training.trainable import choose_trainable
from sentence_experts.training.trainer import Trainer

logger = logging.getLogger(__name__)


class TaskTrainer(Trainer):
    """The trainer, with batches drawn by task.

    Attributes:
        batches: those of the whole run.
    """

    batches: TaskBatches

    def get_batch_sampler(self, *args: Any, **kwargs: Any) -> TaskBatches:
        """The batches of the whole run."""
        return self.batches


def train_tasks(
    model_source: str, folder: TasksFolder, out: Path, config: TaskConfig, resume: bool = False
) -> dict[str, Any]:
    """Train on tasks, and write to `out`: `model/`, config.yaml, run.json, checkpoints.

    The model is the best by the mean over the tasks of nDCG@10 on their validation splits
    (`task_evaluator`); the test splits are never looked at. With `resume`, an interrupted run goes on from
    its last checkpoint. Several processes (`torchrun`) train together; the first alone writes.

    Returns:
        What stands in `run.json`: steps, the history of validation figures, the best step.

    Raises:
        UsageError: `out` holds a run and `resume` was not asked for, the run was another one, or an option
            means nothing for these tasks or this model.
        InputError: the model cannot be loaded, or there are too few pairs.
        RouteError: the model has routes, but not those of the tasks.
        BadNumbersError: the loss became NaN or infinite.
    """
    processes.let_first_speak()
    set_seed(config.seed)
    encoder = BatchEncoder(load(model_source, int8=False))
    model = encoder.model
    identity = {
        "model": encoder.fingerprint,
        "tasks": folder.fingerprint(),
        "config": config.model_dump(),
        "processes": processes.count(),
    }
    # Whatever can be wrong with the settings shows before anything is written.
    settings, undecayed = check_task_settings(model, folder, config)
    batches = TaskBatches(
        TrainingTasks.of(folder, settings), config.batch_size, processes.count(), seed=config.seed
    )
    batches.steps = config.max_steps or max(1, math.floor(batches.groups_in_a_pass() * config.epochs))
    evaluator = TaskEvaluator.of(folder, settings, config.batch_size)
    if config.lora_rank is not None:
        add_lora(model, config.lora_rank, config.lora_alpha)
    arguments = training_arguments(out, config, batches.steps, model, NDCG_FIGURE.metric)
    checkpoint = processes.once(lambda: _begin(out, identity, config, resume))
    if checkpoint == FINISHED:
        return finished(out)
    model = drop_auto_routes(model)
    take_instructions(model, folder, settings)
    max_length = model.max_seq_length
    model.max_seq_length = config.max_length or max_length
    trainer = _trainer(model, batches, evaluator, arguments, config)
    trainer.undecayed = undecayed
    figure = Figure(NDCG, {**NDCG_FIGURE.shown, **_of_tasks(settings)})
    train_steps(trainer, out, config, figure, checkpoint)
    card = lambda best, result: task_card(best, batches.tasks, folder, result)  # noqa: E731
    result: dict[str, Any] = processes.once(
        lambda: keep_best(trainer, max_length, out, identity, figure, card)
    )
    return result


NDCG_FIGURE = Figure(NDCG, {f"eval_validation_{NDCG}": "nDCG@10"})


def _of_tasks(settings: tuple[TrainedTask, ...]) -> dict[str, str]:
    return {f"eval_validation_{task.name}_{NDCG}": task.name for task in settings}


def _begin(out: Path, identity: dict[str, Any], config: TaskConfig, resume: bool) -> str | None:
    checkpoint = prepare(out, identity, resume)
    if checkpoint != FINISHED:
        config.write(out / "config.yaml")
    return checkpoint


def check_task_settings(
    model: SentenceTransformer, folder: TasksFolder, config: TaskConfig
) -> tuple[tuple[TrainedTask, ...], list[str]]:
    """Whether the settings suit the model and the tasks, however many pairs there are; freezes weights.

    Returns:
        How each task is trained, and as `choose_trainable`.

    Raises:
        UsageError: an option means nothing for this model, or there is no such task.
        RouteError: the model has routes, but not those of the tasks.
        SentenceExpertsError: a logger is not installed.
    """
    by_token = has_token_router(model)
    problems = {
        "--balance-loss: the model has no token-level router": config.balance_loss is not None
        and not by_token,
        "--tasks: a learned router of whole sequences is trained on pairs; give the model routes, or a "
        "token-level router": has_learned_router(model),
        "--only-expert: a token-level router may send any token to the expert that changes": by_token
        and config.only_expert is not None,
    }
    refuse({**problems, **problems_of_any_run(config, model)})
    tasks = chosen_tasks(folder, config, model)
    settings = settings_of(tasks, config)
    undecayed = choose_trainable(model, config)
    check_loggers(config)
    if len(tasks) < len(folder.hierarchy.trainable()):
        logger.info(f"only these tasks are read: {', '.join(task.name for task in tasks)}")
    return settings, undecayed


def take_instructions(
    model: SentenceTransformer, folder: TasksFolder, settings: tuple[TrainedTask, ...]
) -> None:
    """Give a model without routes the instructions it is trained with as prompts, so that it is used so."""
    for task in settings:
        if any(task.instructions):
            for route, instruction in folder.hierarchy.task(task.name).instructions.items():
                before = model.prompts.get(route)
                if before and before != instruction:
                    logger.info(f"the model's prompt {route!r} was {before!r}; it is now {instruction!r}")
                model.prompts[route] = instruction


def _trainer(
    model: SentenceTransformer,
    batches: TaskBatches,
    evaluator: TaskEvaluator,
    arguments: SentenceTransformerTrainingArguments,
    config: TaskConfig,
) -> TaskTrainer:
    tasks = batches.tasks
    trainer = TaskTrainer(
        model=model,
        args=arguments,
        train_dataset=tasks.rows,
        loss=TaskLoss(
            model,
            [task.temperature for task in tasks.settings],
            cache_mini_batch=config.cache_mini_batch,
            balance=balance_weight(model, config),
        ),
        evaluator=evaluator,
        data_collator=TaskCollator(preprocess_fn=model.preprocess),
        callbacks=[EarlyStoppingCallback(config.patience), EvaluateLastStep()],
    )
    trainer.batches = batches
    trainer.use_one_cycle = config.scheduler == "one_cycle"
    return trainer
