"""Routes added to a model or dropped: all other routes keep their vectors bit-equal.

Routes share attention and embeddings but not the experts or heads that they own, so weights that come or go
with one route are not read by the others. The new part can then be trained alone (`TrainConfig.only_expert`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sentence_transformers import SentenceTransformer
from torch import Tensor

from sentence_experts.compat.sentence_transformers import transformer_of
from sentence_experts.config import with_settings
from sentence_experts.errors import UsageError
from sentence_experts.models.dense import dense_prompt, equal_shares
from sentence_experts.models.encoder import ExpertEncoder, check_experts
from sentence_experts.models.files.fingerprint import fingerprint_of
from sentence_experts.models.layers.heads import LowRankHead
from sentence_experts.models.layers.weight_names import owner_of
from sentence_experts.models.loading import load
from sentence_experts.models.routes.kinds import router_kind
from sentence_experts.models.routes.route_tokens import domain_token
from sentence_experts.models.routes.routes import is_domain_route
from sentence_experts.models.sources import notes_of
from sentence_experts.models.surgery.adapter_routes import adaptable_layers, read_peft
from sentence_experts.models.surgery.assemble import ExpertSource, Source, make_and_store, with_experts
from sentence_experts.models.surgery.base_weights import read_base_weights
from sentence_experts.models.surgery.extend import extend
from sentence_experts.models.surgery.extend_config import ADAPTER, AVERAGE, BASE, EXPERT, HEAD, AddRouteConfig
from sentence_experts.models.surgery.pooling_head import check_linear_pooling
from sentence_experts.models.surgery.route_plan import PlannedRoute, RoutePlan, adapter_settings, task_routes

logger = logging.getLogger(__name__)


@with_settings(AddRouteConfig)
def add_route(
    model: Source,
    name: str,
    config: AddRouteConfig | None = None,
    *,
    tasks: Any = None,
    base: Source | None = None,
    adapter: str | Path | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> ExpertEncoder:
    """Add a route with an expert, adapter or head to a model; the others stay bit-equal.

    Args:
        model: a model with routes, or its folder; it stays unchanged.
        name: name of the new route and of its expert.
        config: the settings; see `AddRouteConfig`.
        tasks: a task file or tasks folder, or either one opened, that has the new route's instruction.
        base: the dense base, for `seed_from="base"`, or for an adapter or head on it, where blocks hold
            experts.
        adapter: a folder in which peft has saved a LoRA of the same base, which the route gets; `kind` is
            then adapter.
        out: folder to save the model in; a finished model there that was made in the same way is returned.
        overwrite: whether to start over, replacing another model in `out`.
        **settings: fields of `AddRouteConfig`, in place of the config's.

    A model that gets its first expert gets experts in all blocks, of which the other routes share the
    base's. Texts of adapters and heads begin with a domain token, which the model reads as [CLS], or as
    the token of the expert that the route sits on.

    Raises:
        UsageError: the name is taken or not in `tasks`, the seed is not known or lacks its base, the route is
            not usable, the shared weights are no longer those of the base that it is to sit on, learned
            routers choose the experts, or `out` holds something else.
        InputError: the base is of another family or size.

    Example:
        >>> add_route("model", "botany", seed_from="genomics").experts[-1]
        'botany'
    """
    chosen = AddRouteConfig.of(config, **settings)
    if adapter is not None and chosen.kind == EXPERT:
        chosen = AddRouteConfig.of(chosen, kind=ADAPTER)
    folder = base if isinstance(base, str | Path) and Path(base).is_dir() else None
    hub_name = str(base) if isinstance(base, str | Path) and folder is None else None
    return make_and_store(
        lambda opened: _grow(opened, name, chosen, tasks, base, adapter),
        model,
        out,
        overwrite,
        {"name": name, **chosen.model_dump(mode="json"), "base": hub_name},
        {
            "tasks": (tasks, task_routes),
            "base_folder": (folder, str),
            "adapter": (adapter, str),
            "base": (None if isinstance(base, str | Path) else base, fingerprint_of),
        },
    )


def _grow(
    model: SentenceTransformer,
    name: str,
    config: AddRouteConfig,
    tasks: Any,
    base: Source | None,
    adapter: str | Path | None,
) -> ExpertEncoder:
    encoder = _check_growable(model)
    plan, sources = RoutePlan.of(encoder), _keep_experts(encoder)
    weights: dict[str, Tensor] = {}
    if config.kind == EXPERT:
        route = PlannedRoute(name, name, _choose_instruction(plan, name, config.prefix, tasks))
        added = [_choose_start(encoder, config.seed_from or AVERAGE, base)]
    else:
        if tasks is not None:
            raise UsageError(f"`tasks` gives instructions, and each {config.kind} has a domain token")
        rank = config.rank if config.kind == HEAD else None
        route = PlannedRoute(name, config.on or BASE, kind=config.kind, rank=rank)
        added = _check_place(encoder, route, config.on, base)
        if config.kind == ADAPTER and adapter is not None:
            if config.rank is not None:
                raise UsageError("`rank` is for a new adapter; one that peft has trained has its own")
            made_of = notes_of(encoder).get("base")
            settings, weights = read_peft(Path(adapter), transformer_of(encoder), made_of)
            route = replace(route, adapter=settings)
        elif config.kind == ADAPTER:
            layers = [*adaptable_layers(transformer_of(encoder))]
            route = replace(route, adapter=adapter_settings(config.rank, layers))
    grown = plan.with_route(route)
    model_config = encoder.routed_model.config
    fields: dict[str, Any] = {}
    if plan.experts == (BASE,) and grown.experts != plan.experts and not model_config.expert_layers:
        fields = {"expert_layers": list(range(model_config.num_hidden_layers))}
        sources = added = [ExpertSource({}, base=transformer_of(encoder).state_dict())]
    made = _with_plan(encoder, grown, [*sources, *added], fields, config.seed)
    if weights:
        number = [each["route"] for each in grown.adapters].index(name)
        with torch.no_grad():
            state = transformer_of(made).state_dict()
            for each in [each for each in state if owner_of(each) == ("adapter", number)]:
                state[each].zero_()  # layers that peft left out
            for pattern, weight in weights.items():
                into, (rows, columns) = state[pattern.format(number)], weight.shape
                into[:rows, :columns] = weight  # a smaller rank than other layers' is filled up with zeros
    return made


def with_heads(
    model: Source,
    heads: Mapping[str, tuple[ArrayLike, ArrayLike]],
    rank: int | None = None,
    on: str | None = None,
) -> ExpertEncoder:
    """Return a model that has these routes, each with this head; the others' vectors stay bit-equal.

    Heads of other kinds of training come in here: maps that were fitted to `model.without_heads()`'s vectors.

    Args:
        model: a dense encoder, which becomes one of heads alone, or a model with routes, whose head routes of
            these names get the new heads; a name or path of either. It stays unchanged.
        heads: route -> (weight of shape (width, width), bias of shape (width,)) of y = weight @ x + bias,
            where x is the pooled vector before any module that follows the pooling.
        rank: rank of new heads' difference from the identity; None for any.
        on: route whose expert or adapter, and instruction, the new heads share; None for the base.

    Raises:
        UsageError: no heads, no route `on`, one of another shape, of a higher rank or with numbers that are
            not finite, or the name of a route of another kind.
        InputError: the model's pooling does not commute with a linear map.
    """
    opened = load(model, device="cpu") if isinstance(model, str | Path) else model
    if not isinstance(opened, ExpertEncoder):
        if on is not None:
            raise UsageError("`on`: a dense model has no routes")
        encoder = extend(model, routes=list(heads), kind=HEAD, rank=rank)
    else:
        plan = RoutePlan.of(_check_growable(opened))
        if on is not None and on not in plan.names:
            raise UsageError(f"`on`: there is no route {on!r}; they are {', '.join(plan.names)}")
        below = PlannedRoute("", BASE) if on is None else plan.routes[plan.names.index(on)]
        if below.instruction:
            _check_instruction(opened, plan, below)
        under = below.name if below.kind == ADAPTER else below.under
        added = [name for name in heads if name not in plan.heads]
        for name in added:
            route = PlannedRoute(name, below.expert, kind=HEAD, rank=rank, under=under)
            _check_place(opened, route, None, None)
            plan = plan.with_route(route)
        encoder = _with_plan(opened, plan, _keep_experts(opened))
        if on is not None:
            text = opened.prompts.get(on) or below.instruction or ""
            for name in added:
                encoder.prompts[name] = domain_token(name) + text.removeprefix(domain_token(on))
    for name, given in heads.items():
        values = (each.detach() if isinstance(each, torch.Tensor) else each for each in given)
        head, (weight, bias) = encoder.head(name), map(np.asarray, values)
        shapes = tuple(head.weight.shape), tuple(head.bias.shape)
        if (weight.shape, bias.shape) != shapes:
            cut = " (`truncate_dim` cuts vectors, and heads map whole ones)" if encoder.truncate_dim else ""
            raise UsageError(
                f"head {name!r}: weight of shape {weight.shape} and bias of shape {bias.shape}, "
                f"not {shapes[0]} and {shapes[1]}{cut}"
            )
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise UsageError(f"head {name!r} has numbers that are not finite")
        with torch.no_grad():
            head.bias.copy_(torch.as_tensor(bias))
            if isinstance(head, LowRankHead):
                for factor, value in zip((head.up, head.down), _factor(name, weight, head), strict=True):
                    factor.copy_(torch.as_tensor(value))
            else:
                head.weight.copy_(torch.as_tensor(weight))
    return encoder


def _check_instruction(encoder: ExpertEncoder, plan: RoutePlan, route: PlannedRoute) -> None:
    """Check that texts of an instruction are read with [CLS] before them, as a head's texts are."""
    rows = transformer_of(encoder).get_input_embeddings().weight
    lead = next(each.token_ids[0] for each in encoder.routes if each.name == route.name)
    has_token = any(each.kind == EXPERT and each.expert == route.expert for each in plan.domains)
    if has_token or not torch.equal(rows[lead], rows[encoder.tokenizer.cls_token_id]):
        raise UsageError(f"`on`: the token before the instruction of {route.name!r} is not a head's")


def _factor(name: str, weight: Any, head: LowRankHead) -> tuple[Any, Any]:
    """Factor a map's difference from the identity into the matrices of a head of low rank."""
    left, sizes, right = np.linalg.svd(weight.astype(np.float64) - np.eye(len(weight)))
    rank = len(head.down)
    if len(sizes) > rank and sizes[rank] > 1e-5 * max(sizes[0], 1):
        raise UsageError(f"head {name!r} differs from the identity by more than rank {rank}")
    roots = np.sqrt(sizes[:rank])
    return left[:, :rank] * roots, roots[:, None] * right[:rank]


def drop_route(
    model: Source, name: str, *, out: str | Path | None = None, overwrite: bool = False
) -> ExpertEncoder:
    """Drop a route and what it owns from a model; the others' vectors stay bit-equal.

    Routes that share an expert go with it, and so does the half for queries of a taught route, which is
    logged. Texts then read the token as ordinary text.

    Args:
        model: a model with routes, or its folder; it stays unchanged.
        name: the route or expert.
        out: folder to save the model in; a finished model there that was made in the same way is returned.
        overwrite: whether to start over, replacing another model in `out`.

    Raises:
        UsageError: there is no such route, or no other, or `out` holds something else.

    Example:
        >>> "genomics" in drop_route("model", "genomics").experts
        False
    """
    return make_and_store(lambda opened: _without(opened, name), model, out, overwrite, {"without": name}, {})


def query_half(name: str) -> str:
    """Return the name of the route for the queries of a taught route that moves queries."""
    return f"{name} query"


def _without(model: SentenceTransformer, name: str) -> ExpertEncoder:
    encoder = _check_growable(model)
    plan, names = RoutePlan.of(encoder), encoder.experts
    if name not in (*plan.names, *names):
        known = ", ".join(dict.fromkeys([*plan.names, *names]))
        raise UsageError(f"there is no route or expert {name!r}; they are {known}")
    rest = plan.without(name)
    shared = sorted({*plan.names} - {*rest.names, name})
    pairs = encoder.routed_model.config.search_routes
    for query, document in pairs.items():
        gone = {*plan.names} - {*rest.names}
        if query == query_half(document) and gone & {query, document}:  # a taught route that moves queries
            for half in {query, document} & {*rest.names}:
                rest = rest.without(half)
                logger.info(f"dropped with {name!r}, as the other half of a taught route: {half}")
    if not rest.routes:
        raise UsageError(f"{name!r} is the only one; to have none, export its route as a dense model")
    sources = [
        source for expert, source in zip(names, _keep_experts(encoder), strict=True) if expert in rest.experts
    ]
    dropped = {name, *plan.names} - {*rest.names}
    if shared:
        logger.warning(f"dropped with {name!r}, whose expert they share: {', '.join(shared)}")
    prompts: dict[str, Any] = {key: prompt for key, prompt in encoder.prompts.items() if key not in dropped}
    default = encoder.default_prompt_name
    if default in dropped:
        logger.warning(f"{default!r} was the default route; now every text needs one")
        default = None
        for alias in ("query", "document"):
            if alias not in plan.names:
                prompts.pop(alias, None)
    gone_prompts = {encoder.prompts.get(each) for each in dropped}
    gone_prompts -= {encoder.prompts.get(each) for each in rest.names}
    for alias in {"query", "document"} & {*prompts} - {*rest.names}:
        if default is not None and prompts[alias] in gone_prompts:
            prompts[alias] = prompts[default]
    made = with_experts(encoder, rest, sources, prompts, default, str(encoder.device))
    left = {query: document for query, document in pairs.items() if not {query, document} & dropped}
    made.routed_model.config.search_routes = left
    return made


def _check_growable(model: SentenceTransformer) -> ExpertEncoder:
    """Return the model, if experts can be added to it and dropped."""
    encoder = check_experts(model)
    if (kind := router_kind(encoder.routed_model.config)).is_learned:
        raise UsageError(
            f"in this model routers choose the experts (`router={kind.name!r}`), and know these alone: "
            "`extend` the base with others"
        )
    encoder.routed_model.check_whole("given other experts")
    return encoder


def _keep_experts(encoder: ExpertEncoder) -> list[ExpertSource]:
    return [ExpertSource({number: 1.0}) for number in range(len(encoder.experts))]


def _with_plan(
    encoder: ExpertEncoder,
    plan: RoutePlan,
    sources: Sequence[ExpertSource],
    fields: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> ExpertEncoder:
    """Give a model the routes of `plan`; new ones get their prompts."""
    config, device = encoder.routed_model.config, str(encoder.device)
    instructed = {route.expert for route in encoder.routes if not is_domain_route(route, config)}
    domain = next((each for each in encoder.routes if each.expert not in instructed), None)
    # It follows every domain token but the tokens of heads on instructions.
    base_prompt = dense_prompt(encoder, domain) if domain else ""
    known = RoutePlan.of(encoder).names
    new = {name: prompt for name, prompt in plan.prompts(base_prompt).items() if name not in known}
    prompts, default = encoder.prompts | new, encoder.default_prompt_name
    grown = with_experts(encoder, plan, sources, prompts, default, device, fields, seed)
    if plan.heads:
        check_linear_pooling(grown)
    return grown


def _check_place(
    encoder: ExpertEncoder, route: PlannedRoute, on: str | None, base: Source | None
) -> list[ExpertSource]:
    """Check the place of an adapter or head; return the base's MLPs, if they are to become an expert."""
    if base is not None:
        if on is not None:
            raise UsageError("`on` and `base` both say what the route sits on: leave one out")
        if BASE in encoder.experts:
            raise UsageError(
                f"the model has an expert named {BASE!r}, on which the route sits: leave `base` out"
            )
        return [ExpertSource({}, base=read_base_weights(encoder, base, shared_too=True))]
    if route.expert not in encoder.experts:
        known = ", ".join(encoder.experts)
        raise UsageError(
            f"no expert {route.expert!r} for the {route.kind} to sit on: give `on`, one of {known}; or "
            "`base`, from which the model was made"
        )
    return []


def _choose_instruction(plan: RoutePlan, name: str, prefix: str | None, tasks: Any) -> str | None:
    """Return a new expert's instruction; None for a domain token, where the model has them."""
    if tasks is not None:
        if prefix is not None:
            raise UsageError("`prefix` and `tasks` both give the new route's instruction: leave one out")
        instructions, _ = task_routes(tasks)
        if name not in instructions:
            raise UsageError(f"`tasks` has no route {name!r}; its routes: {', '.join(instructions)}")
        prefix = instructions[name]
    if prefix is None and plan.domains:
        return None
    return prefix or f"{name}: "


def _choose_start(encoder: ExpertEncoder, seed_from: str, base: Source | None) -> ExpertSource:
    """Choose the start of the new expert; an expert named "base" or "average" comes first."""
    experts = encoder.experts
    if base is not None and seed_from != BASE:
        raise UsageError("`base` is for an expert that is seeded from it: give `seed_from='base'` too")
    if base is not None and BASE in experts:
        raise UsageError(f"the model has an expert {BASE!r}, which is the start then: leave `base` out")
    if seed_from in experts:
        return ExpertSource({experts.index(seed_from): 1.0})
    if seed_from == AVERAGE:
        return ExpertSource(equal_shares(len(experts)))
    if seed_from != BASE:
        known = ", ".join(experts)
        raise UsageError(f"`seed_from` {seed_from!r}: choose average, base, or an expert: {known}")
    if not encoder.routed_model.config.expert_layers:
        return ExpertSource({}, base={})
    if base is None:
        raise UsageError("this model no longer has the base's MLPs: give `base`, from which it was made")
    return ExpertSource({}, base=read_base_weights(encoder, base))
