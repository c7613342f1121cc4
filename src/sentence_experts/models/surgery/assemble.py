"""Encoders put together from parts of others: MLPs are copied into experts, the modules around stay.

`_copy_weights` makes an expert the copy of the pretrained MLP, or the mean of old experts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from sentence_experts.compat.sentence_transformers import transformer_of
from sentence_experts.compat.transformers import check_plain_layers, check_settings_kept
from sentence_experts.models.architectures.families import (
    MODEL_TYPES,
    family_of,
    family_of_base,
    inherited_values,
)
from sentence_experts.models.architectures.registration import config_class_of, model_class_of
from sentence_experts.models.architectures.routed_block import initialize_routers
from sentence_experts.models.dense import (
    Shares,
    check_structure,
    mean_weight,
    pooler_option,
    weighted_mean,
    with_transformer,
)
from sentence_experts.models.encoder import ExpertEncoder, check_experts
from sentence_experts.models.files.fingerprint import fingerprint_with_settings, path_fingerprint
from sentence_experts.models.files.saving import model_output, write_model
from sentence_experts.models.layers.weight_names import base_name, is_router, owner_of
from sentence_experts.models.loading import load
from sentence_experts.models.routes.route_tokens import without_domain_tokens
from sentence_experts.models.routes.routes import Route, is_domain_route
from sentence_experts.models.sources import notes_of, set_notes
from sentence_experts.models.surgery.route_plan import RoutePlan
from sentence_experts.storage import check_apart, sha256_text

Source = SentenceTransformer | str | Path


@dataclass(frozen=True)
class ExpertSource:
    """The source of an expert of a new model.

    Attributes:
        shares: old experts whose weighted mean it is; its domain token is the mean of their tokens.
        base: weights of the dense base, in place of `shares`; the token is then [CLS]'s.
    """

    shares: Shares
    base: Mapping[str, Tensor] | None = None


def make_and_store(
    make: Callable[[SentenceTransformer], ExpertEncoder],
    model: Source,
    out: Path | str | None,
    overwrite: bool,
    settings: Mapping[str, Any],
    read: Mapping[str, tuple[Any, Callable[[Any], Any]]],
) -> ExpertEncoder:
    """Make a model with experts from another model, and save it if `out` is given.

    Args:
        make: function that makes the model.
        model: model that it is made from; the new one is put on the same device.
        out: folder of the model; the finished one there is returned if it was made in the same way.
        overwrite: whether to replace another model in `out`.
        settings: other settings that decide the result.
        read: name -> input (None without), and a function of the part that matters if it is not a path.
    """
    if out is not None:
        check_apart(out, overwrite, model, [value for value, _ in read.values()])
    if out is None:
        return make(load(model, device="cpu") if isinstance(model, str | Path) else model)
    with model_output(out, overwrite) as place:
        opened = load(model, device="cpu") if isinstance(model, str | Path) else model
        given = {name: each for name, each in read.items() if each[0] is not None}
        inputs = {name: partial(_hash_input, *each) for name, each in given.items()}
        made_from = {"model": fingerprint_with_settings(opened), "similarity": opened.similarity_fn_name}
        if place.begin({**made_from, **settings}, inputs) == "finished":
            return check_experts(load(place.path, device=device_of(model)))
        encoder = make(opened)
        with place.replacing() as folder:
            write_model(encoder, folder)
    return encoder


def device_of(model: Source) -> str | None:
    """Return the device of a model in memory; None (the best there is) for one that is read."""
    return str(model.device) if isinstance(model, SentenceTransformer) else None


def _hash_input(value: Any, part: Callable[[Any], Any]) -> str:
    if isinstance(value, str | Path) and Path(value).exists():
        return path_fingerprint(Path(value))
    return sha256_text(repr(part(value)))  # for a path, `part` raises the error that nothing is there


def with_experts(
    encoder: SentenceTransformer,
    plan: RoutePlan,
    sources: Sequence[ExpertSource],
    prompts: Mapping[str, str | None],
    default_prompt_name: str | None,
    device: str | None,
    fields: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> ExpertEncoder:
    """Give an encoder, dense or with experts, the experts of `plan`; what they share stays bit-equal.

    Args:
        encoder: encoder that gets the experts; it stays unchanged.
        plan: experts and their routes.
        sources: source of each expert.
        prompts, default_prompt_name, device: properties of the result; `device` None for the best there is.
        fields: fields of the config with experts, in place of the encoder's.
        seed: seed of routers and adapters that the encoder does not have.
    """
    old = transformer_of(encoder)
    check_plain_layers(encoder, old)
    check_structure(old)
    config: Any = old.config
    has_experts = config.model_type in MODEL_TYPES
    family = family_of(config.model_type) if has_experts else family_of_base(config.model_type)
    old_routes: tuple[Route, ...] = old.routes if has_experts else ()
    tokenizer = encoder.tokenizer
    if has_experts and config.has_domain_tokens:
        tokenizer = without_domain_tokens(tokenizer, old_routes)
    tokenizer, routes = plan.build_routes(tokenizer)
    base_rows = getattr(config, "base_vocab_size", config.vocab_size)
    inner = tokenizer.unk_token_id if tokenizer.unk_token_id is not None else tokenizer.cls_token_id
    values = inherited_values(config) | {
        **(fields or {}),
        "experts": list(plan.experts),
        "adapters": plan.adapters,
        "heads": plan.heads,
        "head_ranks": {each.name: each.rank for each in plan.routes if each.rank is not None},
        "routes": [route.to_json() for route in routes],
        "inner_route_token_id": inner if plan.domains else None,
        "vocab_size": max(base_rows or config.vocab_size, len(tokenizer)),
        "base_vocab_size": base_rows,
    }
    model = model_class_of(family)(config_class_of(family)(**values), **pooler_option(old))
    model.to(dtype=encoder.dtype).eval()
    check_settings_kept(old, model)
    initialize_routers(model, seed)
    model.load_state_dict(_copy_weights(old, model, sources, seed))
    _set_tokens(old, old_routes, model, routes, sources, tokenizer.cls_token_id)
    made = with_transformer(ExpertEncoder, encoder, model, tokenizer, prompts, default_prompt_name, device)
    if has_experts:
        set_notes(made, notes_of(encoder))
    return made


def _copy_weights(old: Any, new: Any, sources: Sequence[ExpertSource], seed: int) -> dict[str, Tensor]:
    """Make every weight of the new model but the rows of its leading tokens."""
    family = family_of(new.config.model_type)
    weights: dict[str, Tensor] = old.state_dict()
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, value in new.state_dict().items():
        kind, number = owner_of(name) or (None, -1)
        if is_router(name):
            state[name] = value
        elif kind in ("adapter", "head"):
            before = _name_before(old, new, name, kind, number)
            state[name] = _make_first_value(name, value, generator) if before is None else weights[before]
        elif kind is None:  # shared; an embedding with rows dropped or added (zeros) at its end
            rows = weights[name][: len(value)] if weights[name].dim() else weights[name]
            more = len(value) - len(rows) if rows.dim() else 0
            state[name] = torch.nn.functional.pad(rows, (0, 0, 0, more)) if more else rows
        elif (base := sources[number].base) is not None:
            state[name] = base[base_name(family, name)]
        else:
            state[name] = mean_weight(weights, name, sources[number].shares)
    return state


def _name_before(old: Any, new: Any, name: str, kind: str, number: int) -> str | None:
    """Return the old model's name of a weight that a route's head or adapter has; None if it is new."""
    before, after = (
        [each if kind == "head" else each["route"] for each in getattr(config, f"{kind}s", [])]
        for config in (old.config, new.config)
    )
    if after[number] not in before:
        return None
    return re.sub(rf"\b{kind}s\.{number}\.", f"{kind}s.{before.index(after[number])}.", name)


def _make_first_value(name: str, value: Tensor, generator: torch.Generator) -> Tensor:
    """Return a weight of a new head, which is the identity, or of a new adapter, which adds zero."""
    if name.endswith(".down"):  # as peft begins: uniform, of variance 1 / (3 * inputs)
        bound: float = value.shape[1] ** -0.5
        return (torch.rand(value.shape, generator=generator) * 2 - 1) * bound
    if name.startswith("heads.") and name.endswith(".weight"):
        return torch.eye(len(value))
    return torch.zeros(value.shape)


def _set_tokens(
    old: Any,
    old_routes: Sequence[Route],
    new: Any,
    routes: Sequence[Route],
    sources: Sequence[ExpertSource],
    cls: int,
) -> None:
    """Give each leading token the row of its source: the old experts' tokens, or [CLS].

    Where the last domain goes, the token of instructions becomes [CLS] again. Tokens of routes with a
    `lead` have no row that is ever read.
    """
    before: Tensor = old.get_input_embeddings().weight
    after: Tensor = new.get_input_embeddings().weight
    had_tokens = getattr(old.config, "has_domain_tokens", False)
    leads = {is_domain_route(route, old.config): route.token_ids[0] for route in old_routes}
    instruction_token = leads.get(False, cls) if had_tokens else cls
    domain_tokens = {
        r.expert: r.token_ids[0] for r in old_routes if is_domain_route(r, old.config) and r.lead is None
    }
    with torch.no_grad():
        for route in (route for route in routes if route.lead is None):
            source, lead = sources[route.expert], route.token_ids[0]
            if not is_domain_route(route, new.config):
                if had_tokens or new.config.has_domain_tokens:
                    after[lead] = before[instruction_token]
            elif source.base is not None:
                after[lead] = before[cls]
            else:
                old_row = lambda number: before[domain_tokens.get(number, cls)]  # noqa: E731
                after[lead] = weighted_mean(source.shares, old_row)
