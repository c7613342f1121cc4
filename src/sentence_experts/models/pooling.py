"""How token vectors become the vector of a text: the name of a model's pooling, its replacement, length 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.errors import InputError, UsageError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# Our names -> those of sentence-transformers' Pooling.
POOLINGS = {"mean": "mean", "last": "lasttoken", "cls": "cls"}


def pooling_of(model: SentenceTransformer) -> str | None:
    """Return the model's pooling (of `POOLINGS`, else sentence-transformers' name); None if it has none."""
    for module in model:
        mode = getattr(module, "pooling_mode", None)
        if isinstance(mode, str):
            return {theirs: ours for ours, theirs in POOLINGS.items()}.get(mode, mode)
        if mode is not None:
            return "+".join(mode)
    return None


def set_pooling(model: SentenceTransformer, pooling: str) -> None:
    """Replace the model's pooling, in place.

    Args:
        model: a model with a pooling of tokens.
        pooling: "mean", "last" (the last token) or "cls" (the first).
    """
    from sentence_transformers.sentence_transformer.modules import Pooling

    if pooling not in POOLINGS:
        raise UsageError(f"unknown `pooling` {pooling!r}: choose {', '.join(POOLINGS)}")
    for name, module in model.named_children():
        if isinstance(module, Pooling):
            replacement = Pooling(module.embedding_dimension, POOLINGS[pooling], module.include_prompt)
            model.add_module(name, replacement)
            return
    raise InputError("this model has no pooling of tokens that another could replace")


def unit(rows: NDArray[Any]) -> NDArray[Any]:
    """Scale rows to length 1; rows of zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: NDArray[Any] = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return scaled
