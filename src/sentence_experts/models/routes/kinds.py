"""The kinds of routers: one row per value of `config.router`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sentence_experts.errors import InputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class RouterKind:
    """A method of choosing experts.

    Attributes:
        name: value of `config.router`.
        description: sentence for a model card, with `{top_k}`.
        is_learned: whether routers in the blocks choose by the text, so that any text may need any expert.
        per_token: whether experts are chosen per token; otherwise a text has one expert per block.
        scaled: whether the output of the expert's MLP is multiplied by the router's probability.
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
        """Return the number of experts that a token meets in a block."""
        return int(config.top_k) if self.per_token else 1

    def scales(self, config: Any) -> bool:
        """Return whether a router's probability scales the MLPs' outputs (Switch transformers, eq. 2)."""
        return self.scaled or (self.per_token and self.experts_per_token(config) == 1)


_LEARNED = "In each of these a learned router chooses the one expert that a text passes through"
_TOKEN = "In each of these a learned router chooses {top_k} experts for each token, and their weights."
ROUTER_KINDS = {
    kind.name: kind
    for kind in (
        RouterKind("route", "A text passes through one expert, chosen by its route.", is_learned=False),
        RouterKind("learned", f"{_LEARNED}."),
        RouterKind(
            "switch", f"{_LEARNED}, and its probability scales the output of the expert's MLP.", scaled=True
        ),
        RouterKind("token", _TOKEN, per_token=True),
    )
}


def router_kind(config: Any) -> RouterKind:
    """Return the kind of router in a model with this config."""
    if config.router not in ROUTER_KINDS:
        known = ", ".join(ROUTER_KINDS)
        raise InputError(f"the model's config has router {config.router!r}; known: {known}")
    return ROUTER_KINDS[config.router]


def router_kind_of(encoder: SentenceTransformer) -> RouterKind | None:
    """Return the kind of router of an encoder; None if it has no experts."""
    config: Any = encoder.config
    return router_kind(config) if hasattr(config, "expert_layers") else None
