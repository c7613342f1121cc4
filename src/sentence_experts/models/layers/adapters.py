"""Low-rank adapters of routes (LoRA, Hu et al. 2021), which add up(down(x)) to linear layers of the blocks.

The layers stay as they are, and an adapter works on the slice of the batch's tokens that belongs to its
route. A layer learns of the slices from the block around it, for the time of the block's `forward` in one
thread: transformers calls the layers of its attention with nothing but their input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import local
from typing import Any

import torch
from torch import Tensor, nn

from sentence_experts.models.layers.dispatch import ExpertSlices


class LowRank(nn.Module):
    """A product of two matrices, (in) -> (rank) -> (out); its scale is part of the second."""

    def __init__(self, rank: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.zeros(rank, inputs))
        self.up = nn.Parameter(torch.zeros(outputs, rank))

    def product(self) -> Tensor:
        """Return the change of the layer's weight by the adapter, (out, in)."""
        return self.up @ self.down


class AdaptedLinear(nn.Linear):
    """A linear layer that adapters may change; `path` is its place in the block, and its name in them."""

    path: str

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (..., in) to (..., out)."""
        output = super().forward(hidden)
        now = _active.current
        if now.numbers is not None:
            return self._recorded(hidden, output, now.numbers)
        rows, before = hidden.reshape(-1, hidden.shape[-1]), output.view(-1, output.shape[-1])
        chosen, done = list[tuple[Any, int]](), 0  # an adapter's matrices, or None, and its number of rows
        for number, first, last in now.slices:
            start, end = max(first, now.start) - now.start, min(last, now.end or last) - now.start
            if number < 0 or start >= end or self.path not in now.adapters[number]:
                continue
            chosen += [(None, start - done), (now.adapters[number][self.path], end - start)]
            done = end
        if not chosen:
            return output
        in_place = not torch.is_grad_enabled() and before.dtype == chosen[1][0].up.dtype  # without copies
        # Split once: the gradient of each slice for itself would be as large as the whole.
        sizes = [*(size for _, size in chosen), len(rows) - done]
        outputs = list(before.split(sizes))
        for place, ((factors, _), part) in enumerate(zip(chosen, rows.split(sizes), strict=False)):
            if factors is None:
                continue
            low = nn.functional.linear(part, factors.down)
            if in_place:
                outputs[place].addmm_(low, factors.up.t())
            else:
                outputs[place] = torch.addmm(outputs[place], low, factors.up.t())
        return output if in_place else torch.cat(outputs).view(output.shape)

    def _recorded(self, hidden: Tensor, output: Tensor, numbers: Tensor) -> Tensor:
        """Run `forward` by steps that do not depend on the batch."""
        for number, adapter in enumerate(_active.current.adapters):
            if self.path in adapter:
                factors, chosen = adapter[self.path], torch.nonzero(numbers == number).squeeze(1)
                low = nn.functional.linear(hidden.index_select(0, chosen), factors.down)
                output = output.index_add(0, chosen, nn.functional.linear(low, factors.up))
        return output


@dataclass(frozen=True)
class _Pass:
    """The adapters of a block, the tokens of each in the batch, and the part of the batch worked on.

    In a recorded graph `numbers`, (sequences,), has the adapter of each sequence in place of the tokens.
    """

    adapters: Sequence[Mapping[str, LowRank]] = ()
    slices: ExpertSlices = ()
    start: int = 0
    end: int | None = None
    numbers: Tensor | None = None


class _Active(local):
    """The current pass of a thread through a block."""

    current = _Pass()


_active = _Active()


@contextmanager
def _in_pass(current: _Pass) -> Iterator[None]:
    before, _active.current = _active.current, current
    try:
        yield
    finally:
        _active.current = before


@contextmanager
def use_adapters(adapters: Any, slices: ExpertSlices | Tensor) -> Iterator[None]:
    """Let the linear layers use a block's adapters, each on its slice, while the block runs."""
    recorded = isinstance(slices, Tensor)
    with _in_pass(_Pass(adapters, numbers=slices) if recorded else _Pass(adapters, slices)):  # type: ignore[arg-type]
        yield


@contextmanager
def narrow_adapters(start: int, end: int, chosen: Tensor | None = None) -> Iterator[None]:
    """Let the linear layers expect the tokens from `start` to `end` alone.

    In a recorded graph they get the sequences `chosen`.
    """
    numbers = _active.current.numbers
    narrowed = None if numbers is None or chosen is None else numbers[chosen]
    with _in_pass(replace(_active.current, start=start, end=end, numbers=narrowed)):
        yield


def key_of(path: str) -> str:
    """Return the name of a layer's adapter, in which a module's name cannot have dots."""
    return path.replace(".", "_")


def put_adapters(block: nn.Module, settings: Sequence[Mapping[str, Any]]) -> nn.ModuleList:
    """Make a block's linear layers adaptable, in place, and return one dict of `LowRank` per adapter."""
    layers = {name: module for name, module in block.named_modules() if isinstance(module, nn.Linear)}
    for path, layer in layers.items():
        layer.__class__ = AdaptedLinear
        layer.path = key_of(path)  # type: ignore[assignment]
    return nn.ModuleList(
        nn.ModuleDict(
            {
                key_of(path): LowRank(each["rank"], layers[path].in_features, layers[path].out_features)
                for path in each["layers"]
            }
        )
        for each in settings
    )
