"""The routes that a run trains, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sentence_transformers import SentenceTransformer

from sentence_experts.errors import RouteError, UsageError
from sentence_experts.models.architectures.routed_model import RoutedModel
from sentence_experts.models.routes.kinds import router_kind
from sentence_experts.training.config import AUTO_BATCHES, STATIC_BATCHES, STATIC_TEMPERATURE, TrainConfig

if TYPE_CHECKING:
    from sentence_experts.training.objectives import Objective


@dataclass(frozen=True)
class TrainedRoute:
    """A domain or task that is trained.

    Attributes:
        kind: "domain" or "task".
        name: of the domain or task.
        sources: its datasets; a domain is one.
        sides: the model's routes for the anchors and for the positives, such as query and document.
        batches: "homogeneous", "heterogeneous" or "mixed"; "auto" until it is known whether a domain fills a
            homogeneous batch.
        temperature: of the loss.
        weight: relative chance to be sampled; None: in proportion to its pairs.
        symmetric: whether anchor and positive may change places.
        instructions: route -> prompt that a model without routes gets when it is trained on this one.
        prompts: what stands in front of anchors, and of positives and negatives; "" for nothing.
        experts: the experts of anchors, and of positives.
    """

    kind: str
    name: str
    sources: tuple[str, ...]
    sides: tuple[str, str]
    batches: str
    temperature: float
    weight: float | None = None
    symmetric: bool = False
    instructions: Mapping[str, str] = field(default_factory=dict)
    prompts: tuple[str, str] = ("", "")
    experts: tuple[int, int] = (0, 0)


def routed_model(model: Any) -> RoutedModel | None:
    """Return the transformer with experts inside `model`, however it is wrapped; None if there is none."""
    return next((module for module in model.modules() if isinstance(module, RoutedModel)), None)


def trained_routes(
    objectives: Sequence[Objective], config: TrainConfig, model: SentenceTransformer
) -> tuple[TrainedRoute, ...]:
    """Return the routes that a run learns from; with `only_expert`, those that lead to that expert.

    Raises:
        UsageError: the data lacks a route, or none leads to the expert, or weights are missing.
        InputError: the data has no route for training.
        RouteError: the model lacks a route, or has it with another instruction.
    """
    offered = [(objective, route) for objective in objectives for route in objective.routes]
    known = [route.name for _, route in offered]
    for setting, names in (("routes", config.routes or []), ("temperatures", config.temperatures or {})):
        if unknown := [name for name in names if name not in known]:
            raise UsageError(
                f"`{setting}`: no domain or task {', '.join(unknown)} to train on; there are "
                f"{', '.join(known) or 'none, all are only measured'}"
            )
    if not offered:
        raise UsageError("none of the tasks is for training, all are only measured")
    chosen = [each for each in offered if not config.routes or each[1].name in config.routes]
    is_weighted = _uses_weights([route for _, route in chosen], config)
    routed = routed_model(model)
    temperatures = config.temperatures or {}
    routes = []
    for objective, route in chosen:
        batches, temperature = route.batches, route.temperature
        if config.curriculum == "static":
            batches, temperature = STATIC_BATCHES, STATIC_TEMPERATURE
        decided = replace(
            route,
            batches=batches if config.batches == AUTO_BATCHES else config.batches,
            temperature=temperatures.get(route.name) or config.temperature or temperature,
            weight=route.weight if is_weighted else None,
            prompts=objective.prompts(route, model, config),
            experts=_experts_of(route, routed),
        )
        routes.append(decided)
    # `choose_trainable` refuses an unknown expert.
    if config.only_expert and routed is not None and config.only_expert in owned_parts(routed):
        routes = _of_expert(routes, config.only_expert, routed)
    # Batches of `auto` are mixed, unless fixed routes lead to different experts. Texts of other domains are
    # easy negatives for an expert, which sees its own domain alone: they cost 0.015 to 0.019. A model that
    # all domains share gained 0.006 by them, and a learned router that sees one domain per step collapses
    # (benchmarks/results/studies.md).
    is_auto = [route.batches == AUTO_BATCHES for route in routes]
    experts = {route.experts for route in routes if route.batches == AUTO_BATCHES}
    if len(experts) > 1 and routed is not None and not router_kind(routed.config).is_learned:
        return tuple(routes)
    return with_batches(routes, is_auto, "mixed")


def with_batches(
    routes: Sequence[TrainedRoute], chosen: Sequence[bool], batches: str
) -> tuple[TrainedRoute, ...]:
    """Return the routes, the chosen ones with other batches."""
    return tuple(
        replace(route, batches=batches) if take else route for route, take in zip(routes, chosen, strict=True)
    )


def _uses_weights(routes: Sequence[TrainedRoute], config: TrainConfig) -> bool:
    without = [route.name for route in routes if route.weight is None]
    wanted = config.sampling == "weights" or (config.sampling is None and len(without) < len(routes))
    if wanted and without:
        raise UsageError(
            f"`sampling=weights`: there is no weight for {', '.join(without)}; add one to the task file, or "
            "choose `sampling=proportional`"
        )
    return wanted


def owned_parts(routed: RoutedModel) -> list[str]:
    """Return the names of a model's experts, adapters and heads."""
    config = routed.config
    return [*config.experts, *(each["route"] for each in config.adapters), *config.heads]


def _experts_of(route: TrainedRoute, routed: RoutedModel | None) -> tuple[int, int]:
    """Return what the anchors and positives of a route lead to, as places in `owned_parts`; 0 without."""
    if routed is None:
        return 0, 0
    known = {name: index for index, name in enumerate(routed.config.experts)}
    parts = owned_parts(routed)
    own = {name: number for number, name in enumerate(parts) if number >= len(known)}
    known |= {each.name: each.expert for each in routed.routes} | own
    if missing := [name for name in route.sides if name not in known]:
        raise RouteError(
            f"the model has no expert for {', '.join(missing)}; it has {', '.join(sorted(known))}"
        )
    return known[route.sides[0]], known[route.sides[1]]


def _of_expert(routes: Sequence[TrainedRoute], expert: str, routed: RoutedModel) -> list[TrainedRoute]:
    """Texts of other experts stay as they are, so a batch of them alone would teach nothing."""
    number = owned_parts(routed).index(expert)
    own = [route for route in routes if number in route.experts]
    if not own:
        names = ", ".join(route.name for route in routes)
        raise UsageError(f"`only_expert={expert}`: none of the routes {names} leads to it")
    return own
