"""A run's settings in the words of the sentence-transformers trainer."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import BatchSamplers, MultiDatasetBatchSamplers

from sentence_experts.models.storage.weight_names import ROUTERS
from sentence_experts.training import processes
from sentence_experts.training.config import RunConfig
from sentence_experts.training.schedules import check_one_cycle
from sentence_experts.training.trainable import EXPERTS


def training_arguments(
    out: Path, config: RunConfig, steps: int, model: SentenceTransformer, best_by: str
) -> SentenceTransformerTrainingArguments:
    """The trainer's arguments for a run of so many steps on this model; `best_by` chooses the best one.

    Where several processes train together, this joins them.

    Raises:
        UsageError: there are too few steps for the schedule.
    """
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(out / "checkpoints"),
        max_steps=steps,
        per_device_train_batch_size=config.batch_size,
        # A text that occurs twice in a batch would be its own negative.
        batch_sampler=BatchSamplers.NO_DUPLICATES,
        multi_dataset_batch_sampler=MultiDatasetBatchSamplers.PROPORTIONAL,
        dataloader_drop_last=True,
        learning_rate=config.learning_rate,
        learning_rate_mapping=_rates(config, model),
        # The trainer reads a number below one as a share of the steps.
        warmup_steps=config.warmup if config.warmup_steps is None else config.warmup_steps,
        # The trainer of this package makes the one cycle itself.
        lr_scheduler_type="constant" if config.scheduler == "one_cycle" else config.scheduler,
        weight_decay=config.weight_decay,
        eval_strategy="steps",
        eval_steps=config.eval_steps,
        save_strategy="steps",
        save_steps=config.eval_steps,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model=best_by,
        greater_is_better=True,
        logging_steps=10,
        logging_nan_inf_filter=False,
        bf16=config.bf16,
        activation_checkpointing=config.gradient_checkpointing,
        dataloader_pin_memory=torch.cuda.is_available(),
        # An expert that no text of a step is routed to gets no gradient in it.
        ddp_find_unused_parameters=True,
        # Processes without a GPU have to be told, or each would train alone.
        use_cpu=processes.count() > 1 and not torch.cuda.is_available(),
        report_to="none",
        disable_tqdm=True,
        seed=config.seed,
        data_seed=config.seed,
    )
    if config.scheduler == "one_cycle":
        check_one_cycle(steps, arguments.get_warmup_steps(steps))
    return arguments


def _rates(config: RunConfig, model: SentenceTransformer) -> dict[str, float]:
    """Part of a weight's name -> its own peak learning rate, for the parts that the model has."""
    rates = {ROUTERS: config.router_learning_rate, EXPERTS: config.expert_learning_rate}
    names = [name for name, _ in model.named_parameters()]
    return {
        re.escape(part): rate
        for part, rate in rates.items()
        if rate is not None and any(part in name for name in names)
    }
