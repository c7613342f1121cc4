"""Heads of routes: linear maps of the pooled vector, which begin as the identity."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sentence_experts.models.layers.adapters import LowRank


class LowRankHead(LowRank):
    """The head of a route with few weights: x + up(down(x)) + bias, (width) -> (width)."""

    def __init__(self, rank: int, width: int) -> None:
        super().__init__(rank, width, width)
        self.bias = nn.Parameter(torch.zeros(width))

    @property
    def weight(self) -> Tensor:
        """The whole map, (width, width)."""
        return torch.eye(len(self.bias), device=self.bias.device, dtype=self.bias.dtype) + self.product()

    def forward(self, pooled: Tensor) -> Tensor:
        """Map (..., width) to (..., width)."""
        low = nn.functional.linear(pooled, self.down)
        return pooled + nn.functional.linear(low, self.up, self.bias)


def make_head(width: int, rank: int | None) -> nn.Linear | LowRankHead:
    """Make a head, whose difference from the identity has at most this rank; None for no limit."""
    return nn.Linear(width, width) if rank is None or rank >= width else LowRankHead(rank, width)
