"""What the routes of a model are: one row per value of `config.route_kind`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sentence_experts.errors import InputError


@dataclass(frozen=True)
class RouteKind:
    """What texts can begin with in a model.

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
    """What the routes of a model with this config are; those of a stock dense model are instructions.

    Raises:
        InputError: the config names a kind that this version does not know.
    """
    name = getattr(config, "route_kind", INSTRUCTIONS.name)
    if name not in ROUTE_KINDS:
        raise InputError(f"the model's config has route_kind {name!r}; known: {', '.join(ROUTE_KINDS)}")
    return ROUTE_KINDS[name]


def route_kind_with(domain_tokens: bool, instructions: bool) -> RouteKind:
    """The kind with or without domain tokens and instructions."""
    wanted = (domain_tokens, instructions)
    return next(kind for kind in ROUTE_KINDS.values() if (kind.domain_tokens, kind.instructions) == wanted)
