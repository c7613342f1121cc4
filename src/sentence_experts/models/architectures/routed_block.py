"""Blocks with experts: a mixin in front of the blocks of each family."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from sentence_experts.errors import UsageError
from sentence_experts.models.architectures.families import family_of
from sentence_experts.models.layers.adapters import put_adapters, use_adapters
from sentence_experts.models.layers.dispatch import Dispatch, RecordedDispatch, TokenDispatch
from sentence_experts.models.layers.experts import Experts, IdleExpert
from sentence_experts.models.layers.weight_names import is_router
from sentence_experts.models.routes.kinds import router_kind
from sentence_experts.models.routes.sequence_router import SequencePass, SequenceRouter
from sentence_experts.models.routes.token_router import REENTRANT, TokenPass, TokenRouter

# The plan by which the blocks of a forward pass find their experts.
Plan = Dispatch | RecordedDispatch | SequencePass | TokenPass
NOTHING_ROUTED = Dispatch(None, ())


class RoutedBlock:
    """A mixin in front of a base block that lets a sequence router choose before the block runs.

    Gradient checkpointing does not record the first run of a block's inside, and computes it again. The
    routers' losses need logits that are recorded the first time, so routers run outside.
    """

    experts: Experts | None
    adapters: nn.ModuleList
    router: SequenceRouter | TokenRouter | None
    expert_norms: bool

    def put_experts(self, config: Any, layer: int) -> None:
        """Move the modules that experts own out of the block and into one copy per expert.

        A block with experts, of `config.expert_layers`, also gets a router if the router is learned.
        """
        self.experts, self.router, self.expert_norms = None, None, config.expert_norms
        if config.adapters:
            self.adapters = put_adapters(self, config.adapters)  # type: ignore[arg-type]
        if layer not in config.expert_layers:
            return
        block: Any = self
        owned = {}
        for name, path in family_of(config.model_type).owned(config.expert_norms).items():
            owned[name] = block.get_submodule(path)
            parent, _, leaf = path.rpartition(".")
            delattr(block.get_submodule(parent), leaf)
        if config.experts_on_disk:
            modules = nn.ModuleDict(owned).to("meta")
            self.experts = Experts(
                IdleExpert(copy.deepcopy(modules, {id(config): config})) for _ in config.experts
            )
        else:
            # Experts share the config that some modules hold: copying it takes longer than the weights.
            self.experts = Experts(
                nn.ModuleDict(copy.deepcopy(owned, {id(config): config})) for _ in config.experts
            )
        self.experts.last = list(family_of(config.model_type).mlp)[-1]
        if (kind := router_kind(config)).is_learned:
            router = TokenRouter if kind.per_token else SequenceRouter
            self.router = router(config.hidden_size, len(config.experts))

    def __call__(self, hidden_states: Tensor, *args: Any, plan: Plan = NOTHING_ROUTED, **kwargs: Any) -> Any:
        """Run the block."""
        if isinstance(plan, SequencePass) and isinstance(self.router, SequenceRouter):
            plan = plan.choose(self.router, hidden_states)
        return super().__call__(hidden_states, *args, plan=plan, **kwargs)  # type: ignore[misc]

    def forward(self, hidden_states: Tensor, *args: Any, plan: Plan = NOTHING_ROUTED, **kwargs: Any) -> Any:
        """Run the block with the routes' adapters, also when it is computed again for its gradients."""
        slices = getattr(plan, "adapters", ())
        if slices is None or (not isinstance(slices, Tensor) and not slices):
            return self.run(hidden_states, *args, plan=plan, **kwargs)
        with use_adapters(self.adapters, slices):
            return self.run(hidden_states, *args, plan=plan, **kwargs)

    def run(self, hidden_states: Tensor, *args: Any, plan: Plan, **kwargs: Any) -> Any:
        """Run the block; every family overrides it."""
        raise NotImplementedError

    def plan_at(self, plan: Plan, hidden: Tensor) -> Dispatch | RecordedDispatch | TokenDispatch:
        """Return the plan of this block where `hidden` first meets its experts: here tokens choose theirs."""
        if isinstance(plan, TokenPass):
            assert isinstance(self.router, TokenRouter)
            return plan.choose(self.router, hidden)
        if isinstance(plan, RecordedDispatch):
            return plan
        assert isinstance(plan, Dispatch)
        if plan.scale is not None and plan.scale.requires_grad and not torch.is_grad_enabled():
            raise UsageError(REENTRANT)
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
