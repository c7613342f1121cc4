"""A pretrained encoder -> the same encoder with experts, which gives the same vectors until it is trained.

Every expert starts as a copy of the base's MLP (Hallee 2025, fig. 1; MoTE, section 3.1.1), and every domain
token as a copy of [CLS]. (Another pooling or a head, where asked for, makes other vectors.)
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.architectures.families import NOT_INHERITED, Family, base_key, family_of_base
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.loading import load
from sentence_experts.models.routing.route_tokens import prefix_routes, with_domain_tokens
from sentence_experts.models.routing.routes import Route
from sentence_experts.models.routing.sequence_router import CHOOSING, ROUTERS, initialize_routers
from sentence_experts.models.routing.token_router import TOKEN, check_top_k
from sentence_experts.models.surgery.heads import check_head, put_head, put_normalize
from sentence_experts.models.surgery.reassemble import rebuilt

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

logger = logging.getLogger(__name__)

ROUTE_KINDS = ("token", "prefix", "none")
ROUTER_WEIGHT = ".router."  # in the name of a weight that no base has


def extend(
    base: SentenceTransformer | str | Path,
    experts: Sequence[str],
    layers: str | Sequence[int] = "all",
    route: str = "token",
    expert_norms: bool = False,
    prefixes: Mapping[str, str] | None = None,
    share: Mapping[str, str] | None = None,
    default_prompt_name: str | None = None,
    router: str = "route",
    top_k: int = 2,
    pooling: str | None = None,
    head: str | None = None,
    normalize: bool | None = None,
    seed: int = 0,
) -> ExpertEncoder:
    """Turn the MLP of each chosen block into one expert per name, and give each expert a route.

    Args:
        base: a SentenceTransformer, or a directory or hub id of a sentence-transformers or plain transformers
            checkpoint of BERT, ModernBERT or NomicBERT. A plain one gets mean pooling. It is left unchanged.
        experts: the experts' names, in the order of their indices.
        layers: "all" blocks, "alternate" (every other block, beginning with the second: 1, 3, 5, ..., as in
            GShard and MoTE's EOB), "none" (a dense model with the same routes: the control for what experts
            bring), or block numbers counted from 0.
        route: "token": a domain token stands where [CLS] stood; "prefix": the instruction text is the route;
            "none": texts stay as the base reads them, for router="learned" or "token".
        expert_norms: each expert also owns its block's norms (MoTE, fig. 2b).
        prefixes: with route="prefix", route -> instruction; by default "name: ". Each expert has the route of
            its own name.
        share: with route="prefix", more routes -> the expert each uses: clustering -> document (MoTE, 5.2).
        default_prompt_name: the route for texts without one; None makes those an error.
        router: "route": the route chooses the expert; "learned": each block chooses by what the text says
            (`learned_router`), and a route only tells it the domain; "token": each block sends each token to
            its own `top_k` experts (`token_router`).
        top_k: with router="token", the experts of each token.
        pooling: "mean", "cls" or "pooler" (`heads.put_head`); by default the base's own.
        head: "tanh", on the pooling (`heads.put_head`).
        normalize: whether vectors are of length 1 (`heads.put_normalize`); by default as the base has it.
        seed: of the weights that the base does not have: the routers', a pooler's, a head's.

    Raises:
        UsageError: a wrong argument, or names that give no usable route.
        InputError: a base that cannot be extended.
    """
    names = _checked_names(experts)
    shared = _checked_share(names, share or {}, route)
    _check_routing([*names, *shared], layers, route, router, prefixes, default_prompt_name)
    check_head(pooling, head)
    encoder = base if isinstance(base, SentenceTransformer) else load(base, device="cpu", int8=False)
    dense = _dense_model(encoder)
    tokenizer, routes = _routes(encoder.tokenizer, route, names, shared, prefixes)
    fields = {"experts": names, "route_kind": route, "router": router, "top_k": top_k}
    fields |= {"expert_layers": layers, "expert_norms": expert_norms}
    model = _with_experts(dense, tokenizer, routes, fields, seed)
    device = str(encoder.device) if encoder is base else None
    extended = _assemble(encoder, model, tokenizer, routes, default_prompt_name, device)
    put_head(extended, pooling, head, seed)
    put_normalize(extended, normalize)
    return extended


def _checked_names(experts: Sequence[str]) -> list[str]:
    names = [experts] if isinstance(experts, str) else list(experts)
    if not names:
        raise UsageError("name at least one expert")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"expert named twice: {', '.join(map(repr, twice))}")
    return names


def _checked_share(names: Sequence[str], share: Mapping[str, str], route: str) -> dict[str, int]:
    """Shared route -> the number of its expert."""
    if share and route != "prefix":
        raise UsageError("share gives an expert several instructions, for route='prefix'")
    for name, expert in share.items():
        if name in names:
            raise UsageError(f"route {name!r} has an expert of its own, so it cannot share {expert!r}'s")
        if expert not in names:
            known = ", ".join(names)
            raise UsageError(f"route {name!r} shares {expert!r}, which is not an expert; they are {known}")
    return {name: names.index(expert) for name, expert in share.items()}


def _check_routing(
    routes: Sequence[str],
    layers: str | Sequence[int],
    route: str,
    router: str,
    prefixes: Mapping[str, str] | None,
    default_prompt_name: str | None,
) -> None:
    if route not in ROUTE_KINDS:
        raise UsageError(f"route {route!r}: choose one of {', '.join(ROUTE_KINDS)}")
    if router not in ROUTERS:
        raise UsageError(f"router {router!r}: choose one of {', '.join(ROUTERS)}")
    if route == "none" and router not in CHOOSING:
        raise UsageError("route='none' leaves nothing to choose the expert by; add router='learned'")
    if router in CHOOSING and layers == "none":
        raise UsageError(f"router={router!r} needs blocks with experts; layers='none' leaves none")
    if prefixes is not None and route != "prefix":
        raise UsageError("prefixes are instructions, for route='prefix'")
    if default_prompt_name is not None and route == "none":
        raise UsageError("route='none' makes no routes, so there is no default one")
    if default_prompt_name is not None and default_prompt_name not in routes:
        known = ", ".join(routes)
        raise UsageError(f"default route {default_prompt_name!r} is not an expert; the experts are {known}")


def _routes(
    tokenizer: PreTrainedTokenizerBase,
    kind: str,
    names: Sequence[str],
    shared: Mapping[str, int],
    prefixes: Mapping[str, str] | None,
) -> tuple[PreTrainedTokenizerBase, list[Route]]:
    """The tokenizer that reads the routes, and the routes."""
    if kind == "token":
        return with_domain_tokens(tokenizer, names)
    if kind == "none":
        return tokenizer, []
    instructions = _instructions([*names, *shared], prefixes)
    return tokenizer, prefix_routes(tokenizer, instructions, shared)


def _checked_layers(layers: str | Sequence[int], blocks: int) -> list[int]:
    """The block numbers, ascending."""
    if isinstance(layers, str):
        choices = {"all": range(blocks), "alternate": range(1, blocks, 2), "none": range(0)}
        if layers not in choices:
            raise UsageError(f"layers {layers!r}: choose all, alternate, none, or block numbers")
        if layers == "alternate" and blocks < 2:
            raise UsageError("layers 'alternate': the base has one block only; choose all or none")
        return list(choices[layers])
    wanted = [layers] if isinstance(layers, int) else list(layers)
    if not wanted or any(layer not in range(blocks) for layer in wanted):
        raise UsageError(f"layers {layers!r}: choose at least one of the base's blocks, 0 to {blocks - 1}")
    return sorted({int(layer) for layer in wanted})


def _instructions(names: Sequence[str], prefixes: Mapping[str, str] | None) -> dict[str, str]:
    unknown = sorted(set(prefixes or {}) - set(names))
    if unknown:
        raise UsageError(
            f"instruction for {', '.join(map(repr, unknown))}, which is not an expert, nor a route to one"
        )
    return {name: (prefixes or {}).get(name, f"{name}: ") for name in names}


def _dense_model(encoder: SentenceTransformer) -> PreTrainedModel:
    dense = getattr(encoder[0], "auto_model", None)
    if not isinstance(dense, PreTrainedModel) or encoder.tokenizer is None:
        first = type(encoder[0]).__name__
        raise InputError(f"the base's first module is {first}, not a transformers encoder for text")
    if getattr(dense.config, "is_decoder", False):
        raise InputError("the base is configured as a decoder (is_decoder); only encoders can be extended")
    family_of_base(dense.config.model_type)  # a base that cannot be extended is named before its tokenizer
    return dense


def _with_experts(
    dense: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    routes: Sequence[Route],
    fields: dict[str, Any],
    seed: int,
) -> PreTrainedModel:
    """The base's transformer with experts; `fields` are the config's, its layers as `extend` takes them."""
    if fields["router"] == TOKEN:
        check_top_k(fields["top_k"], len(fields["experts"]))
    family = family_of_base(dense.config.model_type)
    fields["expert_layers"] = _checked_layers(fields["expert_layers"], dense.config.num_hidden_layers)
    model = _model(family, _config(family, dense.config, tokenizer, routes, fields), dense, tokenizer)
    initialize_routers(model, seed)
    return model


def _config(
    family: Family,
    base: PreTrainedConfig,
    tokenizer: PreTrainedTokenizerBase,
    routes: Sequence[Route],
    fields: Mapping[str, Any],
) -> PreTrainedConfig:
    kept = {name: value for name, value in base.to_dict().items() if name not in NOT_INHERITED}
    kept["vocab_size"] = max(base.vocab_size, len(tokenizer))
    kept["base_vocab_size"] = base.vocab_size
    replacement = tokenizer.unk_token_id if tokenizer.unk_token_id is not None else tokenizer.cls_token_id
    config: PreTrainedConfig = family.load_config_class()(
        **kept,
        **fields,
        routes=[route.to_json() for route in routes],
        inner_route_token_id=replacement if fields["route_kind"] == "token" else None,
    )
    return config


def _model(
    family: Family, config: PreTrainedConfig, dense: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> PreTrainedModel:
    """The model with experts, its weights copied from the dense one."""
    pooler = {"add_pooling_layer": dense.pooler is not None} if hasattr(dense, "pooler") else {}
    model: PreTrainedModel = family.load_model_class()(config, **pooler).to(dense.dtype)
    weights = dense.state_dict()
    state = {}
    for key, value in model.state_dict().items():
        source = value if ROUTER_WEIGHT in key else weights[base_key(family, key)]
        state[key] = source if source.shape == value.shape else _with_new_rows(source, value.shape[0])
    model.load_state_dict(state)
    if config.route_kind == "token":
        embeddings: Any = model.get_input_embeddings().weight
        with torch.no_grad():
            for route in config.routes:
                embeddings[route["token_ids"][0]] = embeddings[tokenizer.cls_token_id]
    model.eval()
    return model


def _with_new_rows(weight: Tensor, rows: int) -> Tensor:
    return torch.cat([weight, weight.new_zeros(rows - weight.shape[0], *weight.shape[1:])])


def _assemble(
    encoder: SentenceTransformer,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    routes: Sequence[Route],
    default_prompt_name: str | None,
    device: str | None,
) -> ExpertEncoder:
    prompts = _prompts(encoder, routes, model.config.route_kind, default_prompt_name)
    if not routes:
        default_prompt_name = encoder.default_prompt_name
    extended = rebuilt(ExpertEncoder, encoder, model, tokenizer, prompts, default_prompt_name, device)
    _include_routes_in_pooling(extended, model.config.route_kind)
    return extended


def _prompts(
    encoder: SentenceTransformer, routes: Sequence[Route], kind: str, default_prompt_name: str | None
) -> dict[str, str | None]:
    """prompt_name -> what is put in front of a text: the route, then the base's default prompt if any.

    Without routes texts stay as the base reads them, and so do its prompts.
    """
    if not routes:
        return dict(encoder.prompts)
    base_prompt = encoder.prompts.get(encoder.default_prompt_name or "") if kind == "token" else None
    prompts: dict[str, str | None] = {route.name: route.text + (base_prompt or "") for route in routes}
    if default_prompt_name is not None:
        # encode_query and encode_document ask for these names, not for the default.
        default = prompts[default_prompt_name]
        prompts = {"query": default, "document": default, **prompts}
    return prompts


def _include_routes_in_pooling(encoder: SentenceTransformer, kind: str) -> None:
    for module in encoder if kind != "none" else ():
        if isinstance(module, Pooling) and not module.include_prompt:
            if kind == "prefix":
                raise UsageError(
                    "the base's pooling leaves prompts out (include_prompt=False), so a vector would depend "
                    "on how the instruction is given; call base.set_pooling_include_prompt(True) first"
                )
            logger.info(
                "the base's pooling left prompts out; now it takes them in, as a route stands for [CLS]"
            )
            module.include_prompt = True
