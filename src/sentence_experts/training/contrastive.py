"""What all contrastive losses share: embedding a batch, in one go or with gradient caching.

Gradient caching (Gao et al. 2021) embeds a batch in small parts and gives the same loss and gradients,
dropout included.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses import CachedLossMixin
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


class ContrastiveLoss(CachedLossMixin, nn.Module):
    """A loss over the vectors of a batch, which a subclass says in `total`."""

    def __init__(self, model: SentenceTransformer, cache_mini_batch: int | None = None) -> None:
        """Args:
        model: the encoder that is trained.
        cache_mini_batch: gradient caching with so many texts at once; None for all in one.
        """
        super().__init__()
        self.model = model
        self.cached = cache_mini_batch is not None
        # Without caching the whole batch is one part.
        self.mini_batch_size = cache_mini_batch or torch.iinfo(torch.int64).max

    def total(self, columns: list[Tensor], labels: Tensor) -> Tensor:
        """The loss of a batch.

        Args:
            columns: what `embed_minibatch` gave, one a column of texts, each (batch, width), float32.
            labels: (batch, ...) integers.
        """
        raise NotImplementedError

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """The loss of a batch.

        Args:
            sentence_features: one dict a column, as the model takes them.
            labels: as `total`.
        """
        columns = [dict(features) for features in sentence_features]
        together = self._together(columns) if isinstance(self.model, DistributedDataParallel) else None
        if together is not None and not self.cached:
            (vectors,) = self.embed_minibatch_iter(together, True, False)
            return self.calculate_loss([[part] for part in vectors[0].chunk(len(columns))], labels)
        if self.cached or isinstance(self.model, DistributedDataParallel):
            return self.forward_cached(columns, labels)
        parts = [list(self.embed_minibatch_iter(features, True, False)) for features in columns]
        return self.calculate_loss([[vectors for vectors, _ in column] for column in parts], labels)

    def learned(self) -> dict[str, float]:
        """What the loss itself has learned, for run.json."""
        return {}

    def _together(self, columns: list[dict[str, Tensor]]) -> dict[str, Any] | None:
        """All columns as one batch, or None where they differ in more than their length.

        Several forward passes before one backward pass are not for DistributedDataParallel: it would take
        the experts that the last one leaves out for unused, though another column was routed to them.
        """
        merged: dict[str, Any] | None = merge_feature_batches(columns)
        return merged

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """The loss from what `embed_minibatch` gave: one list of parts a column."""
        assert labels is not None
        columns = [torch.cat(parts) for parts in reps]
        with torch.autocast(columns[0].device.type, enabled=False):
            # Dot products of long vectors would lose a unit or more in bfloat16.
            loss = self.total([column.float() for column in columns], labels)
        if with_backward:
            loss.backward()
            loss = loss.detach()
        return loss


def ranking(scores: Tensor, targets: Tensor, left_out: Tensor) -> Tensor:
    """Mean cross-entropy of each row of scores to its target, (rows,), without the columns left out."""
    columns = torch.arange(scores.shape[1], device=scores.device)
    left_out = left_out & (columns != targets[:, None])
    return cross_entropy(scores.masked_fill(left_out, -torch.inf), targets)
