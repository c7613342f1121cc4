"""Give a pretrained encoder routes: it gives the same vectors until they are trained.

Every expert starts as a copy of the base's MLP (Hallee 2025, fig. 1; MoTE, section 3.1.1), every domain token
as a copy of [CLS], every head as the identity, and every adapter as zero. (A different pooling, or a head on
the pooling of all routes, changes the vectors.)
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import PreTrainedModel

from sentence_experts.compat.sentence_transformers import transformer_of
from sentence_experts.config import with_settings
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.architectures.families import family_of_base
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.loading import load
from sentence_experts.models.routes.kinds import ROUTER_KINDS
from sentence_experts.models.sources import set_notes
from sentence_experts.models.surgery.adapter_routes import adaptable_layers
from sentence_experts.models.surgery.assemble import ExpertSource, with_experts
from sentence_experts.models.surgery.extend_config import EXPERT, ExtendConfig
from sentence_experts.models.surgery.heads import check_linear_pooling, put_head, put_normalize
from sentence_experts.models.surgery.route_plan import (
    RoutePlan,
    domain_names,
    plan_routes,
    search_routes,
    task_routes,
)
from sentence_experts.models.surgery.stored import Source, stored

logger = logging.getLogger(__name__)


@with_settings(ExtendConfig)
def extend(
    base: Source,
    experts: Sequence[str] | None = None,
    config: ExtendConfig | None = None,
    *,
    routes: Sequence[str] | None = None,
    domains: Any = None,
    tasks: Any = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> ExpertEncoder:
    """Give an encoder routes, each with an expert, an adapter or a head.

    An expert takes the place of the MLP in each chosen block. An adapter adds a product of two low-rank
    matrices to each linear layer of the blocks (LoRA). A head is a linear map, with a bias, of the pooled
    vector, before what follows the pooling (`Normalize`, say); all heads share one encoding of a text.
    `domains` and `tasks` can be combined in one model: domains are then routed by their tokens, tasks by
    their instructions.

        extend("minilm", ["copd", "cvd"])                          # texts begin with [COPD] or [CVD]
        extend("minilm", ["query", "passage"], route="prefix")     # "query: ...", "passage: ..."
        extend("minilm", domains="pairs/", tasks="tasks.yaml")     # both
        extend("minilm", routes=["use", "field"], kind="head")     # texts begin with [USE] or [FIELD]

    Args:
        base: "minilm", a directory or hub id of a sentence-transformers or plain transformers checkpoint of
            BERT, ModernBERT or NomicBERT, or a model in memory, which stays unchanged. A plain checkpoint
            gets mean pooling.
        experts: names of routes and their experts, in the order of their indices.
        config: the settings; see `ExtendConfig`.
        routes: names of routes of any kind, in place of `experts`.
        domains: more names of routes: a list, or pairs (in memory or their folder), for their domains.
        tasks: a task file or tasks folder, or either one opened: an expert per instruction, or shared ones
            as the file says. By default the experts then own the norms too (MoTE, fig. 2b).
        out: folder to save the model in; a finished model there that was made in the same way is returned.
        overwrite: start over, replacing another model in `out`.
        **settings: fields of `ExtendConfig`, in place of the config's.

    Raises:
        UsageError: a wrong argument, names that give no usable route, or `out` holds something else.
        InputError: a base that cannot be extended, or `domains` or `tasks` that cannot be read.

    Example:
        >>> model = extend("base", ["copd", "cvd"])
        >>> model.encode(["[COPD]One text.", "[CVD]Another."]).shape
        (2, 32)
    """
    chosen = ExtendConfig.of(config, **settings)
    if experts is not None and (routes is not None or chosen.kind != EXPERT):
        raise UsageError("`experts` are routes of `kind='expert'`: name `routes` instead")
    given = experts if routes is None else routes
    names = [given] if isinstance(given, str) else None if given is None else list(given)
    device = str(base.device) if isinstance(base, SentenceTransformer) else None
    # No path of this machine goes into a card.
    name = str(base) if isinstance(base, str | Path) and not Path(base).exists() else None
    return stored(
        lambda opened: _extended(
            opened, [*(names or ()), *domain_names(domains)], chosen, tasks, device, name
        ),
        base,
        out,
        overwrite,
        {"experts": names, "config": chosen.model_dump(mode="json")},
        {"domains": (domains, domain_names), "tasks": (tasks, task_routes)},
        device,
    )


def _extended(
    base: Source,
    names: Sequence[str],
    config: ExtendConfig,
    tasks: Any,
    device: str | None,
    name: str | None,
) -> ExpertEncoder:
    encoder = base if isinstance(base, SentenceTransformer) else load(base, device="cpu")
    dense = _dense_model(encoder)
    plan = plan_routes(names, tasks, config, [*adaptable_layers(dense)])
    if config.default_route is not None and config.default_route not in plan.names:
        known = ", ".join(plan.names)
        raise UsageError(f"`default_route`: {config.default_route!r} is not a route; the routes are {known}")
    ROUTER_KINDS[config.router].check(config.experts_per_token, len(plan.experts))
    fields = config.fields_of_model(dense.config.num_hidden_layers, with_tasks=tasks is not None)
    fields["search_routes"] = search_routes(tasks)
    sources = [ExpertSource({}, base=dense.state_dict())] * len(plan.experts)
    prompts = _prompts(encoder, plan, config.default_route)
    default = config.default_route if plan.routes else encoder.default_prompt_name
    extended = with_experts(encoder, plan, sources, prompts, default, device, fields, config.seed)
    _include_prompts_in_pooling(extended, plan)
    put_head(extended, config.pooling, config.head, config.seed)
    put_normalize(extended, config.normalize)
    if plan.heads:
        check_linear_pooling(extended)
    if name is not None:
        set_notes(extended, {"base": name})
    return extended


def _dense_model(encoder: SentenceTransformer) -> PreTrainedModel:
    dense = transformer_of(encoder)
    if not isinstance(dense, PreTrainedModel) or encoder.tokenizer is None:
        first = type(encoder[0]).__name__
        raise InputError(f"the base's first module is {first}, not a transformers encoder for text")
    if getattr(dense.config, "is_decoder", False):
        raise InputError("the base is configured as a decoder (is_decoder); only encoders can be extended")
    family_of_base(dense.config.model_type)  # a base that cannot be extended is named before its tokenizer
    return dense


def _include_prompts_in_pooling(extended: ExpertEncoder, plan: RoutePlan) -> None:
    for module in extended if plan.routes else ():
        if isinstance(module, Pooling) and not module.include_prompt:
            if plan.instructions:
                raise UsageError(
                    "the base's pooling leaves prompts out (include_prompt=False), so a vector would depend "
                    "on how the instruction is given; call base.set_pooling_include_prompt(True) first"
                )
            logger.info("the base's pooling left prompts out; it now includes them, for the domain token")
            module.include_prompt = True


def _prompts(
    encoder: SentenceTransformer, plan: RoutePlan, default_route: str | None
) -> Mapping[str, str | None]:
    """Return the routes as prompts; without routes, the base's own prompts."""
    if not plan.routes:
        return encoder.prompts
    prompts = plan.prompts(encoder.prompts.get(encoder.default_prompt_name or "") or "")
    if default_route is None:
        return prompts
    # encode_query and encode_document ask for these names, not for the default.
    return {"query": prompts[default_route], "document": prompts[default_route], **prompts}
