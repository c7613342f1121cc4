"""Train head routes: a linear map per route on the vectors of a frozen encoder.

The loss is that of in-batch negatives (InfoNCE) on pairs of texts that share a label; texts of a batch that
share a label with the anchor, or come from its group, are left out of its negatives. A map begins as the
identity less the mean of the texts. The learning rate and the step, or no training at all, are chosen by the
validation texts of the route.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from sentence_experts.evaluation.label_similarity import more_like_this
from sentence_experts.pairs.labels import Labels, Rows

Vectors = NDArray[np.float32]

RATES = (1e-3, 3e-3)
TEMPERATURE = 0.1
BATCH = 64
MEASURED_EVERY = 50  # steps


@dataclass(frozen=True)
class Head:
    """A linear map with a bias: the vector of a route is `weight @ vector + bias`, scaled to length 1.

    Attributes:
        weight: (dimensions, dimensions).
        bias: (dimensions,).
        rate: the learning rate that was chosen; None if no training was better than none.
        steps: number of steps that were kept.
        validation: nDCG@10 on the validation texts before training and of what was kept.
    """

    weight: Vectors
    bias: Vectors
    rate: float | None = None
    steps: int = 0
    validation: tuple[float, float] = (float("nan"), float("nan"))

    def apply(self, vectors: Vectors) -> Vectors:
        """Return the route's vectors, (texts, dimensions), of length 1, of the base's."""
        return unit(vectors @ self.weight.T + self.bias)


def unit(vectors: Vectors) -> Vectors:
    """Scale vectors to length 1."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return scaled


@dataclass(frozen=True)
class LabelledVectors:
    """Texts of one set: vectors before scaling, (texts, dimensions), labels of one route, and groups."""

    vectors: Vectors
    labels: Labels
    groups: Rows

    def ndcg(self, head: Head) -> float:
        """Return the mean nDCG@10 of "more like this"; NaN if no text has another one like it."""
        found = more_like_this(head.apply(self.vectors), self.labels, self.groups)
        return float(found.ndcg.mean()) if len(found.queries) else float("nan")


def train_head(
    training: LabelledVectors,
    validation: LabelledVectors | None,
    steps: int = 500,
    rank: int | None = None,
    seed: int = 0,
    advance: Callable[[int], None] = lambda steps: None,
) -> Head:
    """Train the map of one route.

    Args:
        training: the texts to learn from.
        validation: texts that choose the learning rate and the step; None keeps the last step at the first
            rate.
        steps: maximum number of steps, of 64 pairs each.
        rank: rank of the map's difference from the identity; None for any.
        seed: random seed.
        advance: called with numbers of steps as they are done.
    """
    start = Head(np.eye(training.vectors.shape[1], dtype=np.float32), -training.vectors.mean(axis=0))
    before = float("nan") if validation is None else validation.ndcg(start)
    best = Head(start.weight, start.bias, validation=(before, before))
    for rate in RATES if np.isfinite(before) else RATES[:1]:
        run = _HeadRun(training, start, rate, steps, rank, seed)
        for step in range(1, steps + 1):
            run.step(step)
            if step % MEASURED_EVERY and step != steps:
                continue
            advance(MEASURED_EVERY if step % MEASURED_EVERY == 0 else step % MEASURED_EVERY)
            head = Head(*run.weights(), rate, step)
            if validation is None or not np.isfinite(before):
                if step == steps:
                    return head
            elif (figure := validation.ndcg(head)) > best.validation[1]:
                best = Head(head.weight, head.bias, rate, step, (before, figure))
    return best


class _HeadRun:
    """One training of a map at one learning rate, which falls linearly to zero."""

    def __init__(
        self, training: LabelledVectors, start: Head, rate: float, steps: int, rank: int | None, seed: int
    ) -> None:
        self.training, self.rng, self.steps = training, np.random.default_rng(seed), steps
        self.vectors = torch.from_numpy(np.ascontiguousarray(training.vectors))
        self.identity = torch.from_numpy(start.weight)
        self.bias = torch.tensor(start.bias, requires_grad=True)
        width = len(start.bias)
        if rank is None:
            self.factors = [torch.zeros(width, width, requires_grad=True)]
        else:
            random = self.rng.normal(0, width**-0.5, (rank, width)).astype(np.float32)
            self.factors = [
                torch.zeros(width, rank, requires_grad=True),
                torch.tensor(random, requires_grad=True),
            ]
        self.optimizer = torch.optim.AdamW([self.bias, *self.factors], lr=rate, weight_decay=0.0)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1 - step / steps)

    def _weight(self) -> Tensor:
        change = self.factors[0] if len(self.factors) == 1 else self.factors[0] @ self.factors[1]
        return self.identity + change

    def weights(self) -> tuple[Vectors, Vectors]:
        with torch.no_grad():
            return self._weight().numpy().copy(), self.bias.numpy().copy()

    def step(self, step: int) -> None:
        labels, groups = self.training.labels, self.training.groups
        first, second = labels.draw_pairs(BATCH, self.rng, groups)
        if len(first) < 2:
            return
        known = labels.sharing(first, second) | (groups[first][:, None] == groups[second])
        np.fill_diagonal(known, False)
        weight = self._weight()
        anchors, positives = (
            normalize(self.vectors[rows] @ weight.T + self.bias, dim=1) for rows in (first, second)
        )
        scores = (anchors @ positives.T / TEMPERATURE).masked_fill(torch.from_numpy(known), -torch.inf)
        loss = cross_entropy(scores, torch.arange(len(first)))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
