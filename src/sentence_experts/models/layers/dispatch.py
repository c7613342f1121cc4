"""A batch in the order of its experts, and back: what lets each expert work on one contiguous slice."""

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
        order: the sequences (dim 0) or, of packed sequences, the tokens (dim 1), grouped by expert; None when
            the batch is grouped already.
        slices: the tokens of each expert that the batch calls, once it is grouped.
        dim: what `order` counts.
        scale: (..., 1) factors of the outputs of the tokens' MLPs, in the batch's own order; None for 1.
        adapters: the tokens of each adapter that the batch calls; -1 for those of none.
    """

    order: Tensor | None
    slices: ExpertSlices
    dim: int = 0
    scale: Tensor | None = None
    adapters: ExpertSlices = ()


@dataclass(frozen=True)
class TokenDispatch:
    """The order that groups single tokens, each `top_k` times, by expert, and the weights that mix them.

    Attributes:
        order: (calls,) the tokens, as positions in the batch as one row, grouped by expert.
        slices: the calls of each expert that any token calls.
        back: (tokens, top_k) where each token's calls stand in `order`.
        weights: (tokens, top_k) the weights of their outputs.
        positions: (tokens,) the tokens' positions; None when there is no padding.
        scale: (calls, 1) factors of the outputs of the MLPs, in the order of `order`; None for 1.
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
        numbers: (sequences,) the expert of each, or the head.
        count: the number of experts.
        adapters: (sequences,) the adapter of each; -1 for none.
    """

    numbers: Tensor
    count: int
    adapters: Tensor | None = None

    def apply(self, hidden: Tensor, function: Callable[[int, Tensor, Tensor], Tensor]) -> Tensor:
        """Return `hidden`, (sequences, ...), with `function(number, sequences, places)` for those it names.

        Each number picks its sequences, so that none is computed twice; a number of no sequence gets none.
        """
        done = hidden
        for number in range(self.count):
            chosen = torch.nonzero(self.numbers == number).squeeze(1)
            own = function(number, hidden.index_select(0, chosen), chosen)
            done = done.index_copy(0, chosen, own)
        return done


def dispatch(expert_ids: Tensor, lengths: Tensor, experts: int) -> Dispatch | None:
    """Group sequences by expert, with one transfer from the device; None when an id is not that of an expert.

    Args:
        expert_ids: (sequences,) the expert of each.
        lengths: (sequences,) the number of tokens each takes in the batch, padding included.
        experts: the number of experts.
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
