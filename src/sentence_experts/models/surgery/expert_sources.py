"""A model with other experts, each made of the experts of an old model, or of its base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sentence_experts.models.architectures.families import NOT_INHERITED, base_key, family_of
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.routing.routes import Route
from sentence_experts.models.surgery.reassemble import rebuilt
from sentence_experts.models.surgery.weighted_experts import Shares, blend, equal_shares, expert_of, of_expert


@dataclass(frozen=True)
class Origin:
    """Where an expert of the new model comes from.

    Attributes:
        name: the expert's name.
        shares: the old experts that it is made of, and its domain token of theirs.
        base: the weights of the dense base in their place; the token is then [CLS]'s.
        is_new: whether a learned router has not met this expert yet.
    """

    name: str
    shares: Shares
    base: Mapping[str, Tensor] | None = None
    is_new: bool = False


def with_experts(
    encoder: ExpertEncoder,
    origins: Sequence[Origin],
    tokenizer: PreTrainedTokenizerBase,
    routes: Sequence[Route],
    prompts: Mapping[str, str],
    default_prompt_name: str | None,
) -> ExpertEncoder:
    """The encoder with the experts of `origins`, in that order; what they share stays bit-equal."""
    old: Any = encoder.routed_model
    family = family_of(old.config.model_type)
    kept = {name: value for name, value in old.config.to_dict().items() if name not in NOT_INHERITED}
    kept["experts"] = [origin.name for origin in origins]
    kept["routes"] = [route.to_json() for route in routes]
    kept["vocab_size"] = max(old.config.base_vocab_size or old.config.vocab_size, len(tokenizer))
    pooler = {"add_pooling_layer": old.pooler is not None} if hasattr(old, "pooler") else {}
    model = family.load_model_class()(family.load_config_class()(**kept), **pooler).to(dtype=encoder.dtype)
    model.load_state_dict(_state(old, model, origins))
    if old.config.route_kind == "token":
        _set_tokens(encoder, model, origins, routes)
    return rebuilt(
        ExpertEncoder, encoder, model, tokenizer, prompts, default_prompt_name, str(encoder.device)
    )


def _state(old: PreTrainedModel, new: PreTrainedModel, origins: Sequence[Origin]) -> dict[str, Tensor]:
    """Every weight of the new model but the rows of its domain tokens."""
    family = family_of(new.config.model_type)
    weights = old.state_dict()
    state = {}
    for key, value in new.state_dict().items():
        number = expert_of(key)
        if number is None and key.endswith(".router.weight"):
            state[key] = torch.stack([_router_row(weights[key], origin) for origin in origins])
        elif number is None:
            state[key] = _with_rows(weights[key], value)
        elif (base := origins[number].base) is not None:
            state[key] = base[base_key(family, key)]
        else:
            state[key] = blend(origins[number].shares, partial(_weight_of_expert, weights, key))
    return state


def _weight_of_expert(weights: Mapping[str, Tensor], key: str, number: int) -> Tensor:
    return weights[of_expert(key, number)]


def _router_row(rows: Tensor, origin: Origin) -> Tensor:
    """A row of a learned router, (width,): for a new expert the mean, whose logit is never the highest."""
    shares = equal_shares(len(rows)) if origin.is_new else origin.shares
    return blend(shares, lambda number: rows[number])


def _with_rows(weight: Tensor, like: Tensor) -> Tensor:
    """A weight as it is, or an embedding with rows taken off or put on at the end."""
    if weight.shape == like.shape:
        return weight
    resized = weight.new_zeros(like.shape)
    rows = min(len(weight), len(resized))
    resized[:rows] = weight[:rows]
    return resized


def _set_tokens(
    encoder: ExpertEncoder, model: PreTrainedModel, origins: Sequence[Origin], routes: Sequence[Route]
) -> None:
    """Give each domain token the row of its origin."""
    old: Any = encoder.routed_model
    before: Tensor = old.get_input_embeddings().weight
    tokens = {route.expert: route.token_ids[0] for route in encoder.routes}
    after: Any = model.get_input_embeddings().weight
    with torch.no_grad():
        for route in routes:
            origin = origins[route.expert]
            if origin.base is not None:
                after[route.token_ids[0]] = before[encoder.tokenizer.cls_token_id]
            else:
                after[route.token_ids[0]] = blend(origin.shares, lambda number: before[tokens[number]])
