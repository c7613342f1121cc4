"""The pooling and the head, which turn tokens into one vector, as ordinary sentence-transformers modules.

The 2025 paper takes the mean over the tokens. The preprint takes the pooler output (section 3.3): the first
token's state, which is the domain token's, through a linear layer and tanh. The released checkpoints put a
head on the mean: a layer norm and two linear layers with a tanh between them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense
from sentence_transformers.sentence_transformer.modules import LayerNorm, Normalize, Pooling
from torch import nn

from sentence_experts.compat.sentence_transformers import transformer_of
from sentence_experts.errors import InputError
from sentence_experts.models.pooling import place_of_pooling

logger = logging.getLogger(__name__)

# `pooling` -> the pooling of the tokens before the modules that follow.
POOLINGS = {"mean": "mean", "cls": "cls", "pooler": "cls"}
# Poolings whose weights of tokens add up to 1: a linear map with a bias may come before or after.
LINEAR = ("mean", "cls", "lasttoken", "weightedmean")


def put_head(encoder: SentenceTransformer, pooling: str | None, head: str | None, seed: int) -> None:
    """Change the encoder's pooling and put a head on it, in place (`ExtendConfig`); None changes nothing.

    A `Normalize` at the end stays there. The pooler has the weights of the base's pooler, if it was trained.
    """
    if pooling is not None:
        place = next((place for place, module in enumerate(encoder) if isinstance(module, Pooling)), None)
        if place is None:
            raise InputError("the base has no pooling that could be changed")
        old: Any = encoder[place]
        width = old.embedding_dimension
        weights_after = [weight for module in list(encoder)[place + 1 :] for weight in module.parameters()]
        if weights_after and old.pooling_output_dimension != width:
            raise InputError(
                f"pooling {pooling!r}: the base's own modules need vectors of its pooling's size"
            )
        encoder[place] = Pooling(width, POOLINGS[pooling], include_prompt=old.include_prompt)
        if pooling == "pooler":
            encoder.insert(place + 1, _make_pooler(encoder, width, seed).to(encoder.device, encoder.dtype))
    if head is not None:
        width = int(encoder.get_embedding_dimension() or 0)
        place = len(encoder) - isinstance(encoder[-1], Normalize)
        with _seed_random_state(seed):  # as the released checkpoints' head, whose last layer is linear
            tanh, identity = (
                Dense(width, width, activation_function=activation()) for activation in (nn.Tanh, nn.Identity)
            )
        for module in (identity, tanh, LayerNorm(width)):
            encoder.insert(place, module.to(encoder.device, encoder.dtype))
        logger.warning(
            f"the head starts with random weights (seed {seed}): train it before using its vectors"
        )


def check_linear_pooling(encoder: SentenceTransformer) -> None:
    """Refuse heads of routes behind a pooling that does not commute with a linear map."""
    modes = [module.pooling_mode for module in encoder if isinstance(module, Pooling)]
    if len(modes) != 1 or modes[0] not in LINEAR:
        known, got = ", ".join(LINEAR), ", ".join(map(str, modes)) or "none"
        raise InputError(f"heads of routes need one pooling of {known}; this model's is {got}")
    between = [type(each).__name__ for each in list(encoder)[1 : place_of_pooling(encoder)]]
    if any(name != "Dropout" for name in between):
        raise InputError(
            f"heads of routes map pooled vectors of the transformer, and this model has {', '.join(between)} "
            "before its pooling"
        )


def put_normalize(encoder: SentenceTransformer, normalize: bool | None) -> None:
    """Make vectors of length 1 or leave their length, in place; None keeps the base's choice.

    Cosines do not see the difference. Losses on dot products do: both papers train on vectors of any length,
    and between vectors of length 1 no dot product can tell much.
    """
    normalizes = isinstance(encoder[-1], Normalize)
    if normalize is True and not normalizes:
        encoder.append(Normalize())
    if normalize is False and normalizes:
        encoder.pop(-1)


def describe_modules(encoder: SentenceTransformer) -> str:
    """Describe the modules from tokens to a vector: "cls pooling, Dense (Tanh), Normalize"."""
    steps = []
    for module in list(encoder)[1:]:
        if isinstance(module, Pooling):
            modes = module.pooling_mode
            steps.append(f"{modes if isinstance(modes, str) else ' and '.join(modes)} pooling")
        elif isinstance(module, Dense):
            steps.append(f"Dense ({type(module.activation_function).__name__})")
        else:
            steps.append(type(module).__name__)
    return ", ".join(steps)


def _make_pooler(encoder: SentenceTransformer, width: int, seed: int) -> Dense:
    """Return the linear layer and tanh on the first token."""
    base_pooler: Any = getattr(transformer_of(encoder), "pooler", None)
    with _seed_random_state(seed):
        pooler = Dense(width, width, activation_function=nn.Tanh())
    # A pooler's bias begins as zeros; transformers makes one where a checkpoint lacks it.
    if base_pooler is not None and bool(base_pooler.dense.bias.any()):
        pooler.linear.load_state_dict(base_pooler.dense.state_dict())
    else:
        logger.warning(
            "the base has no trained pooler (none, or its bias is still zero): it starts with random weights "
            f"(seed {seed})"
        )
    return pooler


@contextmanager
def _seed_random_state(seed: int) -> Iterator[None]:
    """Draw random weights from the seed alone; the global random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
