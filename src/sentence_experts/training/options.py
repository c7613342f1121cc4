"""Whether a run's options mean something together, and for the model that is trained."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from sentence_transformers import SentenceTransformer

from sentence_experts.errors import UsageError
from sentence_experts.models.routing.sequence_router import LEARNED
from sentence_experts.models.routing.token_router import TOKEN
from sentence_experts.models.storage.weight_names import ROUTERS
from sentence_experts.training.config import RunConfig, TrainConfig
from sentence_experts.training.router_losses import RouterTraining, routed_model
from sentence_experts.training.task_config import TaskConfig
from sentence_experts.training.trainable import EXPERTS

# Of a token-level router's load balancing (Fedus et al. 2022, section 2.2).
BALANCE = 0.01


def has_learned_router(model: SentenceTransformer) -> bool:
    """Whether the model chooses its experts itself."""
    routed = routed_model(model)
    return routed is not None and routed.config.router == LEARNED


def has_token_router(model: SentenceTransformer) -> bool:
    """Whether each token of the model's texts chooses its experts."""
    routed = routed_model(model)
    return routed is not None and routed.config.router == TOKEN


def balance_weight(model: SentenceTransformer, config: TaskConfig) -> float | None:
    """The weight of the load balancing of the model's token routers; None when it has none."""
    if not has_token_router(model):
        return None
    return BALANCE if config.balance_loss is None else config.balance_loss


def router_training(model: SentenceTransformer, config: TrainConfig) -> RouterTraining | None:
    """How the model's learned router is trained; None when it has none."""
    if not has_learned_router(model):
        return None
    return RouterTraining(config.router_loss, config.balance_loss, config.route_by == "domain")


def check_options(config: TrainConfig, model: SentenceTransformer) -> None:
    """Refuse an option that would change nothing, or something else than it says, or cannot be had here.

    Raises:
        UsageError: there is one.
    """
    default = {name: field.default for name, field in TrainConfig.model_fields.items()}
    learned = has_learned_router(model)
    pairs_only = config.loss != "in_batch_negatives"
    problems = {
        "--scale: argmax_target takes dot products as they are": config.loss == "argmax_target"
        and config.scale != default["scale"],
        f"--hard-negatives: {config.loss} knows pairs alone": pairs_only and config.hard_negatives > 0,
        "--hard-negatives and --no-mask-known: a mined text may be another pair's positive": (
            config.hard_negatives > 0 and not config.mask_known
        ),
        "--router-loss: the model has no learned router": not learned
        and config.router_loss != default["router_loss"],
        "--balance-loss: the model has no learned router": config.balance_loss > 0 and not learned,
        "--route-by router: the model has no learned router": config.route_by == "router" and not learned,
    }
    refuse({**problems, **problems_of_any_run(config, model)})


def problems_of_any_run(config: RunConfig, model: SentenceTransformer) -> dict[str, bool]:
    """What may be wrong with the options that every run has -> whether it is."""
    default = {name: field.default for name, field in RunConfig.model_fields.items()}
    names = [name for name, _ in model.named_parameters()]
    alone = config.only_expert is not None
    return {
        "--warmup and --warmup-steps: give one of them": config.warmup_steps is not None
        and config.warmup != default["warmup"],
        "--lora-alpha: there is no adapter without --lora-rank": config.lora_alpha is not None
        and config.lora_rank is None,
        "--freeze attention: an adapter freezes it already, leave this out": config.lora_rank is not None
        and config.freeze == "attention",
        "--only-expert and --freeze: the one expert is all that is trained": alone
        and config.freeze != "none",
        "--only-expert and --lora-rank: an adapter would change every route": alone
        and config.lora_rank is not None,
        "--expert-learning-rate: the model has no experts in its blocks": config.expert_learning_rate
        is not None
        and not any(EXPERTS in name for name in names),
        "--router-learning-rate: the model has no learned router": (
            config.router_learning_rate != default["router_learning_rate"]
            and not any(ROUTERS in name for name in names)
        ),
        "--bf16: there is no GPU here that computes in bfloat16; leave it out": config.bf16
        and not (torch.cuda.is_available() and torch.cuda.is_bf16_supported()),
    }


def refuse(problems: Mapping[str, bool]) -> None:
    """Raise a UsageError with the first problem that there is."""
    for problem, is_so in problems.items():
        if is_so:
            raise UsageError(problem)
