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
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.architectures.families import NOT_INHERITED, Family, family_of_base
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.loading import load
from sentence_experts.models.routing.router_kinds import ROUTER_KINDS, initialize_routers
from sentence_experts.models.routing.routes import Route, is_domain_route
from sentence_experts.models.storage.weight_names import base_name, is_router
from sentence_experts.models.surgery.assemble import pooler_option, with_new_rows, with_transformer
from sentence_experts.models.surgery.config import ExtendConfig
from sentence_experts.models.surgery.expert_plan import ExpertPlan, plan_experts
from sentence_experts.models.surgery.heads import put_head, put_normalize

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

logger = logging.getLogger(__name__)


def extend(
    base: SentenceTransformer | str | Path,
    experts: Sequence[str] | None = None,
    config: ExtendConfig | None = None,
    *,
    domains: Any = None,
    tasks: Any = None,
    prefixes: Mapping[str, str] | None = None,
    share: Mapping[str, str] | None = None,
    **settings: Any,
) -> ExpertEncoder:
    """Turn the MLP of each chosen block into one expert per name, and give each expert a route.

    `experts`, `domains` and `tasks` can be combined in one model: domains are then routed by their tokens,
    tasks by their instructions.

        extend("minilm", ["copd", "cvd"])                          # texts begin with [COPD] or [CVD]
        extend("minilm", ["query", "passage"], route="prefix")     # "query: ...", "passage: ..."
        extend("minilm", domains="pairs/", tasks="tasks.yaml")     # both

    Args:
        base: "minilm", a directory or hub id of a sentence-transformers or plain transformers checkpoint of
            BERT, ModernBERT or NomicBERT, or a model in memory, which stays unchanged. A plain checkpoint
            gets mean pooling.
        experts: names of experts, in the order of their indices.
        config: the settings; see `ExtendConfig`.
        domains: more names of experts: a list, or pairs (in memory or their folder), for their domains.
        tasks: a task file or tasks folder, or either one opened: an expert per instruction, or shared ones
            as the file says. By default the experts then own the norms too (MoTE, fig. 2b).
        prefixes: with `route="prefix"`, route -> instruction; by default "name: ".
        share: with `route="prefix"`, more routes -> the expert each uses: clustering -> document (MoTE, 5.2).
        **settings: fields of `ExtendConfig`, in place of the config's.

    Raises:
        UsageError: a wrong argument, or names that give no usable route.
        InputError: a base that cannot be extended, or `domains` or `tasks` that cannot be read.

    Example:
        >>> model = extend("base", ["copd", "cvd"])
        >>> model.encode(["[COPD]One text.", "[CVD]Another."]).shape
        (2, 32)
    """
    config = ExtendConfig.of(config, **settings)
    plan = plan_experts(config.route, experts, domains, tasks, prefixes, share)
    if config.default_route is not None and config.default_route not in plan.routes:
        known = ", ".join(plan.routes)
        raise UsageError(f"`default_route`: {config.default_route!r} is not a route; the routes are {known}")
    ROUTER_KINDS[config.router].check(config.top_k, len(plan.experts))
    encoder = base if isinstance(base, SentenceTransformer) else load(base, device="cpu", int8=False)
    dense = _dense_model(encoder)
    tokenizer, routes = plan.build_routes(encoder.tokenizer)
    expert_norms = tasks is not None if config.expert_norms is None else config.expert_norms
    fields = {
        "experts": list(plan.experts),
        "route_kind": plan.kind,
        "router": config.router,
        "top_k": config.top_k,
        "expert_layers": config.block_numbers(dense.config.num_hidden_layers),
        "expert_norms": expert_norms,
    }
    family = family_of_base(dense.config.model_type)
    model = _build(family, _config(family, dense.config, tokenizer, routes, fields), dense, tokenizer)
    initialize_routers(model, config.seed)
    device = str(encoder.device) if encoder is base else None
    extended = _around(encoder, model, tokenizer, plan, routes, config.default_route, device)
    put_head(extended, config.pooling, config.head, config.seed)
    put_normalize(extended, config.normalize)
    return extended


def _dense_model(encoder: SentenceTransformer) -> PreTrainedModel:
    dense = getattr(encoder[0], "auto_model", None)
    if not isinstance(dense, PreTrainedModel) or encoder.tokenizer is None:
        first = type(encoder[0]).__name__
        raise InputError(f"the base's first module is {first}, not a transformers encoder for text")
    if getattr(dense.config, "is_decoder", False):
        raise InputError("the base is configured as a decoder (is_decoder); only encoders can be extended")
    family_of_base(dense.config.model_type)  # a base that cannot be extended is named before its tokenizer
    return dense


def _config(
    family: Family,
    base: PreTrainedConfig,
    tokenizer: PreTrainedTokenizerBase,
    routes: Sequence[Route],
    fields: Mapping[str, Any],
) -> PreTrainedConfig:
    """The base's config with the experts' `fields`."""
    kept = {name: value for name, value in base.to_dict().items() if name not in NOT_INHERITED}
    kept["vocab_size"] = max(base.vocab_size, len(tokenizer))
    kept["base_vocab_size"] = base.vocab_size
    replacement = tokenizer.unk_token_id if tokenizer.unk_token_id is not None else tokenizer.cls_token_id
    config: Any = family.load_config_class()(**kept, **fields, routes=[route.to_json() for route in routes])
    config.inner_route_token_id = replacement if config.has_domain_tokens else None
    extended: PreTrainedConfig = config
    return extended


def _build(
    family: Family, config: PreTrainedConfig, dense: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> PreTrainedModel:
    """Build the model with experts, its weights copied from the dense one."""
    model: PreTrainedModel = family.load_model_class()(config, **pooler_option(dense)).to(dense.dtype)
    weights = dense.state_dict()
    state = {}
    for name, value in model.state_dict().items():
        state[name] = (
            value if is_router(name) else with_new_rows(weights[base_name(family, name)], value.shape)
        )
    model.load_state_dict(state)
    if config.has_domain_tokens:
        embeddings: Any = model.get_input_embeddings().weight
        with torch.no_grad():
            for route in config.routes:
                embeddings[route["token_ids"][0]] = embeddings[tokenizer.cls_token_id]
    model.eval()
    return model


def _around(
    encoder: SentenceTransformer,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    plan: ExpertPlan,
    routes: Sequence[Route],
    default_route: str | None,
    device: str | None,
) -> ExpertEncoder:
    """The base's modules around the model with experts, its routes as prompts."""
    prompts = _prompts(encoder, routes, model.config, default_route)
    default = default_route if routes else encoder.default_prompt_name
    extended = with_transformer(ExpertEncoder, encoder, model, tokenizer, prompts, default, device)
    for module in extended if routes else ():
        if isinstance(module, Pooling) and not module.include_prompt:
            if plan.instructions:
                raise UsageError(
                    "the base's pooling leaves prompts out (include_prompt=False), so a vector would depend "
                    "on how the instruction is given; call base.set_pooling_include_prompt(True) first"
                )
            logger.info("the base's pooling left prompts out; now it includes them: a domain token is [CLS]")
            module.include_prompt = True
    return extended


def _prompts(
    encoder: SentenceTransformer, routes: Sequence[Route], config: Any, default_route: str | None
) -> dict[str, str | None]:
    """Name -> what is put in front of a text: the route and, after a domain token, the base's default prompt.

    Without routes texts stay as the base reads them, and so do its prompts.
    """
    if not routes:
        return dict(encoder.prompts)
    behind_token = encoder.prompts.get(encoder.default_prompt_name or "") or ""
    prompts: dict[str, str | None] = {
        route.name: route.text + (behind_token if is_domain_route(route, config) else "") for route in routes
    }
    if default_route is not None:
        # encode_query and encode_document ask for these names, not for the default.
        default = prompts[default_route]
        prompts = {"query": default, "document": default, **prompts}
    return prompts
