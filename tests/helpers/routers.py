"""Routers whose choices are far apart, so that rounding decides none."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from helpers.features import features_of
from sentence_experts.models.routes.sequence_router import SequenceRouter, sequence_states
from sentence_experts.models.routes.token_router import TokenRouter

NAMES = ["copd", "cvd", "skin cancer"]
PLAIN = [
    "the heart pumps blood",
    "lungs",
    "skin cancer grows slowly in the light of the lungs",
    "",
    "wheat rice maize barley",
    "air flow",
    "seeds soil (water) figures 1, 2",
]


def spread_routers(encoder: SentenceTransformer, texts: list[str]) -> SentenceTransformer:
    """Give every block a router whose logits are clearly apart and that uses all experts on these texts.

    Its rows separate the texts' own states, block by block, since each block's choice changes the next state.
    """
    model: Any = encoder[0].auto_model
    features = features_of(encoder, texts)
    routers = [module for module in model.modules() if isinstance(module, SequenceRouter)]
    for block, router in enumerate(routers):
        states: list[Tensor] = []
        handle = router.register_forward_pre_hook(
            lambda _, given, states=states: states.append(sequence_states(*given))
        )
        model(**features)
        handle.remove()
        (means,) = states
        wanted = (torch.arange(len(texts)) + block) % router.out_features
        targets = 4 * nn.functional.one_hot(wanted, router.out_features).float()
        with torch.no_grad():
            router.weight.copy_(torch.linalg.lstsq(means, targets).solution.T)
    return encoder


def sharpened(encoder: SentenceTransformer) -> SentenceTransformer:
    """Make routers of tokens sure of their choice."""
    with torch.no_grad():
        for router in encoder.modules():
            if isinstance(router, TokenRouter):
                router.weight.mul_(15)
    return encoder
