"""The routes that a run trains, and what the model has for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sentence_transformers import SentenceTransformer

from sentence_experts.errors import RouteError
from sentence_experts.models.architectures.routed_model import RoutedModel


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
    """The transformer with experts inside `model`, however it is wrapped; None if there is none."""
    return next((module for module in model.modules() if isinstance(module, RoutedModel)), None)


def expert_indices(model: SentenceTransformer, names: Sequence[str]) -> dict[str, int]:
    """Route -> the index of its expert; 0 for a model without experts.

    Raises:
        RouteError: the model has experts, but none for a route.
    """
    routed = routed_model(model)
    if routed is None:
        return dict.fromkeys(names, 0)
    known = {name: index for index, name in enumerate(routed.config.experts)}
    known |= {route.name: route.expert for route in routed.routes}
    missing = [name for name in names if name not in known]
    if missing:
        raise RouteError(
            f"the model has no expert for {', '.join(missing)}; it has {', '.join(sorted(known))}"
        )
    return {name: known[name] for name in names}
