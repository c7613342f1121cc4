"""What chooses the experts of a model: one row per value of `config.router`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sentence_experts.compat.sentence_transformers import config_of
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.architectures.families import family_of
from sentence_experts.models.layers.dispatch import NOTHING_ROUTED, Dispatch, TokenDispatch
from sentence_experts.models.layers.experts import Experts, IdleExpert
from sentence_experts.models.routing.sequence_router import LEARNED, SequencePass, SequenceRouter
from sentence_experts.models.routing.token_router import TOKEN, TokenPass, TokenRouter, Tokens
from sentence_experts.models.storage.weight_names import is_router

# How the blocks of one forward pass find their experts.
Plan = Dispatch | SequencePass | TokenPass


@dataclass(frozen=True)
class RouterKind:
    """One way to choose experts.

    Attributes:
        name: the value of `config.router`.
        router: the class of each block's router; None where the texts' routes choose.
        begin: begins a forward pass, from the config, the (sequences,) numbers of tokens in the batch, the
            mask, the packed sequences' cumulative lengths and the experts that the caller chose. None if the
            blocks do not choose.
        description: one sentence for a model card, with `{top_k}`.
        per_token: each token has experts of its own; otherwise a text has one expert per block.
    """

    name: str
    router: type[SequenceRouter | TokenRouter] | None
    begin: Callable[
        [Any, Tensor, Tensor | None, Tensor | None, Dispatch | None], SequencePass | TokenPass | None
    ]
    description: str
    per_token: bool = False

    @property
    def is_learned(self) -> bool:
        """Whether the blocks choose by what the text says, so that any text may need any expert."""
        return self.router is not None

    @property
    def reads_texts(self) -> bool:
        """Whether learned routers read whole texts."""
        return self.is_learned and not self.per_token

    def experts_per_token(self, config: Any) -> int:
        """Return the number of experts that each token meets in a block."""
        return int(config.top_k) if self.per_token else 1

    def check(self, top_k: int, experts: int) -> None:
        """Refuse, with a UsageError, a number of experts per token that does not fit that of experts."""
        if self.per_token and not 2 <= top_k <= experts:
            raise UsageError(
                f"`top_k` must be between 2 and the number of experts ({experts}), got {top_k}; with one "
                "expert per token its weight is always 1, which gives the router no gradient"
            )

    def refuse_per_token(self, consequence: str) -> None:
        """Refuse, with a UsageError that ends with `consequence`, what needs one expert per text."""
        if self.per_token:
            raise UsageError(
                f"in this model each token chooses its own experts (`router='token'`): {consequence}"
            )


def _begin_by_token(
    config: Any, lengths: Tensor, mask: Tensor | None, _: Tensor | None, given: Dispatch | None
) -> TokenPass | None:
    return None if given is not None else TokenPass(Tokens.of(lengths, mask), config.top_k)


ROUTER_KINDS = {
    kind.name: kind
    for kind in (
        RouterKind("route", None, lambda *_: None, "A text passes through one expert, chosen by its route."),
        RouterKind(
            LEARNED,
            SequenceRouter,
            lambda _, *batch: SequencePass(*batch),
            "In each of these a learned router chooses the one expert that a text passes through.",
        ),
        RouterKind(
            TOKEN,
            TokenRouter,
            _begin_by_token,
            "In each of these a learned router chooses {top_k} experts for each token, and their weights.",
            per_token=True,
        ),
    )
}


def router_kind(config: Any) -> RouterKind:
    """Return what chooses the experts in a model with this config.

    Raises:
        InputError: the config names a router that this version does not know.
    """
    if config.router not in ROUTER_KINDS:
        known = ", ".join(ROUTER_KINDS)
        raise InputError(f"the model's config has router {config.router!r}; known: {known}")
    return ROUTER_KINDS[config.router]


def router_kind_of(encoder: SentenceTransformer) -> RouterKind | None:
    """Return what chooses the experts of an encoder; None if it has none."""
    config = config_of(encoder)
    return router_kind(config) if hasattr(config, "expert_layers") else None


class RoutedBlock:
    """Mixin in front of a base block: lets a sequence router choose before the block runs.

    What runs inside a block is computed again under gradient checkpointing, and not recorded for gradients
    the first time; the routers' losses need their logits from the first time.
    """

    experts: Experts | None
    router: SequenceRouter | TokenRouter | None
    expert_norms: bool

    def put_experts(self, config: Any, layer: int) -> None:
        """Move the modules that experts own out of the block and into one copy per expert.

        A block with experts also gets a router, if learned ones choose; `config.expert_layers` names them.
        """
        self.experts, self.router, self.expert_norms = None, None, config.expert_norms
        if layer not in config.expert_layers:
            return
        block: Any = self
        owned = {}
        for name, path in family_of(config.model_type).owned(config.expert_norms).items():
            owned[name] = block.get_submodule(path)
            parent, _, leaf = path.rpartition(".")
            delattr(block.get_submodule(parent), leaf)
        if config.experts_on_disk:
            blueprint = nn.ModuleDict(owned).to("meta")
            self.experts = Experts(IdleExpert(blueprint) for _ in config.experts)
        else:
            self.experts = Experts(nn.ModuleDict(copy.deepcopy(owned)) for _ in config.experts)
        if (router := router_kind(config).router) is not None:
            self.router = router(config.hidden_size, len(config.experts))

    def __call__(self, hidden_states: Tensor, *args: Any, plan: Plan = NOTHING_ROUTED, **kwargs: Any) -> Any:
        """Run the block."""
        if isinstance(plan, SequencePass) and isinstance(self.router, SequenceRouter):
            plan = plan.choose(self.router, hidden_states)
        return super().__call__(hidden_states, *args, plan=plan, **kwargs)  # type: ignore[misc]

    def plan_at(self, plan: Plan, hidden: Tensor) -> Dispatch | TokenDispatch:
        """Return the plan of this block where `hidden` first meets its experts: here tokens choose theirs."""
        if isinstance(plan, TokenPass):
            assert isinstance(self.router, TokenRouter)
            return plan.choose(self.router, hidden)
        assert isinstance(plan, Dispatch)
        return plan


def initialize_routers(model: nn.Module, seed: int) -> None:
    """Draw the weights of all routers from the seed alone (normal, of the config's initializer_range)."""
    generator = torch.Generator().manual_seed(seed)
    config: Any = model.config
    for name, weight in model.named_parameters():
        if is_router(name):
            values = torch.randn(weight.shape, generator=generator) * config.initializer_range
            with torch.no_grad():
                weight.copy_(values)
