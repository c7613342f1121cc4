"""Train head routes: a linear map per route on the vectors of a frozen encoder.

The loss takes in-batch negatives (InfoNCE) on pairs of texts that share a label; texts of a batch that
share a label with the anchor, or come from its group, are left out of its negatives. A map begins as the
identity less the mean of the texts. The learning rate and the step, or no training at all, are chosen by the
validation texts of the route.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy, normalize

from sentence_experts.evaluation.label_similarity import more_like_this
from sentence_experts.models.pooling import unit
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
        weight: weights, (dimensions, dimensions).
        bias: bias, (dimensions,).
        rate: learning rate that was chosen; None if no training was better than none.
        steps: number of steps that were kept.
    """

    weight: Vectors
    bias: Vectors
    rate: float | None = None
    steps: int = 0


@dataclass(frozen=True)
class LabelledVectors:
    """Texts of one set: vectors before scaling, (texts, dimensions), labels of one route, and groups."""

    vectors: Vectors
    labels: Labels
    groups: Rows

    def ndcg(self, head: Head) -> float:
        """Return the mean nDCG@10 of "more like this"; NaN if no text has another one like it."""
        vectors = unit(self.vectors @ head.weight.T + head.bias)
        found = more_like_this(vectors, self.labels, self.groups)
        return float(found.ndcg.mean()) if len(found.queries) else float("nan")


def train_head(
    training: LabelledVectors,
    validation: LabelledVectors,
    steps: int = 500,
    rank: int | None = None,
    seed: int = 0,
    advance: Callable[[int], None] = lambda steps: None,
    rates: Sequence[float] = RATES,
) -> Head:
    """Train the map of one route.

    Args:
        training: the texts to learn from.
        validation: texts that choose the learning rate and the step; if none of them has another one like it,
            the last step at the first rate is kept.
        steps: maximum number of steps, of 64 pairs each.
        rank: rank of the map's difference from the identity; None for any.
        seed: random seed.
        advance: function that is called with numbers of steps as they are done.
        rates: learning rates to choose from.
    """
    best = Head(np.eye(training.vectors.shape[1], dtype=np.float32), -training.vectors.mean(axis=0))
    start, highest = best, validation.ndcg(best)
    chooses = bool(np.isfinite(highest))
    for rate in rates if chooses else rates[:1]:
        done = 0
        for head in _train(training, start, rate, steps, rank, seed):
            advance(head.steps - done)
            done = head.steps
            figure = validation.ndcg(head)
            if not chooses or figure > highest:
                best, highest = head, figure
    return best


def _train(
    training: LabelledVectors, start: Head, rate: float, steps: int, rank: int | None, seed: int
) -> Iterator[Head]:
    """Train a map at a learning rate that falls linearly to zero; yield it after some of the steps."""
    rng, width = np.random.default_rng(seed), len(start.bias)
    vectors = torch.from_numpy(np.ascontiguousarray(training.vectors))
    identity, bias = torch.from_numpy(start.weight), torch.tensor(start.bias, requires_grad=True)
    factors = [torch.zeros(width, rank or width, requires_grad=True)]
    if rank is not None:
        random = rng.normal(0, width**-0.5, (rank, width)).astype(np.float32)
        factors.append(torch.tensor(random, requires_grad=True))
    optimizer = torch.optim.AdamW([bias, *factors], lr=rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for step in range(1, steps + 1):
        first, second = training.labels.draw_pairs(BATCH, rng, training.groups)
        if len(first) > 1:
            known = training.labels.sharing(first, second)
            known |= training.groups[first][:, None] == training.groups[second]
            np.fill_diagonal(known, False)
            weight = identity + (factors[0] if rank is None else factors[0] @ factors[1])
            anchors, positives = (
                normalize(vectors[rows] @ weight.T + bias, dim=1) for rows in (first, second)
            )
            scores = (anchors @ positives.T / TEMPERATURE).masked_fill(torch.from_numpy(known), -torch.inf)
            optimizer.zero_grad()
            cross_entropy(scores, torch.arange(len(first))).backward()
            optimizer.step()
            schedule.step()
        if step % MEASURED_EVERY == 0 or step == steps:
            with torch.no_grad():
                weight = identity + (factors[0] if rank is None else factors[0] @ factors[1])
            yield Head(weight.numpy().copy(), bias.detach().numpy().copy(), rate, step)
