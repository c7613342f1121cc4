"""The routes and the weights that a run trains, and the check that its settings suit the model."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import Tensor

from sentence_experts.errors import RouteError, UsageError, require
from sentence_experts.models.architectures.routed_model import RoutedModel
from sentence_experts.models.layers.weight_names import ADAPTERS, HEADS, ROUTERS, expert_prefix
from sentence_experts.models.loading import load
from sentence_experts.models.routes.kinds import router_kind, router_kind_of
from sentence_experts.models.routes.routes import is_domain_route
from sentence_experts.pairs.dataset import describe_domain
from sentence_experts.training.config import (
    ARGMAX_TARGET,
    AUTO_BATCHES,
    STATIC_BATCHES,
    STATIC_TEMPERATURE,
    TrainConfig,
)
from sentence_experts.training.data import TrainedRoute, TrainingPart, with_batches
from sentence_experts.training.losses import RouterLoss, sequence_router_loss, token_router_loss

logger = logging.getLogger(__name__)

# Weight of a token router's load balancing (Fedus et al. 2022, section 2.2).
TOKEN_BALANCE = 0.01
OF_ROUTERS = ("router_loss", "route_by", "balance_loss", "router_learning_rate")


def find_routed_model(model: Any) -> RoutedModel | None:
    """Return the transformer with experts inside `model`, however it is wrapped; None if there is none."""
    return next((module for module in model.modules() if isinstance(module, RoutedModel)), None)


def find_routes(
    parts: Sequence[TrainingPart], config: TrainConfig, model: SentenceTransformer
) -> tuple[TrainedRoute, ...]:
    """Return the routes that a run learns from; with `only_expert`, those that lead to that expert.

    Raises:
        UsageError: the data lack a route, or none leads to the expert, or weights are missing.
        RouteError: the model lacks a route, or has it with another instruction.
    """
    offered = [route for part in parts for route in part.routes]
    known = [route.name for route in offered]
    for setting, named in (("routes", config.routes or []), ("temperatures", config.temperatures or {})):
        if unknown := [name for name in named if name not in known]:
            raise UsageError(
                f"`{setting}`: no domain or task {', '.join(unknown)} to train on; there are "
                f"{', '.join(known) or 'none, all are only measured'}"
            )
    if not offered:
        raise UsageError("none of the tasks is for training, all are only measured")
    chosen = [route for route in offered if not config.routes or route.name in config.routes]
    if not config.instructions and all(route.kind == "domain" for route in chosen):
        raise UsageError("`instructions=False`: domains have no instructions; leave it out")
    without = [route.name for route in chosen if route.weight is None]
    if 0 < len(without) < len(chosen):
        raise UsageError(f"the task file has no weight for {', '.join(without)}: give all tasks one, or none")
    if config.batches == "mixed" and len(chosen) > 1 and len(without) < len(chosen):
        raise UsageError(
            "`batches=mixed`: weights of tasks draw batches of one task each; leave one of them out"
        )
    routed = find_routed_model(model)
    routes = [_decide(route, config, model, routed) for route in chosen]
    # `choose_trainable` refuses an unknown expert.
    if config.only_expert and routed is not None and config.only_expert in list_owned_parts(routed):
        # Texts of other experts stay as they are, so a batch of them alone would teach nothing.
        number = list_owned_parts(routed).index(config.only_expert)
        routes = [route for route in routes if number in route.experts]
        if not routes:
            names = ", ".join(route.name for route in chosen)
            raise UsageError(f"`only_expert={config.only_expert}`: none of the routes {names} leads to it")
    # Batches of `auto` are mixed, unless fixed routes lead to different experts. Texts of other domains are
    # easy negatives for an expert, which sees its own domain alone: they cost 0.015 to 0.019. A model that
    # all domains share gained 0.006 by them, and a learned router that sees one domain per step collapses
    # (benchmarks/results/studies.md).
    is_auto = [route.batches == AUTO_BATCHES for route in routes]
    experts = {route.experts for route in routes if route.batches == AUTO_BATCHES}
    if len(experts) > 1 and routed is not None and not router_kind(routed.config).is_learned:
        return tuple(routes)
    return with_batches(routes, is_auto, "mixed")


def list_owned_parts(routed: RoutedModel) -> list[str]:
    """Return the names of a model's experts, adapters and heads."""
    config = routed.config
    return [*config.experts, *(each["route"] for each in config.adapters), *config.heads]


def _decide(
    route: TrainedRoute, config: TrainConfig, model: SentenceTransformer, routed: RoutedModel | None
) -> TrainedRoute:
    """Return a route as the settings and the model have it."""
    is_static = config.curriculum == "static"
    batches, temperature = (
        (STATIC_BATCHES, STATIC_TEMPERATURE) if is_static else (route.batches, route.temperature)
    )
    own = (config.temperatures or {}).get(route.name)
    prompts = (
        _choose_prompts(route, config, routed) if route.kind == "task" else (_find_prompt(route, model),) * 2
    )
    return replace(
        route,
        batches=batches if config.batches == AUTO_BATCHES else config.batches,
        temperature=own or config.temperature or temperature,
        prompts=prompts,
        experts=(0, 0) if routed is None else _experts_of(route, routed),
    )


def _find_prompt(route: TrainedRoute, model: SentenceTransformer) -> str:
    """Return the model's prompt of a domain; "" for a model without prompts."""
    prompts = {name: prompt for name, prompt in model.prompts.items() if prompt}
    if prompts and route.name not in prompts:
        known = ", ".join(sorted(prompts))
        dense = find_routed_model(model) is None
        hint = "; `model.prompts = {}` takes them out, to train without prompts" if dense else ""
        raise RouteError(f"the model has no route for {describe_domain(route.name)}; it has {known}{hint}")
    return prompts.get(route.name, "")


def _choose_prompts(route: TrainedRoute, config: TrainConfig, routed: RoutedModel | None) -> tuple[str, str]:
    """Return a task's instructions, which a model with routes must have; nothing without `instructions`."""
    if routed is not None and routed.config.routes:
        if not config.instructions:
            raise RouteError(
                "`instructions=False`: this model finds its expert by the instruction; use a dense model"
            )
        known = {each.name: each.text for each in routed.routes}
        for name, instruction in route.instructions.items():
            if known.get(name) != instruction:
                has = f"has {known[name]!r} for it" if name in known else f"has {', '.join(known)}"
                raise RouteError(
                    f"task {route.name}: the model has no route {name!r} with instruction {instruction!r}, "
                    f"it {has}; extend the base with these tasks, or change the task file"
                )
    if not config.instructions:
        return "", ""
    return route.instructions[route.sides[0]], route.instructions[route.sides[1]]


def _experts_of(route: TrainedRoute, routed: RoutedModel) -> tuple[int, int]:
    """Return the parts that a route's anchors and positives lead to, as places in `list_owned_parts`."""
    experts, parts = routed.config.experts, list_owned_parts(routed)
    known = {name: number for number, name in enumerate(experts)}
    known |= {each.name: each.expert for each in routed.routes}
    known |= {name: number for number, name in enumerate(parts) if number >= len(experts)}
    if missing := [name for name in dict.fromkeys(route.sides) if name not in known]:
        raise RouteError(
            f"the model has no expert for {', '.join(missing)}; it has {', '.join(sorted(known))}"
        )
    return known[route.sides[0]], known[route.sides[1]]


def make_router_loss(model: SentenceTransformer, config: TrainConfig) -> RouterLoss | None:
    """Return the loss of the model's learned routers; None if it has none."""
    kind = router_kind_of(model)
    if kind is None or not kind.is_learned:
        return None
    if kind.per_token:
        return token_router_loss(TOKEN_BALANCE if config.balance_loss is None else config.balance_loss)
    return sequence_router_loss(config.router_loss, config.balance_loss or 0.0, config.route_by == "domain")


def as_float32(model: SentenceTransformer) -> SentenceTransformer:
    """Return a model that can be trained.

    In float16 Adam's squares vanish, and its steps have any size; in bfloat16 most steps are rounded away.
    """
    if (coarse := _coarse_dtype(model)) is None:
        return model
    logger.info(f"{coarse} is too coarse to train in: the weights are trained, and saved, as float32")
    return load(model, dtype="float32")


def _coarse_dtype(model: SentenceTransformer) -> str | None:
    return str(model.dtype).removeprefix("torch.") if model.dtype in (torch.float16, torch.bfloat16) else None


def check_settings(model: SentenceTransformer, config: TrainConfig) -> None:
    """Refuse settings that have no effect on this model, or are not possible here.

    Raises:
        UsageError: there is one.
        SentenceExpertsError: a logger is not installed.
    """
    kind = router_kind_of(model)
    learned = kind is not None and kind.is_learned
    for name in OF_ROUTERS:
        if not learned and getattr(config, name) != TrainConfig.model_fields[name].default:
            raise UsageError(f"`{name}`: the model has no learned router")
    for name in ("router_loss", "route_by"):
        is_given = getattr(config, name) != TrainConfig.model_fields[name].default
        if is_given and kind is not None and kind.per_token:
            raise UsageError(
                f"`{name}`: the model's router chooses by token, and reads no domain; leave it out"
            )
    if learned and config.only_expert is not None:
        raise UsageError(
            "`only_expert`: a learned router may send any text or token to the expert that changes"
        )
    routed = find_routed_model(model)
    if config.lora_rank is not None and routed is not None and _are_on_base(routed):
        raise UsageError(
            "`lora_rank`: heads and adapters are trained on a base that stays as it is; leave it out"
        )
    if config.max_length and (positions := _count_positions(model)) and config.max_length > positions:
        raise UsageError(f"`max_length={config.max_length}`: the model reads {positions} tokens at most")
    if config.loss == ARGMAX_TARGET and isinstance(model[-1], Normalize):
        logger.warning(
            "`loss=argmax_target` takes dot products, which hardly differ between vectors of length 1, as "
            "this model gives: it may learn nothing; remove the model's last module, Normalize"
        )
    if coarse := _coarse_dtype(model):
        raise UsageError(f'{coarse} is too coarse to train in: train `load(model, dtype="float32")`')
    if config.bf16 and not (torch.cuda.is_available() and torch.cuda.is_bf16_supported()):
        raise UsageError("`bf16`: there is no GPU here that computes in bfloat16; leave it out")
    for name, wanted in (("tensorboard", config.tensorboard), ("wandb", config.wandb)):
        if wanted:
            require(name, name)


def _count_positions(model: SentenceTransformer) -> int | None:
    """Return the number of tokens that a model has positions for; None if it counts them otherwise."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            # Some models leave out those up to that of padding.
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    return None


@contextmanager
def freeze_others(model: SentenceTransformer, config: TrainConfig) -> Iterator[list[str]]:
    """Freeze weights in place as the config says, while the block runs; all others are trained.

    Yields the names of the weights with only some trained rows: weight decay would shrink the others.

    Raises:
        UsageError: the model has no such part, or nothing would be left to train.
    """
    before = [(weight, weight.requires_grad) for weight in model.parameters()]
    routed = find_routed_model(model)
    on_base = routed is not None and _are_on_base(routed)
    if config.only_expert is None and config.freeze == "none" and not on_base:
        if not any(weight.requires_grad for weight in model.parameters()):
            raise UsageError("nothing is left to train: all weights are frozen, as in a LoRA that was loaded")
        yield []
        return
    setting = "`freeze=shared`" if config.only_expert is None else "`only_expert`"
    if routed is None:
        raise UsageError(f"{setting}: the model has no experts; `extend` makes some")
    parts, experts = _find_trained_parts(routed, config.only_expert)
    rows = [
        route.token_ids[0]
        for route in routed.routes
        if route.expert in experts and is_domain_route(route, routed.config) and route.lead is None
    ]
    try:
        for name, weight in model.named_parameters():
            weight.requires_grad_(any(part in name for part in parts))
        if rows:
            with _train_rows(routed.get_input_embeddings().weight, rows) as tokens:  # type: ignore[attr-defined]
                yield [name for name, weight in model.named_parameters() if weight is tokens]
        elif any(weight.requires_grad for weight in model.parameters()):
            yield []
        else:
            raise UsageError(
                "nothing is left to train: the model has no experts in its blocks and no route tokens"
            )
    finally:
        for weight, was_trained in before:
            weight.requires_grad_(was_trained)


def _are_on_base(routed: RoutedModel) -> bool:
    """Return whether there are heads or adapters, which are trained on a base that stays as it is."""
    return any(route.lead is not None for route in routed.routes)


@contextmanager
def _train_rows(weight: Tensor, rows: list[int]) -> Iterator[Tensor]:
    """Train these rows of a weight, while the block runs: the embeddings of domain tokens.

    The gradient of every other row is zero, so AdamW without weight decay does not change it.
    """
    chosen = torch.zeros(len(weight), 1, dtype=torch.bool, device=weight.device)
    chosen[rows] = True
    hook = weight.requires_grad_(True).register_hook(
        lambda gradient: gradient.where(chosen.to(gradient.device), torch.zeros_like(gradient))
    )
    try:
        yield weight
    finally:
        hook.remove()


def _find_trained_parts(routed: RoutedModel, only: str | None) -> tuple[list[str], set[int]]:
    """Return parts of the names of the trained weights, and the numbers of the experts among them."""
    experts, heads = list(routed.config.experts), list(routed.config.heads)
    adapters = [each["route"] for each in routed.config.adapters]
    if only is None:
        # An expert that only heads or adapters sit on stays: it would change under all of them.
        unowned = {route.expert for route in routed.routes if route.kind != "expert"}
        owned = {route.expert for route in routed.routes if route.kind == "expert"}
        numbers = {*range(len(experts))} - (unowned - owned)
        return [*map(expert_prefix, numbers), ROUTERS, ADAPTERS, HEADS], numbers
    if only in experts and only not in [*heads, *adapters]:
        number = experts.index(only)
        return [expert_prefix(number)], {number}
    for names, prefix in ((heads, HEADS), (adapters, ADAPTERS)):
        if only in names:
            return [f"{prefix}{names.index(only)}."], set()
    known = ", ".join([*experts, *adapters, *heads])
    raise UsageError(f"`only_expert={only}`: the model's experts are {known}")
