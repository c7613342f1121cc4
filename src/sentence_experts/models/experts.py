"""Experts inside a block, and the model that sends each sequence through one of them.

Each sequence meets exactly one expert in every block (Hallee 2025, "Mixture of Experts"; MoTE, section 3.1),
so the batch is put in the order of its experts once, at the model's entry. All blocks then work on contiguous
slices, one an expert, and the outputs are put back in the batch's order once, at the exit.

An expert that no sequence of a batch is routed to takes no part in that batch and gets no gradient (`grad`
stays None). DistributedDataParallel therefore needs `find_unused_parameters=True`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils.generic import ModelOutput

from sentence_experts.errors import RouteError, UsageError
from sentence_experts.models.families import family_of
from sentence_experts.models.routing import (
    Route,
    experts_of,
    no_route_error,
    without_inner_route_tokens,
)

# (expert, first token, token after the last) over the tokens of a whole batch, in that order.
ExpertSlices = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Dispatch:
    """How a batch is put in the order of its experts.

    Attributes:
        order: (sequences,) the sequences, grouped by expert; None when the batch is grouped already.
        slices: the tokens of each expert that the batch calls.
    """

    order: Tensor | None
    slices: ExpertSlices


def dispatch(expert_ids: Tensor, lengths: Tensor, experts: int) -> Dispatch | None:
    """Group sequences by expert, with one transfer from the device.

    Args:
        expert_ids: (sequences,) the expert of each.
        lengths: (sequences,) how many tokens each takes in the batch, padding included.
        experts: how many experts there are.

    Returns:
        None when some id is outside [0, experts).
    """
    numbers = torch.arange(experts, device=expert_ids.device)
    tokens_each = ((expert_ids[:, None] == numbers) * lengths[:, None]).sum(dim=0)  # (experts,)
    strays = ((expert_ids < 0) | (expert_ids >= experts)).sum()
    descents = (expert_ids[1:] < expert_ids[:-1]).sum()
    *tokens, stray, descent = torch.cat([tokens_each, strays[None], descents[None]]).tolist()
    if stray:
        return None
    slices, start = [], 0
    for expert, count in enumerate(tokens):
        if count:
            slices.append((expert, start, start + count))
            start += count
    return Dispatch(torch.argsort(expert_ids, stable=True) if descent else None, tuple(slices))


class Experts(nn.ModuleList):
    """One `nn.ModuleDict` an expert, each holding the modules that the expert owns in one block."""

    def run(
        self, hidden: Tensor, slices: ExpertSlices, function: Callable[[nn.ModuleDict, Tensor], Tensor]
    ) -> Tensor:
        """Apply `function(expert, tokens)` to each expert's tokens.

        Args:
            hidden: (..., width), its tokens in the order of `slices`.
            slices: which tokens each expert takes.
            function: (..., width) -> (..., width), treating every token by itself.
        """
        if len(slices) == 1:
            return function(self.expert(slices[0][0]), hidden)
        tokens = hidden.reshape(-1, hidden.shape[-1])
        parts = [function(self.expert(number), tokens[start:end]) for number, start, end in slices]
        return torch.cat(parts).view(*hidden.shape[:-1], -1)

    def expert(self, number: int) -> nn.ModuleDict:
        """The modules of one expert."""
        modules = self[number]
        assert isinstance(modules, nn.ModuleDict)
        return modules


def take_experts(block: nn.Module, config: Any, layer: int) -> Experts | None:
    """Move the modules that experts own out of a base block and into one copy an expert.

    Returns None, and leaves the block as it is, where `config.expert_layers` lacks this layer.
    """
    if layer not in config.expert_layers:
        return None
    owned = {}
    for name, path in family_of(config.model_type).owned(config.expert_norms).items():
        owned[name] = block.get_submodule(path)
        parent, _, leaf = path.rpartition(".")
        delattr(block.get_submodule(parent), leaf)
    return Experts(nn.ModuleDict(copy.deepcopy(owned)) for _ in config.experts)


class RoutedModel:
    """Mixed in before a transformers encoder: reads the routes, groups the batch, puts the outputs back.

    A subclass sets `block_class`, the block that takes `expert_slices`.
    """

    block_class: Any
    config: Any

    def replace_blocks(self) -> None:
        """Put blocks with experts in the place of the base model's; call it at the end of `__init__`."""
        layers = range(self.config.num_hidden_layers)
        blocks = nn.ModuleList(self.block_class(self.config, layer) for layer in layers)
        self.set_submodule(family_of(self.config.model_type).blocks, blocks)  # type: ignore[attr-defined]
        self.post_init()  # type: ignore[attr-defined]

    @property
    def routes(self) -> tuple[Route, ...]:
        """The known routes."""
        return tuple(Route.from_json(fields) for fields in self.config.routes)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        expert_ids: Tensor | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """As the base model's forward, each sequence through the expert that its route names.

        Args:
            input_ids: (batch, length), or (1, tokens) with `cu_seq_lens_q`.
            attention_mask: (batch, length), padding on either side.
            token_type_ids: (batch, length), for families that have them.
            position_ids: (batch, length) or (1, length).
            inputs_embeds: (batch, length, width) in place of `input_ids`; needs `expert_ids`.
            expert_ids: (sequences,) integers, used instead of the routes in the sequences.
            return_dict: False for a tuple.
            **kwargs: passed to the base model.

        Raises:
            RouteError: a sequence begins with no known route.
            UsageError: `expert_ids` has the wrong shape or names an expert that is not there.
        """
        packed = kwargs.get("cu_seq_lens_q")
        if input_ids is not None and self.config.inner_route_token_id is not None:
            # A mask of another shape is the caller's own attention pattern and says nothing about padding.
            padding = attention_mask if attention_mask is not None and attention_mask.dim() == 2 else None
            input_ids = without_inner_route_tokens(
                self.routes, self.config.inner_route_token_id, input_ids, padding, packed
            )
        explicit = expert_ids is not None
        if expert_ids is None:
            expert_ids = self._read_routes(input_ids, attention_mask, packed)
        first = input_ids if input_ids is not None else inputs_embeds
        if first is None:
            raise UsageError("give input_ids or inputs_embeds")
        plan = self._plan(expert_ids, first, packed)
        if plan is None:
            raise self._stray_error(expert_ids, explicit)
        given = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
        }
        inputs = {name: value for name, value in given.items() if value is not None}
        outputs = self._grouped_forward(inputs, kwargs, plan, packed)
        wants_tuple = return_dict is False or (return_dict is None and not self.config.return_dict)
        return outputs.to_tuple() if wants_tuple else outputs

    def _read_routes(
        self, input_ids: Tensor | None, attention_mask: Tensor | None, packed: Tensor | None
    ) -> Tensor:
        if input_ids is None or (attention_mask is not None and attention_mask.dim() != 2):
            raise UsageError("routes need input_ids and a mask of the same shape; otherwise pass expert_ids")
        if not self.config.routes:
            raise RouteError("this model has no routes in its config; pass expert_ids")
        return experts_of(self.routes, input_ids, attention_mask, packed)

    def _plan(self, expert_ids: Tensor, inputs: Tensor, packed: Tensor | None) -> Dispatch | None:
        sequences = inputs.shape[0] if packed is None else packed.shape[0] - 1
        expert_ids = torch.as_tensor(expert_ids, device=inputs.device)
        if expert_ids.shape != (sequences,) or expert_ids.is_floating_point():
            raise UsageError(f"expert_ids must be {sequences} integers, one a sequence; got {expert_ids!r}")
        lengths = expert_ids.new_full((sequences,), inputs.shape[1]) if packed is None else packed.diff()
        return dispatch(expert_ids, lengths, len(self.config.experts))

    def _stray_error(self, expert_ids: Tensor, explicit: bool) -> Exception:
        if not explicit:
            return no_route_error(self.routes, expert_ids)
        names = ", ".join(f"{index} ({name})" for index, name in enumerate(self.config.experts))
        return UsageError(f"expert_ids {expert_ids.tolist()} go beyond the experts: {names}")

    def _grouped_forward(
        self,
        inputs: dict[str, Tensor],
        kwargs: dict[str, Any],
        plan: Dispatch,
        packed: Tensor | None,
    ) -> ModelOutput:
        """The base model's forward in the plan's order, its outputs in the inputs' order."""
        kwargs = {**kwargs, "expert_slices": plan.slices, "return_dict": True}
        base_forward: Callable[..., ModelOutput] = super().forward  # type: ignore[misc]
        if plan.order is None:
            return base_forward(**inputs, **kwargs)
        if packed is None:
            return _put_back(base_forward(**_take(inputs, plan.order), **kwargs), plan.order)
        tokens = next(iter(inputs.values())).shape[1]
        order, packing = reorder_packed(packed, plan.order, tokens)
        outputs = base_forward(**_take(inputs, order, dim=1), **{**kwargs, **packing})
        return _put_back(outputs, order, dim=1)


def reorder_packed(cu_seq_lens: Tensor, order: Tensor, tokens: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Put packed sequences in another order.

    Args:
        cu_seq_lens: (sequences + 1,) cumulative lengths.
        order: (sequences,) the sequences in their new order.
        tokens: the tokens of all sequences.

    Returns:
        The tokens in their new order, (tokens,), and the keyword arguments that describe the new packing.
    """
    lengths = cu_seq_lens.diff()[order]
    moved = torch.cat([cu_seq_lens[:1], lengths.cumsum(0, dtype=cu_seq_lens.dtype)])
    numbers = torch.arange(len(order), device=order.device)
    sequence = torch.repeat_interleave(numbers, lengths, output_size=tokens)
    shift = (cu_seq_lens[:-1][order] - moved[:-1])[sequence]
    token_order = torch.arange(tokens, device=order.device) + shift
    return token_order, {"cu_seq_lens_q": moved, "cu_seq_lens_k": moved, "seq_idx": sequence[None].int()}


def _take(inputs: dict[str, Tensor], order: Tensor, dim: int = 0) -> dict[str, Tensor]:
    """The inputs in `order` along `dim`; one row of positions that stands for all rows stays."""
    return {
        name: value.index_select(dim, order) if value.shape[dim] == len(order) else value
        for name, value in inputs.items()
    }


def _put_back(outputs: ModelOutput, order: Tensor, dim: int = 0) -> ModelOutput:
    """Undo `_take` in every output; `pooler_output` (batch, width) has no tokens to put back when packed."""
    back = torch.argsort(order)
    for name, value in outputs.items():
        if dim == 0 or name != "pooler_output":
            parts = value if isinstance(value, tuple) else (value,)
            moved = tuple(part.index_select(dim, back) for part in parts)
            outputs[name] = moved if isinstance(value, tuple) else moved[0]
    return outputs
