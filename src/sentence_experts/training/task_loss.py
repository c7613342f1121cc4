"""InfoNCE at the temperature of the batch's task (Romero 2025, sections 2.1 and 3.2).

A batch's anchors and positives meet the experts of their instructions, so the two sides of a retrieval batch
go through different ones (query and document).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses import RandContext
from sentence_transformers.util import cos_sim
from sentence_transformers.util.distributed import all_gather, all_gather_with_grad, get_rank, get_world_size
from torch import Tensor

from sentence_experts.models.routing.token_router import token_balance_loss, token_loads_of
from sentence_experts.training.contrastive import ContrastiveLoss, ranking


class TaskLoss(ContrastiveLoss):
    """-log of a positive's share among all candidates: cosines over the temperature of the anchor's task.

    Candidates are the positives and mined negatives of the whole batch, those of the other processes
    included. Texts of the anchor's group (of its label, say) are left out, but for its own positive: in the
    paper's formula they would be negatives.

    Each process has the loss of its own anchors. Their mean over the processes is the loss of the whole
    batch, and the mean of the gradients, which DistributedDataParallel takes, is that loss's gradient.
    """

    temperatures: Tensor

    def __init__(
        self,
        model: SentenceTransformer,
        temperatures: Sequence[float],
        *,
        cache_mini_batch: int | None = None,
        balance: float | None = None,
    ) -> None:
        """Args:
        model: the encoder that is trained.
        temperatures: one a task, by its number in the labels.
        cache_mini_batch: gradient caching with so many texts at once; None for all in one.
        balance: weight of the load balancing of the model's token routers; None for a model without.
        """
        super().__init__(model, cache_mini_batch)
        self.register_buffer("temperatures", torch.tensor(temperatures), persistent=False)
        self.balance = balance

    def embed_minibatch(self, *args: Any, **kwargs: Any) -> tuple[Tensor, RandContext | None]:
        """Vectors of some texts, (texts, dimensions), each followed by its loads where tokens choose experts.

        Beside the vectors the loads go through gradient caching, and from process to process.
        """
        if self.balance is None:
            return super().embed_minibatch(*args, **kwargs)
        with token_loads_of(self.model) as blocks:
            vectors, random_state = super().embed_minibatch(*args, **kwargs)
        loads = torch.stack(blocks, dim=1)  # (texts, blocks, 2, experts)
        self._loads_shape = loads.shape[1:]
        return torch.cat([vectors, loads.flatten(1)], dim=1), random_state

    def total(self, columns: list[Tensor], labels: Tensor) -> Tensor:
        """The loss of this process's anchors, and the balance of all processes' texts.

        Args:
            columns: (batch, dimensions) each: anchors, positives, mined negatives if any; with their loads.
            labels: (batch, 2 + columns): task, dataset, then the group of each column's text.
        """
        if self.balance is None:
            return self.contrast(columns, labels)
        width = columns[0].shape[1] - self._loads_shape.numel()
        loads = torch.cat([column[:, width:] for column in columns])
        if get_world_size() > 1:
            loads = all_gather_with_grad(loads)
        balance = token_balance_loss(loads.unflatten(1, self._loads_shape))
        return self.contrast([column[:, :width] for column in columns], labels) + self.balance * balance

    def contrast(self, columns: list[Tensor], labels: Tensor) -> Tensor:
        """InfoNCE of this process's anchors; shapes as of `total`, without the loads."""
        anchors, *candidates = columns
        temperatures = self.temperatures[labels[:, 0]]
        groups = labels[:, 2, None]
        own = torch.arange(len(anchors), device=anchors.device)
        if get_world_size() > 1:
            candidates = [all_gather_with_grad(column.contiguous()) for column in candidates]
            labels = all_gather(labels)
            own = own + get_rank() * len(anchors)
        scores = cos_sim(anchors, torch.cat(candidates)) / temperatures[:, None]
        return ranking(scores, own, groups == labels[:, 3:].T.flatten())
