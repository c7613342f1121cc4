"""The kinds of routes and of routers: one row per value of `config.route_kind` and of `config.router`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sentence_experts.errors import InputError, UsageError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class RouterKind:
    """One way to choose experts.

    Attributes:
        name: the value of `config.router`.
        description: one sentence for a model card, with `{top_k}`.
        is_learned: routers in the blocks choose by the text, so that any text may need any expert.
        per_token: each token has its own experts; otherwise a text has one expert per block.
        scaled: the output of the expert's MLP is multiplied by the router's probability.
    """

    name: str
    description: str
    is_learned: bool = True
    per_token: bool = False
    scaled: bool = False

    @property
    def reads_texts(self) -> bool:
        """Whether learned routers read whole texts."""
        return self.is_learned and not self.per_token

    def experts_per_token(self, config: Any) -> int:
        """Return the number of experts that each token meets in a block."""
        return int(config.top_k) if self.per_token else 1

    def check(self, top_k: int, experts: int) -> None:
        """Refuse, with a UsageError, a number of experts per token that does not fit that of experts."""
        if self.per_token and not 1 <= top_k <= experts:
            raise UsageError(f"`top_k` must be between 1 and the number of experts ({experts}), got {top_k}")

    def scales(self, config: Any) -> bool:
        """Return whether a router's probability scales the MLPs' outputs (Switch transformers, eq. 2)."""
        return self.scaled or (self.per_token and self.experts_per_token(config) == 1)

    def refuse_scaled(self, config: Any, consequence: str) -> None:
        """Refuse, with a UsageError that ends with `consequence`, what needs unscaled outputs."""
        if self.scales(config):
            raise UsageError(
                "in this model the experts' outputs are scaled by the router's probability "
                f"(`router={self.name!r}`): {consequence}"
            )

    def refuse_per_token(self, consequence: str) -> None:
        """Refuse, with a UsageError that ends with `consequence`, what needs one expert per text."""
        if self.per_token:
            raise UsageError(
                f"in this model each token chooses its own experts (`router='token'`): {consequence}"
            )


BY_ROUTE = RouterKind("route", "A text passes through one expert, chosen by its route.", is_learned=False)
PER_TEXT = RouterKind(
    "learned", "In each of these a learned router chooses the one expert that a text passes through."
)
SWITCH = RouterKind(
    "switch",
    "In each of these a learned router chooses the one expert that a text passes through, and its "
    "probability scales the output of the expert's MLP.",
    scaled=True,
)
PER_TOKEN = RouterKind(
    "token",
    "In each of these a learned router chooses {top_k} experts for each token, and their weights.",
    per_token=True,
)
ROUTER_KINDS = {kind.name: kind for kind in (BY_ROUTE, PER_TEXT, SWITCH, PER_TOKEN)}


def router_kind(config: Any) -> RouterKind:
    """Return what chooses the experts in a model with this config."""
    if config.router not in ROUTER_KINDS:
        known = ", ".join(ROUTER_KINDS)
        raise InputError(f"the model's config has router {config.router!r}; known: {known}")
    return ROUTER_KINDS[config.router]


def router_kind_of(encoder: SentenceTransformer) -> RouterKind | None:
    """Return what chooses the experts of an encoder; None if it has none."""
    from sentence_experts.compat.sentence_transformers import config_of

    config = config_of(encoder)
    return router_kind(config) if hasattr(config, "expert_layers") else None


@dataclass(frozen=True)
class RouteKind:
    """The beginnings of texts that name a route in a model.

    Attributes:
        name: the value of `config.route_kind`.
        domain_tokens: whether there are tokens that take [CLS]'s place.
        instructions: whether there are instructions.
        description: what tells the routes of a dense model apart, for its card.
    """

    name: str
    domain_tokens: bool
    instructions: bool
    description: str

    @property
    def has_routes(self) -> bool:
        """Whether there are routes at all; otherwise the routers of the blocks choose by the text."""
        return self.domain_tokens or self.instructions


DOMAIN_TOKENS = RouteKind("token", True, False, "a domain token")
INSTRUCTIONS = RouteKind("prefix", False, True, "an instruction")
BOTH = RouteKind("mixed", True, True, "a domain token or an instruction")
NO_ROUTES = RouteKind("none", False, False, "a prompt")
ROUTE_KINDS = {kind.name: kind for kind in (DOMAIN_TOKENS, INSTRUCTIONS, BOTH, NO_ROUTES)}


def route_kind(config: Any) -> RouteKind:
    """Return the kind of a model's routes; those of a stock dense model are instructions."""
    name = getattr(config, "route_kind", INSTRUCTIONS.name)
    if name not in ROUTE_KINDS:
        raise InputError(f"the model's config has route_kind {name!r}; known: {', '.join(ROUTE_KINDS)}")
    return ROUTE_KINDS[name]


def route_kind_with(domain_tokens: bool, instructions: bool) -> RouteKind:
    """Return the kind with or without domain tokens and instructions."""
    wanted = (domain_tokens, instructions)
    return next(kind for kind in ROUTE_KINDS.values() if (kind.domain_tokens, kind.instructions) == wanted)
