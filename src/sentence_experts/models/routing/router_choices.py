"""Which experts learned routers choose for given texts, and how surely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device

from sentence_experts.compat.sentence_transformers import config_of
from sentence_experts.errors import UsageError
from sentence_experts.models.routing.router_kinds import router_kind_of
from sentence_experts.models.routing.sequence_router import router_logits_of


@dataclass(frozen=True)
class RouterChoices:
    """The routers' logits for some texts, and the experts that follow from them.

    Attributes:
        experts: the experts' names.
        blocks: the numbers of the blocks that hold experts.
        logits: (texts, blocks, experts), float32.
    """

    experts: tuple[str, ...]
    blocks: tuple[int, ...]
    logits: NDArray[np.float32]

    @property
    def chosen(self) -> NDArray[np.int64]:
        """The index of the expert that each block sends each text to, (texts, blocks)."""
        indices: NDArray[np.int64] = self.logits.argmax(axis=2)
        return indices

    @property
    def probabilities(self) -> NDArray[np.float32]:
        """The softmax of the logits, (texts, blocks, experts)."""
        from scipy.special import softmax

        shares: NDArray[np.float32] = softmax(self.logits, axis=2)
        return shares

    @property
    def names(self) -> list[tuple[str, ...]]:
        """For each text the name of its expert in each block."""
        return [tuple(self.experts[number] for number in row) for row in self.chosen]

    @property
    def overall(self) -> list[str]:
        """For each text the expert with the highest probability, on the mean over the blocks."""
        return [self.experts[number] for number in self.probabilities.mean(axis=1).argmax(axis=1)]


@torch.inference_mode()
def router_choices(
    encoder: SentenceTransformer, texts: Sequence[str], prompt: str = "", batch_size: int = 32
) -> RouterChoices:
    """Return what the model's routers choose for the texts, in their order, with `prompt` in front of each.

    No choice depends on `batch_size`, the number of texts per batch.

    Raises:
        UsageError: the model has no routers that read whole texts.
        RouteError: the model has routes and a text begins with none.
    """
    kind = router_kind_of(encoder)
    if kind is None or not kind.reads_texts:
        raise UsageError(
            "only learned routers (`router='learned'`) choose an expert per text and block; here the text's "
            "route chooses, or each token chooses its own"
        )
    config = config_of(encoder)
    encoder.eval()
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))  # texts of like length meet
    shape = (len(texts), len(config.expert_layers), len(config.experts))
    logits = np.zeros(shape, dtype=np.float32)
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        features = encoder.preprocess([texts[row] for row in rows], prompt=prompt)
        with router_logits_of(encoder) as blocks:
            encoder[0](batch_to_device(features, encoder.device))
        logits[rows] = torch.stack(blocks, dim=1).cpu().numpy()
    return RouterChoices(tuple(config.experts), tuple(config.expert_layers), logits)
