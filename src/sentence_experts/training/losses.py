"""The contrastive losses on linked pairs.

A batch is two columns of texts, anchors and positives (and negatives, where they were mined). Row i of the
two columns is a linked pair; every other text of the opposite column is a negative of row i.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses import RandContext
from sentence_transformers.util import cos_sim
from torch import Tensor, nn

from sentence_experts.models.routing.sequence_router import router_logits_of
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.contrastive import ContrastiveLoss, ranking
from sentence_experts.training.known_positives import KnownPositives
from sentence_experts.training.router_losses import RouterTraining


class PairLoss(ContrastiveLoss):
    """What the losses on linked pairs share: masking of known positives, and the router's loss.

    The router's logits ride beside the vectors, so that their gradients are cached too.

    A subclass says in `contrast` what is made of the vectors.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        cache_mini_batch: int | None = None,
        known: KnownPositives | None = None,
        router: RouterTraining | None = None,
    ) -> None:
        """Set up the loss.

        Args:
            model: the encoder that is trained.
            cache_mini_batch: gradient caching with so many texts at once; None for all in one.
            known: links that are no negatives; None counts every other pair of the batch as one.
            router: how the model's learned router is trained; None for a model without.
        """
        super().__init__(model, cache_mini_batch)
        self.known = known
        self.router = router

    def contrast(self, vectors: list[Tensor], left_out: Tensor) -> Tensor:
        """The contrastive loss of a batch.

        Args:
            vectors: one a column, each (batch, dimensions): anchors, positives, negatives if any.
            left_out: (batch, batch * candidates), True where an anchor's candidate, counted through the
                columns after the first, is not to be a negative. Never True for its own positive.
        """
        raise NotImplementedError

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """The loss of a batch.

        Args:
            sentence_features: one dict a column, as the model takes them.
            labels: (batch, columns + 1): the expert of the pair's domain, then each column's work number.
        """
        columns = [dict(features) for features in sentence_features]
        if self.router is not None and self.router.by_domain:
            for features in columns:
                features["expert_ids"] = labels[:, 0]
        return super().forward(columns, labels)

    def embed_minibatch(self, *args: Any, **kwargs: Any) -> tuple[Tensor, RandContext | None]:
        """Vectors of some texts, (texts, dimensions), each followed by its router logits if there are any."""
        if self.router is None:
            return super().embed_minibatch(*args, **kwargs)
        with router_logits_of(self.model) as blocks:
            vectors, random_state = super().embed_minibatch(*args, **kwargs)
        logits = torch.stack(blocks, dim=1)
        self._logits_shape = logits.shape[1:]
        return torch.cat([vectors, logits.flatten(1)], dim=1), random_state

    def total(self, columns: list[Tensor], labels: Tensor) -> Tensor:
        """The contrastive loss, and the router's."""
        extra: Tensor | float = 0.0
        if self.router is not None:
            width = columns[0].shape[1] - self._logits_shape.numel()
            logits = torch.cat([column[:, width:].unflatten(1, self._logits_shape) for column in columns])
            extra = self.router.loss(logits, labels[:, 0].repeat(len(columns)))
            columns = [column[:, :width] for column in columns]
        return self.contrast(columns, self._left_out(labels)) + extra

    def _left_out(self, labels: Tensor) -> Tensor:
        anchors, candidates = labels[:, 1, None], labels[:, 2:].T.flatten()
        if self.known is None:
            return torch.zeros(len(anchors), len(candidates), dtype=torch.bool, device=labels.device)
        left_out: Tensor = self.known(anchors, candidates)
        return left_out.fill_diagonal_(False)


class InBatchNegatives(PairLoss):
    """Plain multiple negatives ranking: cross-entropy over cosines times a fixed scale, anchors to positives.

    The loss that sentence-transformers calls MultipleNegativesRankingLoss.
    """

    def __init__(self, model: SentenceTransformer, *, scale: float = 20.0, **shared: Any) -> None:
        """`scale` is 1 / temperature; the rest as in `PairLoss`."""
        super().__init__(model, **shared)
        self.scale = scale

    def contrast(self, vectors: list[Tensor], left_out: Tensor) -> Tensor:
        """Row i's target is column i; mined negatives are further columns."""
        anchors, *candidates = vectors
        scores = cos_sim(anchors, torch.cat(candidates)) * self.scale
        return ranking(scores, torch.arange(len(scores), device=scores.device), left_out)


class ArgmaxTarget(PairLoss):
    """The 2025 paper's variant (Hallee 2025, Training strategy): dot products, targets from within the batch.

    L~(A, B) ranks the rows of A B^T; the target of row i is argmax_j (A_j . A_i + B_j . B_i), the pair of the
    batch that is most like pair i, seen in both columns. It is i itself unless another pair has longer
    vectors in about the same direction; with vectors of length one it is always i. The loss is
    L~(A, B) + L~(B, A).

    The formula sums over the rows; this is the mean, so that neither the size of the gradient, which is
    clipped, nor the weight of a router's loss depends on the batch size.
    """

    def contrast(self, vectors: list[Tensor], left_out: Tensor) -> Tensor:
        """The sum of both directions; a row's target always takes part."""
        first, second = vectors
        # An argmax is a constant to autograd: targets have no gradient.
        targets = (first @ first.T + second @ second.T).argmax(dim=1)
        scores = first @ second.T
        return ranking(scores, targets, left_out) + ranking(scores.T, targets, left_out.T)


class LearnedTemperature(PairLoss):
    """The preprint's variant (Hallee 2024, section 3.3): dot products times a learned scale.

    The paper does not say more of the scale. Here it is exp(log_scale), as in CLIP (Radford et al. 2021), so
    it stays positive, is trained with the model's learning rate and without weight decay. The loss is the
    mean of both directions.
    """

    def __init__(self, model: SentenceTransformer, *, scale: float = 20.0, **shared: Any) -> None:
        """`scale` is where 1 / temperature begins; the rest as in `PairLoss`."""
        super().__init__(model, **shared)
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale)))

    @property
    def scale(self) -> float:
        """1 / temperature as it stands."""
        return self.log_scale.exp().item()

    def learned(self) -> dict[str, float]:
        """The temperature."""
        return {"temperature": 1 / self.scale}

    def contrast(self, vectors: list[Tensor], left_out: Tensor) -> Tensor:
        """Row i's target is column i, and column i's target is row i."""
        first, second = vectors
        scores = first @ second.T * self.log_scale.exp()
        targets = torch.arange(len(scores), device=scores.device)
        return (ranking(scores, targets, left_out) + ranking(scores.T, targets, left_out.T)) / 2


LOSSES: dict[str, type[PairLoss]] = {
    "in_batch_negatives": InBatchNegatives,
    "argmax_target": ArgmaxTarget,
    "learned_temperature": LearnedTemperature,
}


def make_loss(
    model: SentenceTransformer,
    config: TrainConfig,
    known: KnownPositives | None,
    router: RouterTraining | None,
) -> PairLoss:
    """The loss that the config names."""
    own = {} if config.loss == "argmax_target" else {"scale": config.scale}
    return LOSSES[config.loss](
        model, **own, cache_mini_batch=config.cache_mini_batch, known=known, router=router
    )
