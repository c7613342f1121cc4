"""Experts inside a block, which work on contiguous slices of the batch's tokens.

Each sequence meets exactly one expert in every block (Hallee 2025, "Mixture of Experts"; MoTE, section 3.1);
`routed_model` groups batches this way.

An expert that no sequence of a batch is routed to takes no part in that batch and gets no gradient (`grad`
stays None). DistributedDataParallel therefore needs `find_unused_parameters=True`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from sentence_experts.compat.torch import hide
from sentence_experts.models.layers.adapters import narrow_adapters
from sentence_experts.models.layers.dispatch import Dispatch, RecordedDispatch, TokenDispatch


class Expert(Protocol):
    """The modules of one expert, by their names."""

    def __getitem__(self, name: str, /) -> Callable[..., Any]: ...


# (expert, tokens) -> outputs of the expert, (..., width) -> (..., width).
Function = Callable[[Expert, Tensor], Tensor]


class Experts(nn.ModuleList):
    """One `nn.ModuleDict` per expert, each holding the modules that the expert owns in one block.

    Attributes:
        last: name of the last module of the MLP, whose output a plan may scale.
    """

    last: str

    def run(
        self,
        hidden: Tensor,
        plan: Dispatch | RecordedDispatch | TokenDispatch,
        function: Function,
    ) -> Tensor:
        """Apply `function(expert, tokens)` to each expert's tokens; mix the outputs of a token's experts.

        Args:
            hidden: states of the tokens, (..., width).
            plan: tokens of each expert, and the order that groups them.
            function: function that treats every token by itself.
        """
        if isinstance(plan, RecordedDispatch):

            def recorded(number: int, rows: Tensor, chosen: Tensor) -> Tensor:
                with narrow_adapters(0, 0, chosen):
                    return function(self.expert(number), rows)

            return plan.apply(hidden, recorded)
        if isinstance(plan, TokenDispatch):
            return self._mixed(hidden, plan, function)
        if plan.order is not None:
            grouped = hidden.index_select(plan.dim, plan.order)
            scale = None if plan.scale is None else plan.scale.index_select(plan.dim, plan.order)
            done = self.run(grouped, Dispatch(None, plan.slices, scale=scale), function)
            return done.index_select(plan.dim, torch.argsort(plan.order))
        slices = plan.slices
        if len(slices) == 1:
            return self._call(slices[0][0], hidden, function, plan.scale)
        tokens = hidden.reshape(-1, hidden.shape[-1])
        scales = None if plan.scale is None else plan.scale.reshape(-1, 1)
        parts = []
        for number, start, end in slices:
            scale = None if scales is None else scales[start:end]
            with narrow_adapters(start, end):
                parts.append(self._call(number, tokens[start:end], function, scale))
        return torch.cat(parts).view(*hidden.shape[:-1], -1)

    def _call(self, number: int, tokens: Tensor, function: Function, scale: Tensor | None) -> Tensor:
        expert: Expert = self.expert(number)
        if scale is not None:
            expert = _ScaledExpert(expert, self.last, scale)
        return function(expert, tokens)

    def _mixed(self, hidden: Tensor, plan: TokenDispatch, function: Function) -> Tensor:
        """Return the weighted sum of the outputs of each token's experts; 0 at padding.

        Outputs are gathered, not scattered: sums have one order on every device, and padding is left alone.
        """
        tokens = hidden.reshape(-1, hidden.shape[-1])
        calls = self.run(
            tokens.index_select(0, plan.order), Dispatch(None, plan.slices, scale=plan.scale), function
        )
        each = calls.index_select(0, plan.back.flatten()).view(*plan.back.shape, -1)
        mixed = (each * plan.weights[:, :, None]).sum(dim=1).to(calls.dtype)
        if plan.positions is not None:
            whole = mixed.new_zeros(len(tokens), mixed.shape[-1])
            mixed = whole.index_copy(0, plan.positions, mixed)
        return mixed.view(*hidden.shape[:-1], -1)

    def expert(self, number: int) -> nn.ModuleDict:
        """Return the modules of one expert."""
        modules = self[number]
        assert isinstance(modules, nn.ModuleDict)
        return modules


class _ScaledExpert:
    """An expert whose MLP's output is multiplied by the router's probability, before the residual joins."""

    def __init__(self, expert: Expert, last: str, scale: Tensor) -> None:
        self._expert, self._last, self._scale = expert, last, scale

    def __getitem__(self, name: str) -> Callable[[Tensor], Tensor]:
        module = self._expert[name]
        return (lambda hidden: module(hidden) * self._scale) if name == self._last else module


class IdleExpert(nn.ModuleDict):
    """A placeholder, without weights, of an expert that is not in use (`layers.residency`).

    Attributes:
        expert: modules of the expert, in the CPU's memory, or on no device (meta) where their weights wait on
            disk.
    """

    expert: nn.ModuleDict

    def __init__(self, expert: nn.ModuleDict) -> None:
        super().__init__()
        hide(self, expert=expert)
