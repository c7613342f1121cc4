"""Settings of `extend` and `add_route`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from sentence_experts.config import Config, Seed
from sentence_experts.errors import UsageError
from sentence_experts.models.routes.kinds import ROUTER_KINDS

BASE, AVERAGE = "base", "average"  # starts of a new expert, beside another expert
EXPERT, ADAPTER, HEAD = "expert", "adapter", "head"
Kind = Literal["expert", "adapter", "head"]
EXPERT_SETTINGS = ("layers", "route", "prefixes", "router", "top_k", "expert_norms")


class ExtendConfig(Config):
    """The routes that a pretrained encoder gets, and what they own."""

    kind: Kind = Field(
        "expert",
        description="Part that each route owns: expert (the MLP of each block), adapter (low-rank matrices "
        "beside attention and MLP) or head (a linear map of the pooled vector; one encoding serves all)",
    )
    rank: int | None = Field(
        None,
        ge=1,
        description="Rank of adapters (default: 8), or of heads' difference from the identity (default: any)",
    )
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
        description="ROUTE=INSTRUCTION: how its texts begin, for `route` prefix. Default: 'name: '",
    )
    router: Literal["route", "learned", "switch", "token"] = Field(
        "route",
        description="Router that chooses the expert: route (the text's route), learned (a linear layer per "
        "block reads the text), switch (the same, and its probability scales the output of the expert's MLP, "
        "so that vectors differ from the base's before training) or token (the layer sends each token to "
        "`top_k` experts)",
    )
    top_k: int | None = Field(
        None, description="Number of experts per token, for router token; 1 scales as switch. Default: 2"
    )
    expert_norms: bool | None = Field(
        None,
        description="Each expert also owns its block's norms (MoTE, fig. 2b). Default: only with `tasks`",
    )
    default_route: str | None = Field(
        None, description="Route of texts that are encoded without one. Default: that is an error"
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
    def _as_text(cls, layers: Any) -> str:
        """Accept block numbers as integers too: 3 or [0, 2]."""
        several = isinstance(layers, Sequence) and not isinstance(layers, str)
        text = ",".join(str(layer) for layer in layers) if several else str(layers)
        if text not in ("all", "alternate", "none") and _read_block_numbers(text) is None:
            raise ValueError("choose all, alternate, none, or block numbers counted from 0")
        return text

    @model_validator(mode="after")
    def _consistent(self) -> ExtendConfig:
        kind, router, fields = self.kind, ROUTER_KINDS[self.router], type(self).model_fields
        set_ = [name for name in EXPERT_SETTINGS if getattr(self, name) != fields[name].default]
        problems = (
            (
                kind != EXPERT and bool(set_),
                f"`{set_[0] if set_ else ''}` is for `kind='expert'`; other routes share the base's weights",
            ),
            (
                self.rank is not None and kind == EXPERT,
                "`rank` is for `kind='adapter'` or `kind='head'`",
            ),
            (
                bool(self.prefixes) and self.route != "prefix",
                "`prefixes` goes with `route='prefix'`; a task file has its own under instructions:",
            ),
            (
                self.route == "none" and not router.is_learned,
                "with `route='none'` nothing chooses the expert; add `router='learned'` or `router='token'`",
            ),
            (
                self.route == "none" and self.default_route is not None,
                "`route='none'` makes no routes, so leave out `default_route`",
            ),
            (
                router.is_learned and self.layers == "none",
                f"`router={self.router!r}` needs blocks with experts; `layers='none'` leaves none",
            ),
            (
                self.top_k is not None and not router.per_token,
                f"`top_k` is for `router='token'`; with `router={self.router!r}` leave it out",
            ),
            (
                bool(self.expert_norms) and self.layers == "none",
                "`expert_norms` needs blocks with experts; `layers='none'` leaves none",
            ),
        )
        for is_wrong, message in problems:
            if is_wrong:
                raise ValueError(message)
        return self

    @property
    def experts_per_token(self) -> int:
        """Number of experts per token: `top_k`, or its default."""
        return 2 if self.top_k is None else self.top_k

    def fields_of_model(self, blocks: int, with_tasks: bool) -> dict[str, Any]:
        """Return the fields of the extended model's config, for a base with `blocks` blocks.

        Raises:
            UsageError: the base lacks a block.
        """
        if self.layers == "alternate" and blocks < 2:
            raise UsageError("`layers='alternate'`: the base has only one block; choose all or none")
        named = {"all": range(blocks), "alternate": range(1, blocks, 2), "none": range(0)}
        numbers = list(named.get(self.layers, _read_block_numbers(self.layers) or ()))
        if numbers and numbers[-1] >= blocks:
            raise UsageError(f"`layers` {self.layers}: the base's blocks are 0 to {blocks - 1}")
        return {
            "router": self.router,
            "top_k": self.experts_per_token,
            "expert_layers": numbers if self.kind == EXPERT else [],
            "expert_norms": with_tasks if self.expert_norms is None else self.expert_norms,
        }


class AddRouteConfig(Config):
    """Settings of a new route: what it owns, its first weights, and its name in texts."""

    kind: Kind = Field(
        "expert",
        description="Part that the route owns: expert, adapter (low-rank matrices beside attention and MLP) "
        "or head (a linear map of the pooled vector, which is the identity until it is trained)",
    )
    on: str | None = Field(
        None,
        description="Expert that an adapter or head sits on. Default: the base, if the model still has it",
    )
    rank: int | None = Field(
        None,
        ge=1,
        description="Rank of an adapter (default: 8), or of a head's difference from the identity (default: "
        "any)",
    )
    seed: Seed = Field(0, description="Random seed of an adapter's first matrices")
    seed_from: str | None = Field(
        None,
        description="First weights of an expert and its domain token: average (the mean of all experts and "
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
        taken = {"expert": names[:2], "adapter": names[2:], "head": names[2:]}[self.kind]
        for name in (name for name in names if name not in taken):
            if getattr(self, name) is not None:
                raise ValueError(f"`{name}` is not for `kind={self.kind!r}`")
        return self


def _read_block_numbers(layers: str) -> list[int] | None:
    """Read "0,2,4"; None for any other text."""
    parts = [part.strip() for part in layers.split(",")]
    if not all(part.isdecimal() for part in parts):
        return None
    return sorted({int(part) for part in parts})
