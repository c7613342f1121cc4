"""Which works of a batch are linked to each other, so that linked texts are not taken for negatives.

The papers count every other pair of a batch as a negative (Hallee 2025, Training strategy: a linked paper at
random is assumed to be rare). In a small, dense domain it is not rare.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor, nn

from sentence_experts.pairs.dataset import PairsFolder

ID_COLUMNS = ("anchor_id", "positive_id")


def number_works(train: pa.Table) -> pa.Array:
    """The ids of the works in the training pairs, sorted; a work's number is its place here."""
    ids = pa.chunked_array([chunk for column in ID_COLUMNS for chunk in train[column].chunks], pa.string())
    unique = pc.unique(ids)
    return unique.take(pc.sort_indices(unique))


class KnownPositives(nn.Module):
    """Looks up whether two works are the same or linked; holds eight bytes a link.

    A module without parameters, so that the links go to the device of the loss that asks. They are not part
    of its state: the pairs dataset has them.
    """

    keys: Tensor

    def __init__(self, left: Tensor, right: Tensor, works: int) -> None:
        """Keep the links.

        Args:
            left: (links,) work numbers.
            right: (links,) the work number that each is linked to; the order of the two does not matter.
            works: how many works there are.
        """
        super().__init__()
        self.works = works
        self.register_buffer("keys", torch.unique(self._key(left.long(), right.long())), persistent=False)

    @classmethod
    def of(cls, pairs: PairsFolder, works: pa.Array, train: pa.Table) -> KnownPositives:
        """The links between these works.

        Args:
            pairs: the dataset; one without a file of known links knows those of its training pairs.
            works: the works' ids, as of `number_works`.
            train: the training pairs.
        """
        if pairs.has_known_links:
            links, columns = pairs.known_links(), ("left_id", "right_id")
        else:
            links, columns = train, ID_COLUMNS
        left, right = (pc.index_in(links[column].cast(pa.string()), value_set=works) for column in columns)
        both = pc.and_(pc.is_valid(left), pc.is_valid(right))
        left, right = (torch.from_numpy(end.filter(both).to_numpy().copy()) for end in (left, right))
        return cls(left, right, len(works))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """True where the two work numbers are of one work or of linked works; the two are broadcast."""
        key = self._key(left, right)
        if not len(self.keys):
            return left == right
        place = torch.searchsorted(self.keys, key).clamp(max=len(self.keys) - 1)
        return (self.keys[place] == key) | (left == right)

    def degrees(self) -> Tensor:
        """How many works each work is linked to, (works,)."""
        ends = torch.cat([self.keys // self.works, self.keys % self.works])
        return torch.bincount(ends, minlength=self.works)

    def _key(self, left: Tensor, right: Tensor) -> Tensor:
        return torch.minimum(left, right) * self.works + torch.maximum(left, right)
