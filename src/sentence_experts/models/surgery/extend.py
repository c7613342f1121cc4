"""Routes for a pretrained encoder, which gives the same vectors until they are trained.

Every expert starts as a copy of the base's MLP (Hallee 2025, fig. 1; MoTE, section 3.1.1), every domain token
as a copy of [CLS], every head as the identity, and every adapter as zero; `assemble` does so. (A different
pooling, or a head on the pooling of all routes, changes the vectors.)
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
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
from sentence_experts.models.routes.kinds import ROUTER_KINDS
from sentence_experts.models.routes.task_types import DOCUMENT, QUERY, QUERY_ROUTES
from sentence_experts.models.sources import set_notes
from sentence_experts.models.surgery.adapter_routes import adaptable_layers
from sentence_experts.models.surgery.assemble import (
    ExpertSource,
    Source,
    device_of,
    make_and_store,
    with_experts,
)
from sentence_experts.models.surgery.extend_config import EXPERT, ExtendConfig
from sentence_experts.models.surgery.pooling_head import check_linear_pooling, put_head, put_normalize
from sentence_experts.models.surgery.route_plan import domain_names, open_tasks, plan_routes, task_routes

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
    """Give an encoder routes, with an expert, an adapter or a head per route.

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
        overwrite: whether to start over, replacing another model in `out`.
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
    names = [given] if isinstance(given, str) else [] if given is None else list(given)

    def make(encoder: SentenceTransformer) -> ExpertEncoder:
        made = _extend(encoder, [*names, *domain_names(domains)], chosen, tasks, device_of(base))
        if isinstance(base, str | Path) and not Path(base).exists():  # the card names no local path
            set_notes(made, {"base": str(base)})
        return made

    return make_and_store(
        make,
        base,
        out,
        overwrite,
        {"experts": None if given is None else names, "config": chosen.model_dump(mode="json")},
        {"domains": (domains, domain_names), "tasks": (tasks, _hashed_tasks)},
    )


def _hashed_tasks(tasks: Any) -> tuple[Any, ...]:
    """Return what a model takes of tasks in memory."""
    opened = open_tasks(tasks)
    pairs = {} if opened is None else opened.search_routes()
    return (*task_routes(tasks), pairs) if pairs else task_routes(tasks)


def _extend(
    encoder: SentenceTransformer, names: Sequence[str], config: ExtendConfig, tasks: Any, device: str | None
) -> ExpertEncoder:
    dense = transformer_of(encoder)
    if not isinstance(dense, PreTrainedModel) or encoder.tokenizer is None:
        first = type(encoder[0]).__name__
        raise InputError(f"the base's first module is {first}, not a transformers encoder for text")
    if getattr(dense.config, "is_decoder", False):
        raise InputError("the base is configured as a decoder (is_decoder); only encoders can be extended")
    family_of_base(dense.config.model_type)  # an error about the base comes before one about its tokenizer
    plan = plan_routes(names, tasks, config, [*adaptable_layers(dense)])
    opened = open_tasks(tasks)
    prompts, default = dict(encoder.prompts), encoder.default_prompt_name
    if plan.routes:
        prompts, default = dict(plan.prompts(prompts.get(default or "") or "")), config.default_route
        if default is not None:
            if default not in prompts:
                raise UsageError(
                    f"`default_route`: {default!r} is not a route; they are {', '.join(prompts)}"
                )
            # encode_query and encode_document ask for these names, not for the default.
            pairs = (*(() if opened is None else opened.search_routes().items()), *QUERY_ROUTES)
            query, document = next((two for two in pairs if {*two} <= {*prompts}), (default, default))
            prompts = {QUERY: prompts[query], DOCUMENT: prompts[document], **prompts}
        kept = {*prompts.values()}
        lost = [name for name, text in encoder.prompts.items() if text and text not in kept]
        if lost and encoder.default_prompt_name is None:
            logger.warning(
                f"the base's prompts ({', '.join(lost)}) are dropped, and texts are read behind their route "
                "alone: for one of them before every text, load the base, set its `default_prompt_name` to "
                "that name, and extend it in memory"
            )
    if ROUTER_KINDS[config.router].per_token and not 1 <= config.experts_per_token <= len(plan.experts):
        raise UsageError(
            f"`top_k` must be between 1 and the number of experts ({len(plan.experts)}), "
            f"got {config.experts_per_token}"
        )
    fields = config.fields_of_model(dense.config.num_hidden_layers, with_tasks=opened is not None)
    fields["search_routes"] = {} if opened is None else opened.search_routes()
    sources = [ExpertSource({}, base=dense.state_dict())] * len(plan.experts)
    extended = with_experts(encoder, plan, sources, prompts, default, device, fields, config.seed)
    for module in extended if plan.routes else ():
        if isinstance(module, Pooling) and not module.include_prompt:
            if plan.instructions or encoder.prompts.get(encoder.default_prompt_name or ""):
                raise UsageError(
                    "the base's pooling leaves prompts out (include_prompt=False), so a vector would depend "
                    "on how the prompt is given; call base.set_pooling_include_prompt(True) first"
                )
            logger.info("the base's pooling left prompts out; it now includes them, for the domain token")
            module.include_prompt = True
    put_head(extended, config.pooling, config.head, config.seed)
    put_normalize(extended, config.normalize)
    if plan.heads:
        check_linear_pooling(extended)
    return extended
