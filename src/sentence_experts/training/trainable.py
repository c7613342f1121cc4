"""The weights that a run trains, and the check that its settings suit the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import nn

from sentence_experts.compat.sentence_transformers import transformer_of
from sentence_experts.errors import UsageError, require
from sentence_experts.models.architectures.families import FAMILIES
from sentence_experts.models.architectures.routed_model import RoutedModel
from sentence_experts.models.layers.weight_names import ADAPTERS, EXPERTS, HEADS, ROUTERS, expert_prefix
from sentence_experts.models.routes.kinds import router_kind_of
from sentence_experts.models.routes.routes import is_domain_route
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.losses import RouterLoss, sequence_router_loss, token_router_loss
from sentence_experts.training.routes import routed_model

# Weight of a token router's load balancing (Fedus et al. 2022, section 2.2).
TOKEN_BALANCE = 0.01


def router_loss(model: SentenceTransformer, config: TrainConfig) -> RouterLoss | None:
    """Return the loss of the model's learned routers; None if it has none."""
    kind = router_kind_of(model)
    if kind is None or not kind.is_learned:
        return None
    if kind.per_token:
        return token_router_loss(TOKEN_BALANCE if config.balance_loss is None else config.balance_loss)
    return sequence_router_loss(config.router_loss, config.balance_loss or 0.0, config.route_by == "domain")


def check_settings(model: SentenceTransformer, config: TrainConfig) -> None:
    """Refuse settings that have no effect on this model, or are not possible here.

    Raises:
        UsageError: there is one.
        SentenceExpertsError: a logger is not installed.
    """
    kind = router_kind_of(model)
    learned = kind is not None and kind.is_learned
    reads_texts = kind is not None and kind.reads_texts
    changed = {name for name, value in config if value != TrainConfig.model_fields[name].default}
    weights = [name for name, _ in model.named_parameters()]
    has_experts = any(EXPERTS in name for name in weights)
    has_routers = any(ROUTERS in name for name in weights)
    computes_bf16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    refused = (
        ("router_loss", not reads_texts, "the model has no learned router of whole texts"),
        ("route_by", not reads_texts, "the model has no learned router of whole texts"),
        ("balance_loss", not learned, "the model has no learned router"),
        ("router_learning_rate", not has_routers, "the model has no learned router"),
        ("expert_learning_rate", not has_experts, "the model has no experts in its blocks"),
        ("only_expert", learned, "a learned router may send any text or token to the expert that changes"),
        ("bf16", not computes_bf16, "there is no GPU here that computes in bfloat16; leave it out"),
    )
    for name, applies, problem in refused:
        if applies and name in changed:
            raise UsageError(f"`{name}`: {problem}")
    for name, wanted in (("tensorboard", config.tensorboard), ("wandb", config.wandb)):
        if wanted:
            require(name, name)


@dataclass(frozen=True)
class Trainable:
    """The weights that are trained, until `restore`.

    Attributes:
        undecayed: names of the weights of which only some rows are trained: weight decay would shrink the
            others.
        frozen: the weights that were trainable before.
        hooks: on the gradients of the weights in `undecayed`.
    """

    undecayed: list[str]
    frozen: list[nn.Parameter]
    hooks: list[Any]

    def restore(self) -> None:
        """Leave the model as it was, so that it can be trained again in another way."""
        for weight in self.frozen:
            weight.requires_grad_(True)
        for hook in self.hooks:
            hook.remove()


def choose_trainable(model: SentenceTransformer, config: TrainConfig) -> Trainable:
    """Freeze weights in place as the config says; all others are trained.

    Raises:
        UsageError: the model has no such part, or nothing would be left to train.
    """
    before = [weight for weight in model.parameters() if weight.requires_grad]
    undecayed: list[str] = []
    hooks: list[Any] = []
    if config.freeze == "attention":
        _freeze_attention(model)
    elif config.only_expert is not None or config.freeze == "shared" or _shares_base(model):
        setting = "`freeze=shared`" if config.only_expert is None else "`only_expert`"
        routed = routed_model(model)
        if routed is None:
            raise UsageError(f"{setting}: the model has no experts; `extend` makes some")
        experts, heads = list(routed.config.experts), list(routed.config.heads)
        adapters = [each["route"] for each in routed.config.adapters]
        if config.only_expert is None:
            # An expert that only heads or adapters sit on stays: it would change under all of them.
            unowned = {route.expert for route in routed.routes if route.kind != "expert"}
            owned = {route.expert for route in routed.routes if route.kind == "expert"}
            numbers = {*range(len(experts))} - (unowned - owned)
            parts = [*map(expert_prefix, numbers), ROUTERS, ADAPTERS, HEADS]
        elif config.only_expert in heads:
            parts, numbers = [f"{HEADS}{heads.index(config.only_expert)}."], set()
        elif config.only_expert in adapters:
            parts, numbers = [f"{ADAPTERS}{adapters.index(config.only_expert)}."], set()
        elif config.only_expert in experts:
            number = experts.index(config.only_expert)
            parts, numbers = [expert_prefix(number)], {number}
        else:
            known = ", ".join([*experts, *adapters, *heads])
            raise UsageError(f"`only_expert={config.only_expert}`: the model's experts are {known}")
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(any(part in name for part in parts))
        undecayed, hooks = _train_rows(model, routed, numbers)
    return Trainable(undecayed, [weight for weight in before if not weight.requires_grad], hooks)


def _shares_base(model: SentenceTransformer) -> bool:
    """Return whether routes own heads or adapters, which are trained on a base that stays as it is."""
    routed = routed_model(model)
    return routed is not None and any(route.lead is not None for route in routed.routes)


def _freeze_attention(model: SentenceTransformer) -> None:
    """Freeze the attention's projections, which every family has; norms stay trained."""
    transformer = transformer_of(model)
    kind = transformer.config.model_type
    family = next((one for one in FAMILIES if kind in (one.base_model_type, one.model_type)), None)
    if family is None:
        known = ", ".join(one.base_model_type for one in FAMILIES)
        raise UsageError(f"`freeze=attention`: known for {known}, not for model type {kind!r}")
    for block in transformer.get_submodule(family.blocks):
        for path in family.attention:
            block.get_submodule(path).requires_grad_(False)


def _train_rows(
    model: SentenceTransformer, routed: RoutedModel, experts: set[int]
) -> tuple[list[str], list[Any]]:
    """Train only the embeddings of these experts' domain tokens; an instruction has no token of its own.

    The gradient of every other row is zero, so AdamW without weight decay does not change it. Returns the
    names of these weights, and the hooks that see to it.
    """
    rows = [
        route.token_ids[0]
        for route in routed.routes
        if route.expert in experts and is_domain_route(route, routed.config) and route.lead is None
    ]
    if rows:
        assert isinstance(routed, nn.Module)
        weight = routed.get_input_embeddings().weight  # type: ignore[operator]
        chosen = torch.zeros(len(weight), 1, dtype=torch.bool, device=weight.device)
        chosen[rows] = True
        hook = weight.requires_grad_(True).register_hook(
            lambda gradient: gradient.where(chosen.to(gradient.device), torch.zeros_like(gradient))
        )
        return [name for name, parameter in model.named_parameters() if parameter is weight], [hook]
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError(
            "nothing is left to train: the model has no experts in its blocks and no route tokens"
        )
    return [], []
