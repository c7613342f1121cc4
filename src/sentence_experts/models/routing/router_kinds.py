"""What chooses the experts of a model: one object per value of `config.router`.

"route": the route that a text begins with. "learned": in each block a linear layer that reads the sequence
(`sequence_router`). "token": in each block a linear layer that reads each token (`token_router`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.layers.dispatch import NOTHING_ROUTED, Dispatch, TokenDispatch
from sentence_experts.models.routing.sequence_router import (
    LEARNED,
    SequencePass,
    SequenceRouter,
    router_logits_of,
)
from sentence_experts.models.routing.token_router import TOKEN, TokenPass, TokenRouter, Tokens, token_loads_of
from sentence_experts.models.storage.weight_names import is_router

# How the blocks of one forward pass find their experts.
Plan = Dispatch | SequencePass | TokenPass


class RouteChooses:
    """The route of a text chooses its expert, the same one in every block. Base class of the other kinds.

    Attributes:
        name: the value of `config.router`.
        is_learned: the blocks choose the experts by what the text says, so that any text may need any expert.
        per_token: each token has experts of its own; otherwise a text has one expert per block.
    """

    name = "route"
    is_learned = False
    per_token = False

    def check(self, top_k: int, experts: int) -> None:
        """Refuse a setting that this kind cannot work with.

        Raises:
            UsageError: `top_k` does not fit the number of experts.
        """

    def build(self, width: int, experts: int) -> SequenceRouter | TokenRouter | None:
        """Build the router of one block, for hidden states of this width."""
        return None

    def experts_per_token(self, config: Any) -> int:
        """Return the number of experts that each token meets in a block."""
        return 1

    def begin(
        self, config: Any, lengths: Tensor, mask: Tensor | None, packed: Tensor | None, given: Dispatch | None
    ) -> SequencePass | TokenPass | None:
        """Begin a forward pass in which the blocks choose; None if they do not.

        Args:
            config: the model's.
            lengths: (sequences,) the number of tokens per sequence in the batch, padding included.
            mask: (batch, length), 0 at padding.
            packed: (sequences + 1,) cumulative lengths of packed sequences.
            given: the experts that the caller chose instead (`expert_ids`).
        """
        return None

    def collect(self, model: nn.Module) -> AbstractContextManager[list[Tensor]]:
        """While open, collect what the routers' training losses need: one tensor (texts, ...) per block."""
        return _nothing()

    def refuse_per_token(self, consequence: str) -> None:
        """Stop an operation that needs one expert per text.

        Raises:
            UsageError: each token chooses its own experts; the message ends with `consequence`.
        """


class SequenceRouterChooses(RouteChooses):
    """Each block's router sends the whole sequence to one expert."""

    name = LEARNED
    is_learned = True

    def build(self, width: int, experts: int) -> SequenceRouter:
        """As the base class."""
        return SequenceRouter(width, experts)

    def begin(
        self, config: Any, lengths: Tensor, mask: Tensor | None, packed: Tensor | None, given: Dispatch | None
    ) -> SequencePass:
        """As the base class; the routers give their logits even where the caller chooses."""
        return SequencePass(lengths, mask, packed, given)

    def collect(self, model: nn.Module) -> AbstractContextManager[list[Tensor]]:
        """Collect the routers' logits, (sequences, experts) per block."""
        return router_logits_of(model)


class TokenRouterChooses(RouteChooses):
    """Each block's router sends each token to its own `top_k` experts."""

    name = TOKEN
    is_learned = True
    per_token = True

    def check(self, top_k: int, experts: int) -> None:
        """As the base class."""
        if not 2 <= top_k <= experts:
            raise UsageError(
                f"`top_k` must be between 2 and the number of experts ({experts}), got {top_k}; with one "
                "expert per token its weight is always 1, which gives the router no gradient"
            )

    def build(self, width: int, experts: int) -> TokenRouter:
        """As the base class."""
        return TokenRouter(width, experts)

    def experts_per_token(self, config: Any) -> int:
        """As the base class."""
        return int(config.top_k)

    def begin(
        self, config: Any, lengths: Tensor, mask: Tensor | None, packed: Tensor | None, given: Dispatch | None
    ) -> TokenPass | None:
        """As the base class."""
        return None if given is not None else TokenPass(Tokens.of(lengths, mask), config.top_k)

    def collect(self, model: nn.Module) -> AbstractContextManager[list[Tensor]]:
        """Collect the `token_load` of each block, (texts, 2, experts); filled when closed."""
        return token_loads_of(model)

    def refuse_per_token(self, consequence: str) -> None:
        """As the base class."""
        raise UsageError(
            f"in this model each token chooses its own experts (`router='token'`): {consequence}"
        )


ROUTER_KINDS: dict[str, RouteChooses] = {
    kind.name: kind for kind in (RouteChooses(), SequenceRouterChooses(), TokenRouterChooses())
}
LEARNED_ROUTERS = tuple(name for name, kind in ROUTER_KINDS.items() if kind.is_learned)


def router_kind(config: Any) -> RouteChooses:
    """Return what chooses the experts in a model with this config.

    Raises:
        InputError: the config names a router that this version does not know.
    """
    try:
        return ROUTER_KINDS[config.router]
    except KeyError:
        known = ", ".join(ROUTER_KINDS)
        raise InputError(f"the model's config has router {config.router!r}; known: {known}") from None


class RoutedBlock:
    """Mixin in front of a base block: lets the block's router choose before the block runs.

    A sequence router chooses before, because what runs inside a block is computed again under gradient
    checkpointing, and not recorded for gradients the first time; the routers' losses need their logits from
    the first time.
    """

    router: SequenceRouter | TokenRouter | None

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


def router_of_block(config: Any, layer: int) -> SequenceRouter | TokenRouter | None:
    """Build a block's router, if the model's routers are learned and this block holds experts."""
    if layer not in config.expert_layers:
        return None
    return router_kind(config).build(config.hidden_size, len(config.experts))


def initialize_routers(model: nn.Module, seed: int) -> None:
    """Draw the weights of all routers from the seed alone (normal, of the config's initializer_range)."""
    generator = torch.Generator().manual_seed(seed)
    config: Any = model.config
    for name, weight in model.named_parameters():
        if is_router(name):
            drawn = torch.randn(weight.shape, generator=generator) * config.initializer_range
            with torch.no_grad():
                weight.copy_(drawn)


@contextmanager
def _nothing() -> Iterator[list[Tensor]]:
    yield []
