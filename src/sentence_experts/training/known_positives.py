"""Known positives: texts of a batch that are not used as each other's negatives.

The papers count every other pair of a batch as a negative (Hallee 2025, Training strategy: a linked paper is
assumed to be rare). In a small, dense domain it is not rare.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class KnownPositives(nn.Module):
    """Tells whether two numbers are equal or linked; stores eight bytes per link.

    A number stands for a paper, or for a group of texts that are all positives of each other, such as those
    of one label. It is a module without parameters, so that the links move to the device of the loss.
    """

    keys: Tensor

    def __init__(self, left: Tensor, right: Tensor, count: int) -> None:
        """Store links, which have no direction, between the numbers `left` and `right`, below `count`."""
        super().__init__()
        self.count = count
        self.register_buffer("keys", torch.unique(self._key(left.long(), right.long())), persistent=False)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Return True where two numbers are equal or linked; the two are broadcast."""
        key = self._key(left, right)
        if not len(self.keys):
            return left == right
        place = torch.searchsorted(self.keys, key).clamp(max=len(self.keys) - 1)
        return (self.keys[place] == key) | (left == right)

    def degrees(self) -> Tensor:
        """Return the number of links of each number, (count,)."""
        ends = torch.cat([self.keys // self.count, self.keys % self.count])
        return torch.bincount(ends, minlength=self.count)

    def _key(self, left: Tensor, right: Tensor) -> Tensor:
        return torch.minimum(left, right) * self.count + torch.maximum(left, right)
