"""One expert more, or one less, in a model that has experts: all other routes keep their vectors to the bit.

Routes share attention and embeddings but never an expert, so weights that come or go with one expert are
not read by the others. The new expert can then be trained alone (`TrainConfig.only_expert`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.architectures.families import base_key, family_of
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.loading import load
from sentence_experts.models.routing.route_tokens import (
    prefix_routes,
    with_domain_tokens,
    without_domain_tokens,
)
from sentence_experts.models.routing.routes import Route
from sentence_experts.models.routing.token_router import refuse_token_router
from sentence_experts.models.surgery.expert_sources import Origin, with_experts
from sentence_experts.models.surgery.weighted_experts import equal_shares, expert_of

logger = logging.getLogger(__name__)

BASE, AVERAGE = "base", "average"


def add_expert(
    encoder: ExpertEncoder,
    name: str,
    seed_from: str = AVERAGE,
    prefix: str | None = None,
    base: SentenceTransformer | str | Path | None = None,
) -> ExpertEncoder:
    """The same model with one more expert and its route; the others' weights and vectors stay bit-equal.

    Args:
        encoder: a model with experts, left unchanged.
        name: the new expert's name.
        seed_from: what the expert and its domain token begin as: "average" (the mean of all experts and of
            their tokens), "base" (the base's MLP; the token as [CLS]), or an expert's name.
        prefix: its instruction, for models routed by instructions; by default "name: ".
        base: the dense base, for seed_from="base" where blocks hold experts.

    In a learned router the new expert's row is the mean of the others' rows, whatever the seed: its logit
    then never beats the best of the others, so no text goes to the new expert before it is trained.

    Raises:
        UsageError: the name is taken, the seed is not known or lacks its base, or the route is not usable.
        InputError: the base is of another family or size.
    """
    config = _unadapted_config(encoder)
    names = list(config.experts)
    if name in names:
        raise UsageError(f"there is an expert {name!r} already; the experts are {', '.join(names)}")
    if name in (route.name for route in encoder.routes):
        raise UsageError(f"there is a route {name!r} already, which shares an expert; choose another name")
    if prefix is not None and config.route_kind != "prefix":
        raise UsageError("an instruction is for a model that is routed by instructions (route 'prefix')")
    kept = [Origin(each, {number: 1.0}) for number, each in enumerate(names)]
    new = _seeded(encoder, name, seed_from, base)
    prompts: dict[str, Any] = dict(encoder.prompts)
    tokenizer, routes = _routes(encoder, [*names, name], {name: prefix or f"{name}: "})
    prompts |= {route.name: route.text + _base_prompt(encoder) for route in routes if route.name == name}
    return with_experts(encoder, [*kept, new], tokenizer, routes, prompts, encoder.default_prompt_name)


def drop_expert(encoder: ExpertEncoder, name: str) -> ExpertEncoder:
    """The same model without one expert, its route and its token; the others' vectors stay bit-equal.

    Routes that share the expert go with it, and are said to. Texts then read the token as ordinary text. In a
    learned router, texts that went to this expert go to their second choice.

    Raises:
        UsageError: there is no such expert, or no other.
    """
    config = _unadapted_config(encoder)
    names = list(config.experts)
    if name not in names:
        raise UsageError(f"there is no expert {name!r}; the experts are {', '.join(names)}")
    if len(names) == 1:
        raise UsageError(f"{name!r} is the only expert; to have none, export its route as a dense model")
    kept = [Origin(each, {number: 1.0}) for number, each in enumerate(names) if each != name]
    tokenizer, routes = _routes(encoder, [origin.name for origin in kept], {})
    dropped = {route.name for route in encoder.routes if route.expert == names.index(name)} | {name}
    if len(dropped) > 1:
        logger.info(f"dropped with {name!r}, whose expert they share: {', '.join(sorted(dropped - {name}))}")
    prompts: dict[str, Any] = {key: prompt for key, prompt in encoder.prompts.items() if key not in dropped}
    default = encoder.default_prompt_name
    if default in dropped:
        logger.info(f"{default!r} was the default route; now every text needs one")
        default = None
        for asked_for_by_name in ("query", "document"):
            if asked_for_by_name not in (route.name for route in encoder.routes):
                prompts.pop(asked_for_by_name, None)
    return with_experts(encoder, kept, tokenizer, routes, prompts, default)


def _unadapted_config(encoder: ExpertEncoder) -> Any:
    refuse_token_router(encoder, "one expert more or less changes the vectors of every route")
    encoder.routed_model.check_whole("given other experts")
    config = encoder.routed_model.config
    if config.lora is not None:
        raise UsageError("the model has a low-rank adapter; merge it first (models.lora.merge_lora)")
    return config


def _seeded(
    encoder: ExpertEncoder, name: str, seed_from: str, base: SentenceTransformer | str | Path | None
) -> Origin:
    """Where the new expert begins. An expert that is called "base" or "average" goes before the words."""
    experts = encoder.experts
    if base is not None and (seed_from != BASE or BASE in experts):
        raise UsageError("a base is for an expert that is seeded from it: give seed_from='base' too")
    if seed_from in experts:
        return Origin(name, {experts.index(seed_from): 1.0}, is_new=True)
    if seed_from == AVERAGE:
        return Origin(name, equal_shares(len(experts)), is_new=True)
    if seed_from != BASE:
        raise UsageError(f"seed {seed_from!r}: choose average, base, or an expert: {', '.join(experts)}")
    if not encoder.routed_model.config.expert_layers:
        return Origin(name, {}, base={}, is_new=True)
    if base is None:
        raise UsageError("the base's MLPs are not in this model any more: say which base it was made from")
    return Origin(name, {}, base=_base_weights(encoder, base), is_new=True)


def _base_weights(encoder: ExpertEncoder, base: SentenceTransformer | str | Path) -> dict[str, Tensor]:
    loaded = base if isinstance(base, SentenceTransformer) else load(base, device="cpu", int8=False)
    model: Any = loaded[0].auto_model
    weights: dict[str, Tensor] = model.state_dict()
    family = family_of(encoder.routed_model.config.model_type)
    if model.config.model_type != family.base_model_type:
        wanted = family.base_model_type
        raise InputError(
            f"the base is of type {model.config.model_type!r}; this model was made of a {wanted}"
        )
    routed: Any = encoder.routed_model
    for key, value in routed.state_dict().items():
        source = base_key(family, key)
        if expert_of(key) is not None and (source not in weights or weights[source].shape != value.shape):
            raise InputError(f"the base does not fit this model: its {source} is not of {tuple(value.shape)}")
    return weights


def _routes(
    encoder: ExpertEncoder, names: Sequence[str], new_prefixes: Mapping[str, str]
) -> tuple[PreTrainedTokenizerBase, list[Route]]:
    """The tokenizer and the routes for these experts, made anew from the base's tokenizer."""
    kind = encoder.routed_model.config.route_kind
    if kind == "token":
        return with_domain_tokens(without_domain_tokens(encoder.tokenizer, encoder.routes), names)
    if kind == "prefix":
        prefixes = {route.name: route.text for route in encoder.routes} | dict(new_prefixes)
        shared = {
            route.name: names.index(expert)
            for route in encoder.routes
            if route.name != (expert := encoder.experts[route.expert]) and expert in names
        }
        wanted = {name: prefixes[name] for name in (*names, *shared)}
        return encoder.tokenizer, prefix_routes(encoder.tokenizer, wanted, shared)
    return encoder.tokenizer, []


def _base_prompt(encoder: ExpertEncoder) -> str:
    """The base's own prompt, which stands behind every domain token."""
    if encoder.routed_model.config.route_kind != "token":
        return ""
    first = encoder.routes[0]
    return (encoder.prompts.get(first.name) or first.text).removeprefix(first.text)
