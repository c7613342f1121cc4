"""Experts inside a block: each works on one contiguous slice of the batch's tokens.

Each sequence meets exactly one expert in every block (Hallee 2025, "Mixture of Experts"; MoTE, section 3.1);
`routed_model` groups batches this way.

An expert that no sequence of a batch is routed to takes no part in that batch and gets no gradient (`grad`
stays None). DistributedDataParallel therefore needs `find_unused_parameters=True`.

Experts can stay in the CPU's memory while the model computes on a GPU (`keep_experts_on_cpu`). A call of an
expert then copies its weights, and their gradients come back; only the copies take memory there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sentence_experts.compat.torch import KeptOnCpu, hide
from sentence_experts.models.layers.adapters import adapting_part, adapting_rows
from sentence_experts.models.layers.dispatch import Dispatch, RecordedDispatch, TokenDispatch


class Expert(Protocol):
    """The modules of one expert, by their names."""

    def __getitem__(self, name: str, /) -> Callable[..., Any]: ...


# (expert, tokens) -> what the expert makes of them, (..., width) -> (..., width).
Function = Callable[[Expert, Tensor], Tensor]


class Experts(KeptOnCpu, nn.ModuleList):
    """One `nn.ModuleDict` per expert, each holding the modules that the expert owns in one block.

    Attributes:
        last: the name of the last module of the MLP, whose output a plan may scale.
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
            hidden: (..., width).
            plan: the tokens of each expert, and the order that groups them.
            function: treats every token by itself.
        """
        if isinstance(plan, RecordedDispatch):

            def recorded(number: int, own: Tensor, chosen: Tensor) -> Tensor:
                with adapting_rows(chosen):
                    return function(self.expert(number), own)

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
            with adapting_part(start, end):
                parts.append(self._call(number, tokens[start:end], function, scale))
        return torch.cat(parts).view(*hidden.shape[:-1], -1)

    def _call(self, number: int, tokens: Tensor, function: Function, scale: Tensor | None) -> Tensor:
        expert: Expert = self.expert(number)
        if self.kept_on_cpu:
            expert = _CopiedExpert(self.expert(number))
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

    def idle(self, number: int) -> IdleExpert:
        """Return the placeholder of an expert that is not in use."""
        modules = self[number]
        assert isinstance(modules, IdleExpert)
        return modules


class _CopiedExpert:
    """An expert in the CPU's memory: each module computes with copies of its weights, where its input is."""

    def __init__(self, expert: nn.ModuleDict) -> None:
        self._expert = expert

    def __getitem__(self, name: str) -> Callable[[Tensor], Tensor]:
        module = self._expert[name]

        def call(hidden: Tensor) -> Tensor:
            copies = {own: copy_to(weight, hidden.device) for own, weight in module.named_parameters()}
            done: Tensor = functional_call(module, copies, (hidden,))
            return done

        return call


class _ScaledExpert:
    """An expert whose MLP's output is multiplied by the router's probability, before the residual joins."""

    def __init__(self, expert: Expert, last: str, scale: Tensor) -> None:
        self._expert, self._last, self._scale = expert, last, scale

    def __getitem__(self, name: str) -> Callable[[Tensor], Tensor]:
        module = self._expert[name]
        return (lambda hidden: module(hidden) * self._scale) if name == self._last else module


def copy_to(weight: Tensor, device: torch.device) -> Tensor:
    """Return a copy of a weight on a device, through which its gradient comes back."""
    return weight.to(device)


def keep_experts_on_cpu(model: nn.Module, kept: bool = True) -> None:
    """Keep the weights of a model's experts in the CPU's memory, wherever the rest of it is.

    With `kept=False` the experts move with the model again, from its next move on.
    """
    for module in model.modules():
        if isinstance(module, Experts):
            module.kept_on_cpu = kept
            module.to("cpu")


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
