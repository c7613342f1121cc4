"""Which weights a run trains: freezing parts of the model, or training one expert alone."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sentence_experts.errors import UsageError
from sentence_experts.models.architectures.families import FAMILIES, Family
from sentence_experts.models.architectures.routed_model import RoutedModel
from sentence_experts.models.routing.sequence_router import LEARNED
from sentence_experts.models.storage.weight_names import ROUTERS
from sentence_experts.training.config import RunConfig
from sentence_experts.training.router_losses import routed_model

# What the weights of experts are called.
EXPERTS = ".experts."


def choose_trainable(model: SentenceTransformer, config: RunConfig) -> list[str]:
    """Freeze what the config says, in place; every other weight is trained.

    Returns:
        The names of the weights of which some rows alone are trained: no weight decay may shrink the others.

    Raises:
        UsageError: the model has no such part, or nothing would be left to train.
    """
    if config.only_expert is not None:
        return _train_one_expert(model, config.only_expert)
    if config.freeze == "attention":
        _freeze_attention(model)
    if config.freeze == "shared":
        return _freeze_shared(model)
    return []


def _freeze_attention(model: SentenceTransformer) -> None:
    """The attention's projections, which have the same part in every family; norms stay trained."""
    transformer: Any = model[0].auto_model
    family = _family(transformer.config.model_type)
    for block in transformer.get_submodule(family.blocks):
        for path in family.attention:
            block.get_submodule(path).requires_grad_(False)


def _family(model_type: str) -> Family:
    for family in FAMILIES:
        if model_type in (family.base_model_type, family.model_type):
            return family
    known = ", ".join(family.base_model_type for family in FAMILIES)
    raise UsageError(f"--freeze attention: known for {known}, not for model type {model_type!r}")


def _freeze_shared(model: SentenceTransformer) -> list[str]:
    routed = _with_experts(model, "--freeze shared")
    _train_alone(model, [EXPERTS, ROUTERS])
    return _train_rows(model, routed, [route.token_ids[0] for route in routed.routes])


def _train_one_expert(model: SentenceTransformer, name: str) -> list[str]:
    routed = _with_experts(model, "--only-expert")
    experts = list(routed.config.experts)
    if name not in experts:
        raise UsageError(f"--only-expert {name}: the model's experts are {', '.join(experts)}")
    if routed.config.router == LEARNED:
        raise UsageError("--only-expert: a learned router may send any text to the expert that changes")
    number = experts.index(name)
    _train_alone(model, [f"{EXPERTS}{number}."])
    return _train_rows(model, routed, [r.token_ids[0] for r in routed.routes if r.expert == number])


def _with_experts(model: SentenceTransformer, flag: str) -> RoutedModel:
    routed = routed_model(model)
    if routed is None:
        raise UsageError(f"{flag}: the model has no experts; make some with sentence-experts extend")
    return routed


def _train_alone(model: SentenceTransformer, parts: list[str]) -> None:
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(any(part in name for part in parts))


def _train_rows(model: SentenceTransformer, routed: RoutedModel, rows: list[int]) -> list[str]:
    """Train the embeddings of these tokens and no others; a route that is a prefix has none of its own.

    The gradient of every other row is zero, so AdamW, without weight decay, leaves those as they are.
    """
    if routed.config.has_domain_tokens:
        assert isinstance(routed, nn.Module)
        weight = routed.get_input_embeddings().weight  # type: ignore[operator]
        chosen = torch.zeros(len(weight), 1, dtype=torch.bool, device=weight.device)
        chosen[rows] = True
        weight.requires_grad_(True).register_hook(lambda gradient: _only(gradient, chosen))
        return [name for name, parameter in model.named_parameters() if parameter is weight]
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError(
            "nothing is left to train: the model has no experts in its blocks and no route tokens"
        )
    return []


def _only(gradient: Tensor, chosen: Tensor) -> Tensor:
    return gradient.where(chosen.to(gradient.device), torch.zeros_like(gradient))
