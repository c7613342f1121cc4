"""Whether a run's options mean something together, and for the model that is trained."""

from __future__ import annotations

import torch
from sentence_transformers import SentenceTransformer

from sentence_experts.errors import UsageError
from sentence_experts.models.learned_router import LEARNED
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.router_losses import RouterTraining, routed_model
from sentence_experts.training.trainable import EXPERTS


def has_learned_router(model: SentenceTransformer) -> bool:
    """Whether the model chooses its experts itself."""
    routed = routed_model(model)
    return routed is not None and routed.config.router == LEARNED


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
    experts = any(EXPERTS in name for name, _ in model.named_parameters())
    pairs_only = config.loss != "in_batch_negatives"
    alone = config.only_expert is not None
    problems = {
        "--scale: argmax_target takes dot products as they are": config.loss == "argmax_target"
        and config.scale != default["scale"],
        f"--hard-negatives: {config.loss} knows pairs alone": pairs_only and config.hard_negatives > 0,
        "--hard-negatives and --no-mask-known: a mined text may be another pair's positive": (
            config.hard_negatives > 0 and not config.mask_known
        ),
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
        and not experts,
        "--router-loss: the model has no learned router": not learned
        and config.router_loss != default["router_loss"],
        "--router-learning-rate: the model has no learned router": not learned
        and config.router_learning_rate != default["router_learning_rate"],
        "--balance-loss: the model has no learned router": config.balance_loss > 0 and not learned,
        "--route-by router: the model has no learned router": config.route_by == "router" and not learned,
        "--bf16: there is no GPU here that computes in bfloat16; leave it out": config.bf16
        and not (torch.cuda.is_available() and torch.cuda.is_bf16_supported()),
    }
    for problem, is_so in problems.items():
        if is_so:
            raise UsageError(problem)
