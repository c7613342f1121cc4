"""Experts inside a block: each works on one contiguous slice of the batch's tokens.

Each sequence meets exactly one expert in every block (Hallee 2025, "Mixture of Experts"; MoTE, section 3.1);
`routed_model` groups batches this way.

An expert that no sequence of a batch is routed to takes no part in that batch and gets no gradient (`grad`
stays None). DistributedDataParallel therefore needs `find_unused_parameters=True`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sentence_experts.compat.torch import hide
from sentence_experts.models.layers.dispatch import Dispatch, TokenDispatch


class Experts(nn.ModuleList):
    """One `nn.ModuleDict` per expert, each holding the modules that the expert owns in one block."""

    def run(
        self,
        hidden: Tensor,
        plan: Dispatch | TokenDispatch,
        function: Callable[[nn.ModuleDict, Tensor], Tensor],
    ) -> Tensor:
        """Apply `function(expert, tokens)` to each expert's tokens; mix the outputs of a token's experts.

        Args:
            hidden: (..., width).
            plan: the tokens of each expert, and the order that groups them.
            function: (..., width) -> (..., width), treating every token by itself.
        """
        if isinstance(plan, TokenDispatch):
            return self._mixed(hidden, plan, function)
        if plan.order is not None:
            grouped = hidden.index_select(plan.dim, plan.order)
            done = self.run(grouped, Dispatch(None, plan.slices), function)
            return done.index_select(plan.dim, torch.argsort(plan.order))
        slices = plan.slices
        if len(slices) == 1:
            return function(self.expert(slices[0][0]), hidden)
        tokens = hidden.reshape(-1, hidden.shape[-1])
        parts = [function(self.expert(number), tokens[start:end]) for number, start, end in slices]
        return torch.cat(parts).view(*hidden.shape[:-1], -1)

    def _mixed(
        self, hidden: Tensor, plan: TokenDispatch, function: Callable[[nn.ModuleDict, Tensor], Tensor]
    ) -> Tensor:
        """The weighted sum of the outputs of each token's experts; 0 at padding.

        Outputs are gathered, not scattered: sums have one order on every device, and padding is left alone.
        """
        tokens = hidden.reshape(-1, hidden.shape[-1])
        calls = self.run(tokens.index_select(0, plan.order), Dispatch(None, plan.slices), function)
        each = calls.index_select(0, plan.back.flatten()).view(*plan.back.shape, -1)
        mixed = (each * plan.weights[:, :, None]).sum(dim=1).to(calls.dtype)
        if plan.positions is not None:
            whole = mixed.new_zeros(len(tokens), mixed.shape[-1])
            mixed = whole.index_copy(0, plan.positions, mixed)
        return mixed.view(*hidden.shape[:-1], -1)

    def expert(self, number: int) -> nn.ModuleDict:
        """The modules of one expert."""
        modules = self[number]
        assert isinstance(modules, nn.ModuleDict)
        return modules

    def idle(self, number: int) -> IdleExpert:
        """What holds the place of an expert that is not in use."""
        modules = self[number]
        assert isinstance(modules, IdleExpert)
        return modules


class IdleExpert(nn.ModuleDict):
    """Holds the place of an expert that is not in use (`storage.residency`), and none of its weights.

    Attributes:
        blueprint: the expert's modules, on no device (meta) where their weights wait on disk.
        waiting: the expert, where it waits on the CPU.
    """

    blueprint: nn.ModuleDict
    waiting: nn.ModuleDict | None

    def __init__(self, blueprint: nn.ModuleDict, waiting: nn.ModuleDict | None = None) -> None:
        super().__init__()
        hide(self, blueprint=blueprint, waiting=waiting)
