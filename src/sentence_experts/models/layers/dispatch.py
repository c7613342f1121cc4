"""The order of a batch by experts, in which an expert works on one contiguous slice, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from transformers.utils.generic import ModelOutput

# (expert, first token, token after the last) over the tokens of a whole batch, in that order.
ExpertSlices = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Dispatch:
    """The order that groups a batch by expert.

    Attributes:
        order: sequences (dim 0) or, when packed, tokens (dim 1), grouped by expert; None when
            the batch is grouped already.
        slices: tokens of each expert that the batch calls, once it is grouped.
        dim: dimension of `order`.
        scale: factors of the outputs of the tokens' MLPs, (..., 1), in the original order; None for 1.
        adapters: tokens of each adapter that the batch calls; -1 for the tokens without one.
    """

    order: Tensor | None
    slices: ExpertSlices
    dim: int = 0
    scale: Tensor | None = None
    adapters: ExpertSlices = ()


@dataclass(frozen=True)
class TokenDispatch:
    """The order that groups tokens by expert, every token `top_k` times, and the weights that mix them.

    Attributes:
        order: tokens grouped by expert, (calls,), as positions in the batch as one row.
        slices: calls of each expert that any token calls.
        back: places of the tokens' calls in `order`, (tokens, top_k).
        weights: weights of the calls' outputs, (tokens, top_k).
        positions: positions of the tokens, (tokens,); None when there is no padding.
        scale: factors of the outputs of the MLPs, (calls, 1), in the order of `order`; None for 1.
    """

    order: Tensor
    slices: ExpertSlices
    back: Tensor
    weights: Tensor
    positions: Tensor | None
    scale: Tensor | None = None


@dataclass(frozen=True)
class RecordedDispatch:
    """The owner of each sequence, for a recorded graph, whose steps cannot depend on the batch.

    Attributes:
        numbers: expert, or head, of each sequence, (sequences,).
        count: number of experts.
        adapters: adapter of each sequence, (sequences,); -1 for none.
    """

    numbers: Tensor
    count: int
    adapters: Tensor | None = None

    def apply(self, hidden: Tensor, function: Callable[[int, Tensor, Tensor], Tensor]) -> Tensor:
        """Return `hidden`, (sequences, ...), with `function(number, sequences, places)` in the named places.

        Each number picks its sequences, so that none is computed twice; a number of no sequence gets none.
        """
        done = hidden
        for number in range(self.count):
            chosen = torch.nonzero(self.numbers == number).squeeze(1)
            output = function(number, hidden.index_select(0, chosen), chosen)
            done = done.index_copy(0, chosen, output)
        return done


def dispatch(expert_ids: Tensor, lengths: Tensor, experts: int) -> Dispatch | None:
    """Group sequences by expert, with one transfer from the device; None when an id belongs to no expert.

    Args:
        expert_ids: expert of each sequence, (sequences,).
        lengths: number of tokens of each sequence in the batch, padding included, (sequences,).
        experts: number of experts.
    """
    numbers = torch.arange(experts, device=expert_ids.device)
    tokens_each = ((expert_ids[:, None] == numbers) * lengths[:, None]).sum(dim=0)  # (experts,)
    strays = ((expert_ids < 0) | (expert_ids >= experts)).sum()
    descents = (expert_ids[1:] < expert_ids[:-1]).sum()
    *tokens, stray, descent = torch.cat([tokens_each, strays[None], descents[None]]).tolist()
    if stray:
        return None
    return Dispatch(torch.argsort(expert_ids, stable=True) if descent else None, _slices(tokens))


def dispatch_tokens(
    expert_ids: Tensor, weights: Tensor, experts: int, positions: Tensor | None, scale: Tensor | None = None
) -> TokenDispatch:
    """Group the calls of tokens by expert, with one transfer from the device.

    `expert_ids`, `weights` and `scale` are (tokens, top_k), the others as in `TokenDispatch`.
    """
    tokens, top_k = expert_ids.shape
    calls = expert_ids.flatten()
    grouped = torch.argsort(calls, stable=True)
    slices = _slices(torch.bincount(calls, minlength=experts).tolist())
    token = grouped // top_k
    order = token if positions is None else positions.index_select(0, token)
    grouped_scale = None if scale is None else scale.flatten()[grouped, None]
    back = torch.argsort(grouped).view(tokens, top_k)
    return TokenDispatch(order, slices, back, weights, positions, grouped_scale)


def _slices(counts: Sequence[int]) -> ExpertSlices:
    """Return the slice of each expert that has tokens, from the number of tokens per expert."""
    ends = accumulate(counts)
    slices = ((expert, end - counts[expert], end) for expert, end in enumerate(ends))
    return tuple(each for each in slices if counts[each[0]])


def relabel(slices: ExpertSlices, labels: Sequence[int]) -> ExpertSlices:
    """Return slices with the label of each number in its place; neighbours of one label become one slice.

    >>> relabel(((0, 0, 3), (1, 3, 4), (3, 4, 9)), [0, 0, 1, 1])
    ((0, 0, 4), (1, 4, 9))
    """
    merged: list[tuple[int, int, int]] = []
    for number, start, end in slices:
        if merged and merged[-1][0] == labels[number]:
            start = merged.pop()[1]
        merged.append((labels[number], start, end))
    return tuple(merged)


def reorder_packed(cu_seq_lens: Tensor, order: Tensor, tokens: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the tokens of packed sequences in a new order, (tokens,), and the keywords for the new packing.

    `cu_seq_lens`: (sequences + 1,) cumulative lengths; `order`: (sequences,); `tokens`: of all sequences.
    """
    lengths = cu_seq_lens.diff()[order]
    moved = torch.cat([cu_seq_lens[:1], lengths.cumsum(0, dtype=cu_seq_lens.dtype)])
    numbers = torch.arange(len(order), device=order.device)
    sequence = torch.repeat_interleave(numbers, lengths, output_size=tokens)
    shift = (cu_seq_lens[:-1][order] - moved[:-1])[sequence]
    token_order = torch.arange(tokens, device=order.device) + shift
    return token_order, {"cu_seq_lens_q": moved, "cu_seq_lens_k": moved, "seq_idx": sequence[None].int()}


def take(inputs: dict[str, Tensor], order: Tensor, dim: int = 0) -> dict[str, Tensor]:
    """Return the inputs in `order` along `dim`; one row of positions that stands for all rows stays."""
    return {
        name: value.index_select(dim, order) if value.shape[dim] == len(order) else value
        for name, value in inputs.items()
    }


def put_back(outputs: ModelOutput, order: Tensor, dim: int = 0) -> ModelOutput:
    """Undo `take` in every output; when packed, `pooler_output` (batch, width) has no tokens and stays."""
    back = torch.argsort(order)
    for name, value in outputs.items():
        if dim == 0 or name != "pooler_output":
            parts = value if isinstance(value, tuple) else (value,)
            moved = tuple(part.index_select(dim, back) for part in parts)
            outputs[name] = moved if isinstance(value, tuple) else moved[0]
    return outputs
