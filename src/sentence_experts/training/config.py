"""The settings of `train`, `tune` and `fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sentence_experts.config import Config, Names, NamesWithCommas, Seed

# The control of MoTE's task-aware training: the same batches and temperature for all tasks (Romero 2025, note
# of Table 4).
STATIC_BATCHES = "heterogeneous"
STATIC_TEMPERATURE = 0.03
AUTO_BATCHES: Literal["auto"] = "auto"


# The variants of the contrastive loss (`ContrastiveLoss`).
IN_BATCH_NEGATIVES, ARGMAX_TARGET, LEARNED_TEMPERATURE = LOSSES = (
    "in_batch_negatives",
    "argmax_target",
    "learned_temperature",
)


class TrainConfig(Config):
    """Settings of `train`. A route is a domain or a task."""

    routes: NamesWithCommas | None = Field(
        None,
        min_length=1,
        description="Train and validate on these domains or tasks only; others change with the weights that "
        "they share with these (see `only_expert`)",
    )
    fraction: float = Field(
        1.0, gt=0, le=1, description="Fraction of each route's training pairs to use, sampled at random"
    )
    epochs: float = Field(1.0, gt=0, description="Passes over the training pairs")
    max_steps: int | None = Field(None, ge=1, description="Maximum number of steps; overrides `epochs`")
    batch_size: int = Field(
        32,
        ge=2,
        description="Pairs per batch and process; the other pairs of the batch are a pair's negatives",
    )
    batches: Literal["auto", "homogeneous", "heterogeneous", "mixed"] = Field(
        AUTO_BATCHES,
        description="Where a batch comes from: homogeneous (one domain, or one dataset of a task), "
        "heterogeneous (all datasets of a task), mixed (all routes) or auto (tasks: as the task file says; "
        "domains: homogeneous where each has its own expert, mixed where texts choose experts or all share "
        "one model; domains too small to fill a batch share mixed ones)",
    )
    curriculum: Literal["task_aware", "static"] = Field(
        "task_aware",
        description="task_aware (each route's own batches and temperature) or static (the control: "
        f"{STATIC_BATCHES} batches and temperature {STATIC_TEMPERATURE} for all routes)",
    )
    swap: bool = Field(True, description="Swap anchor and positive of linked pairs at random")
    instructions: bool = Field(True, description="Put the tasks' instructions in front of the texts")
    loss: Literal["in_batch_negatives", "argmax_target", "learned_temperature"] = Field(
        "in_batch_negatives",
        description="in_batch_negatives (cosines over the temperature), argmax_target (of the 2025 paper) or "
        "learned_temperature (of the 2024 preprint); the latter two take no negatives of the pairs",
    )
    temperature: float | None = Field(
        None,
        gt=0,
        description="Temperature of the loss, for all routes; a learned one starts here. Default: 0.05 for "
        "domains, and what the task file says for each task",
    )
    temperatures: dict[str, Annotated[float, Field(gt=0)]] | None = Field(
        None, min_length=1, description="Temperature per route; overrides `temperature`"
    )
    mask_known: bool = Field(
        True, description="Leave out negatives that are known positives: linked papers, texts of one label"
    )
    route_by: Literal["router", "domain"] = Field(
        "router",
        description="Expert of a training text in a model with a learned sequence router: the router's "
        "choice, or its domain's expert (the preprint's; in mixed batches experts then learn to tell domains "
        "apart, which misleads them where the router errs)",
    )
    router_loss: float = Field(
        1.0, ge=0, description="Weight of a learned sequence router's cross-entropy to the domain"
    )
    balance_loss: float | None = Field(
        None,
        ge=0,
        description="Weight of a learned router's load balancing. Default: 0 for a sequence router, 0.01 "
        "for a token router",
    )
    cache_mini_batch: int | None = Field(
        None,
        ge=1,
        description="Gradient caching: number of pairs in memory at once; loss and gradient stay the same",
    )
    freeze: Literal["none", "shared"] = Field(
        "none",
        description="Weights that are not trained: none or shared (all but experts, route tokens, heads and "
        "routers). A model with heads is always trained so",
    )
    only_expert: str | None = Field(
        None,
        description="Train only this expert and its route tokens, or the head of this route; all other "
        "routes stay unchanged, but for heads and adapters that sit on it",
    )
    lora_rank: int | None = Field(
        None, ge=1, description="Train low-rank matrices of this rank in place of the attention's weights"
    )
    learning_rate: float = Field(2e-5, gt=0, description="Peak learning rate")
    router_learning_rate: float = Field(
        1e-3, gt=0, description="Peak learning rate of a learned router, which starts from random weights"
    )
    warmup: float = Field(0.1, ge=0, lt=1, description="Share of the steps in which the learning rate rises")
    warmup_steps: int | None = Field(
        None, ge=0, description="Number of steps in which the learning rate rises; in place of `warmup`"
    )
    scheduler: Literal["cosine", "linear", "constant_with_warmup", "one_cycle"] = Field(
        "cosine", description="Learning rate after the warmup"
    )
    weight_decay: float = Field(0.01, ge=0, description="Weight decay of AdamW")
    max_length: int | None = Field(None, ge=8, description="Maximum number of tokens per text while training")
    eval_steps: int = Field(100, ge=1, description="Steps between two validations, each with a checkpoint")
    keep: Literal["best", "last"] = Field(
        "best",
        description="Step whose model is kept: best (with the highest mean of the routes' validation "
        "figures) or last (of all steps; `patience` does not stop the run)",
    )
    patience: int = Field(
        5, ge=1, description="Number of validations without a better figure after which training stops"
    )
    pair_metric: Literal["roc_auc", "f1_max", "pooled_f1_max"] = Field(
        "roc_auc",
        description="Validation metric of domains, by which the best step is chosen: roc_auc or f1_max (a "
        "maximum, which chance moves more) per domain, or pooled_f1_max over the pairs of all domains "
        "together (the published protocols)",
    )
    bf16: bool = Field(False, description="Compute in bfloat16; needs a GPU that supports it")
    gradient_checkpointing: bool = Field(False, description="Use less memory and more computation")
    tensorboard: bool = Field(False, description="Log to TensorBoard, in the folder `logs` of the run")
    wandb: bool = Field(False, description="Log to Weights & Biases")
    keep_checkpoints: bool = Field(
        False,
        description="Keep the last checkpoints of a finished run; with the optimizer's state, each is three "
        "times as large as the model",
    )
    seed: Seed = Field(0, description="Random seed of the sampled pairs, batches, swaps and dropout")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        one_expert, adapter = self.only_expert is not None, self.lora_rank is not None
        is_argmax, is_learned = self.loss == ARGMAX_TARGET, self.loss == LEARNED_TEMPERATURE
        temperature = self.temperature is not None or self.temperatures is not None
        own = self.temperature is not None and self.batches != AUTO_BATCHES
        share = self.warmup != type(self).model_fields["warmup"].default
        effect = f"has no effect with `loss={self.loss}`"
        problems = (
            (share and self.warmup_steps is not None, "`warmup` and `warmup_steps`: give one of them"),
            (one_expert and self.freeze != "none", "`only_expert` and `freeze`: only the expert is trained"),
            (one_expert and adapter, "`only_expert` and `lora_rank`: adapters would change every route"),
            (adapter and self.freeze != "none", "`lora_rank` and `freeze`: adapters change shared weights"),
            (
                own and self.curriculum == "static",
                "`curriculum=static` has no effect beside `batches` and `temperature`: leave one of them out",
            ),
            (temperature and is_argmax, f"`temperature` {effect}, which uses plain dot products"),
            (self.temperatures and is_learned, f"`temperatures` {effect}, which learns a single one"),
        )
        for applies, problem in problems:
            if applies:
                raise ValueError(problem)
        return self


class TuneConfig(TrainConfig):
    """Settings of `tune`; settings of `train` are the same for all trials."""

    fraction: float = Field(
        0.1, gt=0, le=1, description="Fraction of each route's training pairs that the trials use"
    )
    trials: int = Field(
        20, ge=1, description="Number of trials, including trials of an interrupted or finished search"
    )


class FitConfig(Config):
    """Settings of `fit`, which learns routes from the label columns of a table."""

    text: Names = Field(
        [],
        description="Columns with the texts, joined line by line. Default: title and abstract of a corpus; "
        "needed for a table of several columns",
    )
    by: Names = Field(
        [],
        description="Label columns, one route each: COLUMN, or COLUMN:BRANCH of a hierarchy (tags:use for "
        "labels such as use::viewing, mesh:C for tree numbers), with ROUTE= in front to name the route",
    )
    group: str | None = Field(
        None,
        description="Column of groups, such as a source or an author: texts of one group are never a pair, "
        "and all are in one of the sets for training, validation and test",
    )
    mesh_descriptors: Path | None = Field(
        None,
        description="NLM's MeSH descriptor XML (desc20XX.xml), which gives headings their tree numbers, for "
        "branches such as mesh:C",
    )
    separator: str | None = Field(
        None, min_length=1, description="Stands between labels in one cell. Default: ; and |"
    )
    bins: int = Field(
        5, ge=2, le=1000, description="Number of bins for a column of more than 20 different numbers"
    )
    kind: Literal["head", "adapter", "expert", "auto"] = Field(
        "head",
        description="Part that each route owns: head (a linear map, trained in seconds on vectors "
        "that are computed once), adapter, expert, or auto (heads, then each next kind while it is better)",
    )
    rank: int | None = Field(
        None,
        ge=1,
        description="Rank of a head's difference from the identity, or of an adapter; experts have none. "
        "Default: any, or 8",
    )
    steps: int = Field(
        500,
        ge=1,
        description="Maximum number of training steps: of each head, with 64 pairs; of all adapters or "
        "experts together, with 16 pairs",
    )
    max_length: int | None = Field(
        None,
        ge=8,
        description="Maximum number of tokens per text, if the model would read more; the new model keeps "
        "it, so it is not for models with routes. Adapters and experts are trained on 64 tokens at most",
    )
    seed: Seed = 0

    @model_validator(mode="after")
    def _check_rank(self) -> FitConfig:
        if self.kind == "expert" and self.rank is not None:
            raise ValueError("`rank` has no effect with `kind=expert`: leave it out")
        return self
