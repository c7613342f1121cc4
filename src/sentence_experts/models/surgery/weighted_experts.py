"""Weights of a new model as sums of an old model's experts: one alone, or a weighted mean of several."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

# Expert index -> its share of the sum; the shares add up to 1.
Shares = Mapping[int, float]

_IN_EXPERT = re.compile(r"(?P<before>.*\.experts\.)(?P<number>\d+)(?P<after>\..*)")


def equal_shares(count: int) -> dict[int, float]:
    """The mean of `count` experts."""
    return dict.fromkeys(range(count), 1 / count)


def blend(shares: Shares, tensor_of: Callable[[int], Tensor]) -> Tensor:
    """The sum of the experts' tensors by their shares; one expert alone comes out as it is, to the bit."""
    used = {number: share for number, share in shares.items() if share}
    if len(used) == 1:
        return tensor_of(next(iter(used)))
    parts = torch.stack([share * tensor_of(number).double() for number, share in used.items()])
    return parts.sum(dim=0).to(tensor_of(next(iter(used))).dtype)


def expert_of(key: str) -> int | None:
    """The index of the expert that a weight belongs to; None for a shared one."""
    found = _IN_EXPERT.fullmatch(key)
    return int(found["number"]) if found else None


def of_expert(key: str, number: int) -> str:
    """The same weight of another expert: ("layers.3.experts.1.mlp.Wi", 0) -> "layers.3.experts.0.mlp.Wi"."""
    return _IN_EXPERT.sub(rf"\g<before>{number}\g<after>", key)
