"""Add an expert to a model or drop one: all other routes keep their vectors bit-equal.

Routes share attention and embeddings but never an expert, so weights that come or go with one expert are
not read by the others. The new expert can then be trained alone (`TrainConfig.only_expert`).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor

from sentence_experts.compat.sentence_transformers import transformer_of
from sentence_experts.config import with_settings
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.architectures.families import family_of
from sentence_experts.models.dense import dense_prompt, equal_shares
from sentence_experts.models.encoder import ExpertEncoder, check_experts
from sentence_experts.models.files.fingerprint import fingerprint_of
from sentence_experts.models.layers.weight_names import base_name, is_expert
from sentence_experts.models.loading import load
from sentence_experts.models.routes.kinds import router_kind
from sentence_experts.models.routes.routes import is_domain_route
from sentence_experts.models.surgery.assemble import ExpertSource, with_experts
from sentence_experts.models.surgery.expert_plan import ExpertPlan, task_routes
from sentence_experts.models.surgery.extend_config import AVERAGE, BASE, AddExpertConfig
from sentence_experts.models.surgery.stored import Source, stored

logger = logging.getLogger(__name__)


@with_settings(AddExpertConfig)
def add_expert(
    model: Source,
    name: str,
    config: AddExpertConfig | None = None,
    *,
    tasks: Any = None,
    base: Source | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> ExpertEncoder:
    """Add an expert and its route to a model; the others' weights and vectors stay bit-equal.

    Args:
        model: a model with experts, or its folder; it stays unchanged.
        name: the new expert's name.
        config: the settings; see `AddExpertConfig`.
        tasks: a task file or tasks folder, or either one opened, that has the new route's instruction.
        base: the dense base, for `seed_from="base"` where blocks hold experts.
        out: folder to save the model in; a finished model there that was made in the same way is returned.
        overwrite: start over, replacing another model in `out`.
        **settings: fields of `AddExpertConfig`, in place of the config's.

    In a learned router the new expert's row is the mean of the others' rows, for any seed: its logit
    then never beats the best of the others, so no text goes to the new expert before it is trained.

    Raises:
        UsageError: the name is taken or not in `tasks`, the seed is not known or lacks its base, the route is
            not usable, or `out` holds something else.
        InputError: the base is of another family or size.

    Example:
        >>> add_expert("model", "botany", seed_from="genomics").experts[-1]
        'botany'
    """
    chosen = AddExpertConfig.of(config, **settings)
    named = base if isinstance(base, str | Path) else None
    folder = named if named is not None and Path(named).is_dir() else None
    elsewhere = None if named is None or folder is not None else str(named)
    return stored(
        lambda opened: _grown(opened, name, chosen, tasks, base),
        model,
        out,
        overwrite,
        {"name": name, **chosen.model_dump(mode="json"), "base": elsewhere},
        {
            "tasks": (tasks, task_routes),
            "base_folder": (folder, str),
            "base": (base if named is None else None, fingerprint_of),
        },
        _device(model),
    )


def _grown(
    model: Source, name: str, config: AddExpertConfig, tasks: Any, base: Source | None
) -> ExpertEncoder:
    encoder = _opened(model)
    prefix = config.prefix if tasks is None else _prefix(name, config.prefix, tasks)
    plan = ExpertPlan.of(encoder).with_expert(name, prefix)
    sources = [ExpertSource({number: 1.0}) for number in range(len(encoder.experts))]
    sources.append(_seeded(encoder, config.seed_from, base))
    model_config = encoder.routed_model.config
    domain = next((route for route in encoder.routes if is_domain_route(route, model_config)), None)
    base_prompt = dense_prompt(encoder, domain) if domain else ""  # it stands behind every domain token
    added = {route: text for route, text in plan.prompts(base_prompt).items() if route == name}
    prompts, default = encoder.prompts | added, encoder.default_prompt_name
    return with_experts(encoder, plan, sources, prompts, default, str(encoder.device))


def drop_expert(
    model: Source, name: str, *, out: str | Path | None = None, overwrite: bool = False
) -> ExpertEncoder:
    """Drop an expert, its route and its token from a model; the others' vectors stay bit-equal.

    Routes that share the expert go with it, which is logged. Texts then read the token as ordinary text. In a
    learned router, texts that went to this expert go to their second choice.

    Args:
        model: a model with experts, or its folder; it stays unchanged.
        name: the expert.
        out: folder to save the model in; a finished model there that was made in the same way is returned.
        overwrite: start over, replacing another model in `out`.

    Raises:
        UsageError: there is no such expert, or no other, or `out` holds something else.

    Example:
        >>> "genomics" in drop_expert("model", "genomics").experts
        False
    """
    return stored(
        lambda opened: _without(opened, name), model, out, overwrite, {"without": name}, {}, _device(model)
    )


def _without(model: Source, name: str) -> ExpertEncoder:
    encoder = _opened(model)
    names = encoder.experts
    if name not in names:
        raise UsageError(f"there is no expert {name!r}; the experts are {', '.join(names)}")
    if len(names) == 1:
        raise UsageError(f"{name!r} is the only expert; to have none, export its route as a dense model")
    plan = ExpertPlan.of(encoder)
    rest = plan.without_expert(name)
    sources = [ExpertSource({number: 1.0}) for number, each in enumerate(names) if each != name]
    dropped = {name, *plan.routes} - {*rest.routes}
    if len(dropped) > 1:
        logger.info(f"dropped with {name!r}, whose expert they share: {', '.join(sorted(dropped - {name}))}")
    prompts: dict[str, Any] = {key: prompt for key, prompt in encoder.prompts.items() if key not in dropped}
    default = encoder.default_prompt_name
    if default in dropped:
        logger.info(f"{default!r} was the default route; now every text needs one")
        default = None
        for alias in ("query", "document"):
            if alias not in plan.routes:
                prompts.pop(alias, None)
    return with_experts(encoder, rest, sources, prompts, default, str(encoder.device))


def _prefix(name: str, prefix: str | None, tasks: Any) -> str:
    """Return the instruction of a route that `tasks` has."""
    if prefix is not None:
        raise UsageError("`prefix` and `tasks` both give the new route's instruction: leave one out")
    instructions, _ = task_routes(tasks)
    if name not in instructions:
        raise UsageError(f"`tasks` has no route {name!r}; its routes: {', '.join(instructions)}")
    return instructions[name]


def _device(model: Source) -> str:
    return str(model.device) if isinstance(model, SentenceTransformer) else "cpu"


def _opened(model: Source) -> ExpertEncoder:
    """Return the model, if experts can be added to it and dropped."""
    loaded = load(model, device="cpu", int8=False) if isinstance(model, str | Path) else model
    encoder = check_experts(loaded)
    if encoder is not loaded:
        logger.info("the new model has no automatic routes; `auto_route` adds them")
    kind = router_kind(encoder.routed_model.config)
    kind.refuse_per_token("another number of experts changes the vectors of every route")
    kind.refuse_scaled(encoder.routed_model.config, "another number of experts changes every probability")
    encoder.routed_model.check_whole("given other experts")
    return encoder


def _seeded(encoder: ExpertEncoder, seed_from: str, base: Source | None) -> ExpertSource:
    """Choose what the new expert starts as; an expert named "base" or "average" comes first."""
    experts = encoder.experts
    if base is not None and (seed_from != BASE or BASE in experts):
        raise UsageError("`base` is for an expert that is seeded from it: give `seed_from='base'` too")
    if seed_from in experts:
        return ExpertSource({experts.index(seed_from): 1.0}, is_new=True)
    if seed_from == AVERAGE:
        return ExpertSource(equal_shares(len(experts)), is_new=True)
    if seed_from != BASE:
        known = ", ".join(experts)
        raise UsageError(f"`seed_from` {seed_from!r}: choose average, base, or an expert: {known}")
    if not encoder.routed_model.config.expert_layers:
        return ExpertSource({}, base={}, is_new=True)
    if base is None:
        raise UsageError("this model no longer has the base's MLPs: give `base`, from which it was made")
    return ExpertSource({}, base=_base_weights(encoder, base), is_new=True)


def _base_weights(encoder: ExpertEncoder, base: Source) -> dict[str, Tensor]:
    loaded = base if isinstance(base, SentenceTransformer) else load(base, device="cpu", int8=False)
    model = transformer_of(loaded)
    routed: Any = encoder.routed_model
    weights: dict[str, Tensor] = model.state_dict()
    family = family_of(routed.config.model_type)
    if (model_type := model.config.model_type) != (wanted := family.base_model_type):
        raise InputError(f"the base is of type {model_type!r}; this model was made from a {wanted}")
    for name, value in routed.state_dict().items():
        source = base_name(family, name)
        if is_expert(name) and (source not in weights or weights[source].shape != value.shape):
            raise InputError(
                f"the base does not fit this model: its {source} has another shape than {tuple(value.shape)}"
            )
    return weights
