"""Settings of `extend` and `add_route`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from sentence_experts.config import Config, Seed
from sentence_experts.errors import UsageError
from sentence_experts.models.routes.kinds import ROUTE_KINDS, ROUTER_KINDS

NAMED_LAYERS = ("all", "alternate", "none")
BASE, AVERAGE = "base", "average"  # what a new expert can begin as, beside another expert
EXPERT, ADAPTER, HEAD = "expert", "adapter", "head"
Kind = Literal["expert", "adapter", "head"]


class ExtendConfig(Config):
    """How a pretrained encoder gets its routes."""

    kind: Kind = Field(
        "expert",
        description="What each route owns: expert (the MLP of each block), adapter (low-rank matrices beside "
        "the attention and MLP of each block) or head (a linear map of the pooled vector; one encoding of a "
        "text serves all heads)",
    )
    rank: int | None = Field(None, ge=1, description="Rank of adapters. Default: 8")
    layers: str = Field(
        "all",
        description="Blocks that get experts: all, alternate (1, 3, 5, ..., as in GShard and MoTE's EOB), "
        "block numbers counted from 0 (0,2,4), or none (a dense control with the same routes)",
    )
    route: Literal["token", "prefix", "none"] = Field(
        "token",
        description="How a text names its expert: token (the domain token [COPD] takes the place of [CLS]), "
        "prefix (the text begins with an instruction), none (for a learned router). Routes of `tasks` are "
        "always instructions",
    )
    prefixes: dict[str, str] = Field(
        {},
        description="ROUTE=INSTRUCTION: what the texts of a route begin with, for `route` prefix. "
        "Default: 'name: '",
    )
    share: dict[str, str] = Field(
        {},
        description="ROUTE=EXPERT: one more route, which uses the expert of another, for `route` prefix "
        "(clustering=document: MoTE, section 5.2)",
    )
    router: Literal["route", "learned", "switch", "token"] = Field(
        "route",
        description="What chooses the expert: route (the text's route), learned (a linear layer per block "
        "reads the text and chooses one expert), switch (the same, and its probability scales the output of "
        "the expert's MLP, as in a switch transformer: the router also learns from the pairs, and even "
        "before training vectors differ from the base's) or token (the layer sends each token to `top_k` "
        "experts)",
    )
    top_k: int | None = Field(
        None, description="Number of experts per token, for router token; 1 scales as switch. Default: 2"
    )
    expert_norms: bool | None = Field(
        None,
        description="Each expert also owns its block's norms (MoTE, fig. 2b). Default: only with `tasks`",
    )
    default_route: str | None = Field(
        None, description="Route of texts that name none. Default: such a text is an error"
    )
    pooling: Literal["mean", "cls", "pooler"] | None = Field(
        None,
        description="How tokens become a vector: mean, cls (the first token, which is the domain token) or "
        "pooler (cls, then a linear layer and tanh). Default: as the base",
    )
    head: Literal["tanh"] | None = Field(
        None, description="Head on the pooling: tanh (layer norm and two linear layers with tanh between)"
    )
    normalize: bool | None = Field(
        None,
        description="Scale vectors to length 1, but not for losses on dot products. Default: as the base",
    )
    seed: Seed = Field(
        0, description="Random seed of the weights that the base lacks (routers, pooler, head)"
    )

    @field_validator("layers", mode="before")
    @classmethod
    def _as_text(cls, layers: Any) -> Any:
        """Accept block numbers as integers too: 3 or [0, 2]."""
        if isinstance(layers, int) and not isinstance(layers, bool):
            return str(layers)
        if isinstance(layers, Sequence) and not isinstance(layers, str):
            return ",".join(str(layer) for layer in layers)
        return layers

    @field_validator("layers")
    @classmethod
    def _known_layers(cls, layers: str) -> str:
        if layers not in NAMED_LAYERS and _block_numbers(layers) is None:
            raise ValueError("choose all, alternate, none, or block numbers counted from 0")
        return layers

    @model_validator(mode="after")
    def _kind_fits(self) -> ExtendConfig:
        names = ("layers", "route", "prefixes", "share", "router", "top_k", "expert_norms")
        for name in names if self.kind != EXPERT else ():
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"`{name}` is for `kind='expert'`; other routes share the base's weights")
        if self.rank is not None and self.kind != ADAPTER:
            raise ValueError("`rank` is for `kind='adapter'`")
        return self

    @model_validator(mode="after")
    def _router_fits(self) -> ExtendConfig:
        has_routes, router = ROUTE_KINDS[self.route].has_routes, ROUTER_KINDS[self.router]
        if not has_routes and not router.is_learned:
            raise ValueError(
                "with `route='none'` nothing chooses the expert; add `router='learned'` or `router='token'`"
            )
        if not has_routes and self.default_route is not None:
            raise ValueError("`route='none'` makes no routes, so leave out `default_route`")
        if router.is_learned and self.layers == "none":
            raise ValueError(
                f"`router={self.router!r}` needs blocks with experts; `layers='none'` leaves none"
            )
        return self

    @model_validator(mode="after")
    def _has_effect(self) -> ExtendConfig:
        if self.top_k is not None and not ROUTER_KINDS[self.router].per_token:
            raise ValueError(f"`top_k` is for `router='token'`; with `router={self.router!r}` leave it out")
        if self.expert_norms and self.layers == "none":
            raise ValueError("`expert_norms` needs blocks with experts; `layers='none'` leaves none")
        return self

    @property
    def experts_per_token(self) -> int:
        """`top_k`, or its default."""
        return 2 if self.top_k is None else self.top_k

    def fields_of_model(self, blocks: int, with_tasks: bool) -> dict[str, Any]:
        """Return the fields of the extended model's config, for a base with `blocks` blocks.

        Raises:
            UsageError: the base lacks a block.
        """
        return {
            "router": self.router,
            "top_k": self.experts_per_token,
            "expert_layers": [] if self.kind != EXPERT else self.block_numbers(blocks),
            "expert_norms": with_tasks if self.expert_norms is None else self.expert_norms,
        }

    def block_numbers(self, blocks: int) -> list[int]:
        """Return the numbers of the blocks that get experts, ascending, for a base with `blocks` blocks.

        Raises:
            UsageError: the base lacks a block.
        """
        if self.layers == "alternate" and blocks < 2:
            raise UsageError("`layers='alternate'`: the base has only one block; choose all or none")
        named = {"all": range(blocks), "alternate": range(1, blocks, 2), "none": range(0)}
        if self.layers in named:
            return list(named[self.layers])
        numbers = _block_numbers(self.layers) or []
        if any(number >= blocks for number in numbers):
            raise UsageError(f"`layers` {self.layers}: the base's blocks are 0 to {blocks - 1}")
        return numbers


class AddRouteConfig(Config):
    """Settings of a new route: what it owns, its first weights, and its name in texts."""

    kind: Kind = Field(
        "expert",
        description="What the route owns: expert, adapter (low-rank matrices beside attention and MLP) or "
        "head (a linear map of the pooled vector, which is the identity until it is trained)",
    )
    on: str | None = Field(
        None,
        description="Expert that an adapter or head sits on. Default: the base, if the model still has it",
    )
    rank: int | None = Field(None, ge=1, description="Rank of an adapter. Default: 8")
    seed: Seed = Field(0, description="Random seed of an adapter's first matrices")
    seed_from: str | None = Field(
        None,
        description="What an expert and its domain token begin as: average (the mean of all experts and "
        "tokens), base (the base's MLP; the token as [CLS]), or the name of an expert. Default: average",
    )
    prefix: str | None = Field(
        None,
        description="Instruction that the texts of an expert's route begin with. Default: a domain token if "
        "the model has some, else 'NAME: '",
    )

    @model_validator(mode="after")
    def _kind_fits(self) -> AddRouteConfig:
        names = ("seed_from", "prefix", "on", "rank")
        taken = {"expert": names[:2], "adapter": names[2:], "head": names[2:3]}[self.kind]
        for name in (name for name in names if name not in taken):
            if getattr(self, name) is not None:
                raise ValueError(f"`{name}` is not for `kind={self.kind!r}`")
        return self


def _block_numbers(layers: str) -> list[int] | None:
    """Read "0,2,4"; None for any other text."""
    parts = [part.strip() for part in layers.split(",")]
    if not all(part.isdecimal() for part in parts):
        return None
    return sorted({int(part) for part in parts})
