"""What training can minimise: one row per value of `TrainConfig.loss`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LossKind:
    """A variant of the contrastive loss.

    Attributes:
        name: the value of `TrainConfig.loss`.
        description: for a model card, with `{temperature}`.
        symmetric: the mean or sum of both directions of pairs, by dot products; otherwise cosines of anchors
            to positives and mined negatives.
        has_temperature: scores are divided by a temperature.
        learns_temperature: that temperature is learned, one for all routes.
    """

    name: str
    description: str
    symmetric: bool = True
    has_temperature: bool = True
    learns_temperature: bool = False


IN_BATCH_NEGATIVES = LossKind(
    "in_batch_negatives", "in-batch negatives over cosines divided by the temperature", symmetric=False
)
ARGMAX_TARGET = LossKind(
    "argmax_target",
    "dot products of the batch; the target of each row is its most similar pair",
    has_temperature=False,
)
LEARNED_TEMPERATURE = LossKind(
    "learned_temperature",
    "dot products over a learned temperature ({temperature:.4g} at the end), in both directions",
    learns_temperature=True,
)
LOSS_KINDS = {kind.name: kind for kind in (IN_BATCH_NEGATIVES, ARGMAX_TARGET, LEARNED_TEMPERATURE)}
