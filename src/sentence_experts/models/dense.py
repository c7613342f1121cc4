"""Dense encoders of the base's family, merged from a model with experts; they load without this package.

A text meets one expert, so a model restricted to one route is a dense model already (`export_route`). The
mean of all experts is one too (`average_experts`; MoTE, "expert averaging").
"""

from __future__ import annotations

import copy
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from sentence_experts.compat.sentence_transformers import transformer_of
from sentence_experts.compat.torch import LightMeta
from sentence_experts.compat.transformers import (
    attention_of,
    check_plain_layers,
    check_settings_kept,
    is_of_library,
)
from sentence_experts.errors import RouteError, UsageError
from sentence_experts.models.architectures.configs import ExpertsFields
from sentence_experts.models.architectures.families import family_of, inherited_values
from sentence_experts.models.layers.adapters import key_of
from sentence_experts.models.layers.experts import IdleExpert
from sentence_experts.models.layers.heads import LowRankHead
from sentence_experts.models.layers.weight_names import base_name, expert_of, of_expert
from sentence_experts.models.pooling import place_of_pooling
from sentence_experts.models.routes.kinds import router_kind
from sentence_experts.models.routes.route_tokens import without_domain_tokens
from sentence_experts.models.routes.routes import Route, describe, is_domain_route
from sentence_experts.models.routes.task_types import DOCUMENT, QUERY, ROLES
from sentence_experts.models.sources import name_of, notes_of, set_notes
from sentence_experts.storage import read_json, temporary_folder, update_json

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from sentence_experts.models.encoder import ExpertEncoder

logger = logging.getLogger(__name__)

Encoder = TypeVar("Encoder", bound=SentenceTransformer)
# Expert index -> its share of a weighted mean; the shares add up to 1.
Shares = Mapping[int, float]


def export_route(encoder: ExpertEncoder, name: str) -> SentenceTransformer:
    """Make the dense encoder that gives the vectors of one route.

    The route's expert becomes the MLP of every block (and its norms, where experts own them), its head a
    `Dense` module behind the pooling, and its domain token [CLS]; an adapter is merged into the weights; an
    instruction becomes the default prompt. The base's tokenizer and number of parameters come back. A learned
    router is left out, which is logged: the expert is the same in every block, where the router would choose
    in each.

    Vectors differ from the route's only for texts that hold "[CLS]" themselves, or a domain token right after
    "[SEP]" or another special token, or the noncharacter U+FDD0.
    """
    routes = {route.name: route for route in encoder.routes}
    if name not in routes and name not in encoder.experts:
        known = describe(encoder.routes) if routes else f"the experts are {', '.join(encoder.experts)}"
        raise RouteError(f"no route is named {name!r}; {known}")
    route = routes.get(name)
    kind = router_kind(encoder.routed_model.config)
    if kind.per_token:
        raise UsageError(
            "in this model each token chooses its own experts (`router='token'`): no single expert encodes a "
            "whole text; export the average instead"
        )
    _refuse_scaled(encoder)
    if kind.is_learned:
        logger.warning(
            f"the dense model uses the expert {name!r} in every block; its vectors can differ from "
            "`encode`, where each block's router chooses an expert"
        )
    expert = encoder.experts.index(name) if route is None else route.expert
    model = _make_dense_model(encoder, {expert: 1.0}, [route] if route else [])
    if route is not None and route.adapter is not None:
        _merge_adapter(encoder, route.adapter, model)
    # An expert without a route of its name reads texts as domain routes on the base do.
    domains = (each for each in encoder.routes if is_domain_route(each, encoder.routed_model.config))
    reads_as = route or next(domains, None)
    prompt = dense_prompt(encoder, reads_as) if reads_as else ""
    # Queries and documents get the prompt too, since a stock encoder has empty ones for them.
    prompts = dict.fromkeys((name, *ROLES), prompt)
    default = name if prompt else None
    if not routes:
        prompts, default = _prompts_of(encoder), encoder.default_prompt_name
        prompts = {name: prompts.get(default or "", ""), **prompts}
    dense = _put_around(encoder, model, prompts, default)
    if route is not None and route.head is not None:
        _put_head(dense, encoder.head(name))
    return dense


def average_experts(encoder: ExpertEncoder) -> SentenceTransformer:
    """Make the dense encoder whose MLPs are the mean of the experts, its [CLS] the mean of their tokens.

    Instructions stay as prompts. Where routes own heads or adapters, it is the mean over the routes: of the
    experts that they sit on, their adapters (none changes nothing) and their heads (none is the identity).
    """
    _refuse_scaled(encoder)
    config, routes = encoder.routed_model.config, encoder.routes
    shares: Shares = equal_shares(len(encoder.experts))
    if config.heads or config.adapters:
        on = Counter(route.expert for route in routes)
        shares = {expert: count / len(routes) for expert, count in on.items()}
    model = _make_dense_model(encoder, shares, routes)
    for route in routes:
        if route.adapter is not None:
            _merge_adapter(encoder, route.adapter, model, 1 / len(routes))
    prompts = {route.name: dense_prompt(encoder, route) for route in routes} or _prompts_of(encoder)
    default = encoder.default_prompt_name if encoder.default_prompt_name in prompts else None
    if routes and any(prompts.values()) and all(is_domain_route(route, config) for route in routes):
        default = next(iter(prompts))  # the prompt of the base, the same for every domain
    dense = _put_around(encoder, model, _with_roles(prompts, default), default)
    if config.heads:
        _put_head(dense, _average_heads(encoder))
    return dense


def _prompts_of(encoder: ExpertEncoder) -> dict[str, str]:
    return {name: text or "" for name, text in encoder.prompts.items()}


def _average_heads(encoder: ExpertEncoder) -> nn.Linear:
    width, shares = encoder.routed_model.config.hidden_size, equal_shares(len(encoder.routes))
    heads = [None if route.head is None else encoder.head(route.name) for route in encoder.routes]
    weights = [torch.eye(width) if head is None else head.weight.float().cpu() for head in heads]
    biases = [torch.zeros(width) if head is None else head.bias.float().cpu() for head in heads]
    mean = nn.Linear(width, width)
    with torch.no_grad():
        mean.weight.copy_(weighted_mean(shares, weights.__getitem__))
        mean.bias.copy_(weighted_mean(shares, biases.__getitem__))
    return mean


def _merge_adapter(encoder: ExpertEncoder, number: int, dense: PreTrainedModel, share: float = 1.0) -> None:
    """Add a route's adapter, or a share of it, to the weights that it adapts."""
    family = family_of(encoder.routed_model.config.model_type)
    blocks: Any = encoder.routed_model.get_submodule(family.blocks)  # type: ignore[attr-defined]
    dense_blocks: Any = dense.get_submodule(family.blocks)
    with torch.no_grad():
        for block, into in zip(blocks, dense_blocks, strict=True):
            layers = {
                key_of(name): each for name, each in into.named_modules() if isinstance(each, nn.Linear)
            }
            for name, adapter in block.adapters[number].items():
                layers[name].weight += share * adapter.product()


def _put_head(dense: SentenceTransformer, head: nn.Linear | LowRankHead) -> None:
    """Put a route's head behind the pooling, as a module of sentence-transformers."""
    place = place_of_pooling(dense)
    module = Dense(len(head.bias), len(head.bias), activation_function=nn.Identity())
    module.linear.load_state_dict({"weight": head.weight, "bias": head.bias})
    dense.insert(place + 1, module.to(dense.device, dense.dtype).eval())


def _refuse_scaled(encoder: ExpertEncoder) -> None:
    kind = router_kind(config := encoder.routed_model.config)
    if kind.scales(config):
        raise UsageError(
            "in this model the experts' outputs are scaled by the router's probability "
            f"(`router={kind.name!r}`): a dense model has no router, and would give other vectors"
        )


def _with_roles(prompts: Mapping[str, str], default: str | None) -> dict[str, str]:
    """Add a prompt for each role: a stock encoder has empty ones, and would use them silently."""
    shared = set(prompts.values())
    other = prompts.get(default or "") or (next(iter(shared)) if len(shared) == 1 else "")
    extended = {QUERY: other, DOCUMENT: prompts.get("passage", other), **prompts}
    if any(shared) and (plain := [role for role in ROLES if not extended[role]]):
        logger.info(
            f"nothing stands in front of a text that is encoded as {' or '.join(plain)}: name a prompt"
        )
    return extended


def _make_dense_model(encoder: ExpertEncoder, shares: Shares, routes: Sequence[Route]) -> PreTrainedModel:
    """Make the base's architecture of the experts in `shares`, with the tokens of `routes` in [CLS]'s row."""
    routed = encoder.routed_model
    routed.check_whole("made dense")
    check_plain_layers(encoder, routed)
    check_structure(routed)
    dense: Any = AutoModel.from_config(_make_dense_config(encoder), **pooler_option(routed))
    check_settings_kept(routed, dense)
    family = family_of(routed.config.model_type)
    weights: dict[str, Tensor] = routed.state_dict()  # type: ignore[attr-defined]
    state = {key: value for key, value in weights.items() if expert_of(key) is None}
    first = (key for key in weights if expert_of(key) == 0)
    state |= {base_name(family, key): mean_weight(weights, key, shares) for key in first}
    table = dense.get_input_embeddings().weight
    embeddings = next(name for name, parameter in dense.named_parameters() if parameter is table)
    rows = state[embeddings]
    state[embeddings] = rows[: dense.config.vocab_size].clone()
    if routed.config.has_domain_tokens and routes:
        tokens: dict[int, float] = defaultdict(float)
        on = Counter(route.expert for route in routes)
        for route in routes:
            share = shares[route.expert] / on[route.expert]
            tokens[route.token_ids[0] if route.lead is None else route.lead] += share
        total = sum(tokens.values())
        mean = weighted_mean({token: share / total for token, share in tokens.items()}, rows.__getitem__)
        state[embeddings][encoder.tokenizer.cls_token_id] = mean
    dense.to(dtype=encoder.dtype)
    dense.load_state_dict({key: state[key] for key in dense.state_dict()})  # routers stay behind
    model: PreTrainedModel = dense.eval()
    return model


def _make_dense_config(encoder: ExpertEncoder) -> PreTrainedConfig:
    """Return the config of the base's family, without the fields of experts."""
    config = encoder.routed_model.config
    ours = {field.name for field in fields(ExpertsFields)}
    values = {name: value for name, value in inherited_values(config).items() if name not in ours}
    values["vocab_size"] = config.base_vocab_size or config.vocab_size
    return AutoConfig.for_model(family_of(config.model_type).base_model_type, **values)


def dense_prompt(encoder: ExpertEncoder, route: Route) -> str:
    """Return the prompt of a route's texts in a dense encoder: the instruction, or the base's prompt."""
    prompt = encoder.prompts.get(route.name) or route.text
    is_domain = is_domain_route(route, encoder.routed_model.config)
    return prompt.removeprefix(route.text) if is_domain else prompt


def _put_around(
    encoder: ExpertEncoder, model: PreTrainedModel, prompts: Mapping[str, str], default: str | None
) -> SentenceTransformer:
    tokenizer, device = encoder.tokenizer, str(encoder.device)
    if encoder.routed_model.config.has_domain_tokens:
        tokenizer = without_domain_tokens(tokenizer, encoder.routes)
    made = with_transformer(SentenceTransformer, encoder, model, tokenizer, prompts, default, device)
    set_notes(made, notes_of(encoder))
    return made


def equal_shares(count: int) -> dict[int, float]:
    """Return the shares in the mean of `count` experts."""
    return dict.fromkeys(range(count), 1 / count)


def weighted_mean(shares: Shares, tensor_of: Callable[[int], Tensor]) -> Tensor:
    """Return the weighted mean of tensors; a single one comes out bit-equal."""
    used = {number: share for number, share in shares.items() if share}
    if len(used) == 1:
        return tensor_of(next(iter(used)))
    parts = torch.stack([share * tensor_of(number).double() for number, share in used.items()])
    return parts.sum(dim=0).to(tensor_of(next(iter(used))).dtype)


def mean_weight(weights: Mapping[str, Tensor], name: str, shares: Shares) -> Tensor:
    """Return the weighted mean over experts of the weight that one of them calls `name`."""
    return weighted_mean(shares, lambda number: weights[of_expert(name, number)])


def pooler_option(model: Any) -> dict[str, bool]:
    """Return the keyword that builds a model of this class with or without a pooler, as `model` is."""
    return {"add_pooling_layer": model.pooler is not None} if hasattr(model, "pooler") else {}


def check_structure(model: Any) -> None:
    """Check that a model has the layers that its class builds of its config, as a new one will be built.

    Raises:
        UsageError: a layer was replaced, added or left out in memory, or the class is the user's own.
    """
    kind: Any = type(model)
    if not is_of_library(kind):
        raise UsageError(
            f"the transformer is of the class {kind.__qualname__}, of which no new model would be built: "
            "take one of transformers"
        )
    with torch.device("meta"), LightMeta():
        stock = kind(copy.deepcopy(model.config), **pooler_option(model))
    there, built = ({name: type(layer) for name, layer in each.named_modules()} for each in (model, stock))
    waiting = {name for name, kind in there.items() if kind is IdleExpert}
    for name in {**there, **built}:
        if not waiting.isdisjoint((name, *(name[: dot.start()] for dot in re.finditer(r"\.", name)))):
            continue
        if there.get(name) is not built.get(name):
            one, other = (getattr(each.get(name), "__qualname__", "missing") for each in (there, built))
            raise UsageError(
                f"the layer {name!r} is {one}, and by the model's config, of which the new model would be "
                f"built, {other}: take the model before that was changed"
            )


def with_transformer(
    encoder_class: type[Encoder],
    encoder: SentenceTransformer,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Mapping[str, str | None],
    default_prompt_name: str | None,
    device: str | None,
) -> Encoder:
    """Put `encoder`'s modules (pooling, heads, normalization) around `model` and `tokenizer`.

    It goes through the files of a saved model: the result is as if loaded, and shares no memory with
    `encoder`, but for its name.
    """
    with temporary_folder() as folder:
        SentenceTransformer.save(encoder, folder, create_model_card=False)
        first = Path(folder) / read_json(Path(folder) / "modules.json")[0]["path"]
        model.save_pretrained(first)
        tokenizer.save_pretrained(first)
        changed = {"prompts": dict(prompts), "default_prompt_name": default_prompt_name}
        update_json(Path(folder) / "config_sentence_transformers.json", changed)
        made = encoder_class(
            folder, device=device, model_kwargs={"attn_implementation": attention_of(encoder.config)}
        )
    inner = transformer_of(made)
    for named in (inner, inner.config, made.tokenizer):
        named.name_or_path = name_of(encoder)  # the folder is gone
    return made
