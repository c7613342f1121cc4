"""The pooling of token vectors into the vector of a text: its name, its replacement, and length 1.

And the other settings that decide a vector.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sentence_experts.errors import InputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)

M = TypeVar("M", bound="SentenceTransformer")
BEFORE_HEADS = "pooled, before heads"  # name that tells vectors of `make_pooled_model` from others
# Our name -> the name in sentence-transformers' Pooling.
POOLINGS = {"mean": "mean", "last": "lasttoken", "cls": "cls"}


def pooling_of(model: SentenceTransformer) -> str | None:
    """Return the model's pooling (of `POOLINGS`, else sentence-transformers' name); None if it has none."""
    if hasattr(model, "route_fingerprint"):  # a graph, which knows its name
        of_graph: Any = model
        return str(of_graph.pooling)
    for module in model:
        mode = getattr(module, "pooling_mode", None)
        if isinstance(mode, str):
            return {theirs: ours for ours, theirs in POOLINGS.items()}.get(mode, mode)
        if mode is not None:
            return "+".join(mode)
    return None


def settings_of(model: Any) -> dict[str, Any]:
    """Return the settings of a model that decide its vectors, beside what `fingerprint_of` covers."""
    return {
        "pooling": pooling_of(model),
        "max_length": model.max_seq_length,
        "number_type": str(model.dtype),
        "truncate_dim": getattr(model, "truncate_dim", None),
        "default_prompt_name": getattr(model, "default_prompt_name", None),
    }


def warn_of_length(asked: int | None, longest: int | None) -> None:
    """Warn of a maximum length above the model's, which stays as it is."""
    if asked is not None and longest is not None and asked > longest:
        logger.warning(f"`max_length={asked}`: the model reads {longest} tokens of a text at most")


def set_pooling(model: SentenceTransformer, pooling: str) -> None:
    """Replace the model's pooling, in place.

    Args:
        model: model with a pooling of tokens.
        pooling: kind of pooling: "mean", "last" (the last token) or "cls" (the first).
    """
    from sentence_transformers.sentence_transformer.modules import Pooling

    for name, module in model.named_children():
        if isinstance(module, Pooling):
            replacement = Pooling(module.embedding_dimension, POOLINGS[pooling], module.include_prompt)
            model.add_module(name, replacement)
            return
    raise InputError("this model has no pooling of tokens that another could replace")


def make_pooled_model(model: M) -> M:
    """Return a model of the same weights that ends with the pooling, and uses no heads of routes.

    Its vectors are those that the head of a route maps (`with_heads`).
    """
    from sentence_experts.compat.sentence_transformers import share_all_but_transformer, transformer_of
    from sentence_experts.compat.torch import share_weights
    from sentence_experts.models.sources import origin_of

    transformer = transformer_of(model)
    if hasattr(transformer, "uses_heads"):
        transformer = share_weights(transformer)
        transformer.uses_heads = False
    pooled = share_all_but_transformer(model, transformer)
    del pooled[place_of_pooling(model) + 1 :]
    vars(pooled)["fingerprint_parts"] = (BEFORE_HEADS,)
    if (origin := origin_of(model)) is not None:
        replace(origin, arithmetic=BEFORE_HEADS).set(pooled)
    return pooled


def place_of_pooling(model: SentenceTransformer) -> int:
    """Return the place of the pooling among a model's modules; an InputError if it has none, or several."""
    places = [place for place, module in enumerate(model) if hasattr(module, "pooling_mode")]
    if len(places) != 1:
        raise InputError(f"the model has {len(places)} poolings of tokens, not one")
    return places[0]


def scales_after_pooling(model: SentenceTransformer) -> bool:
    """Return whether nothing comes after the pooling (and heads) but a scaling to length 1."""
    from sentence_transformers.sentence_transformer.modules import Dropout, Normalize

    after = list(model)[place_of_pooling(model) + 1 :]
    return all(isinstance(each, Normalize | Dropout) for each in after)  # a dropout is for training


def unit(rows: NDArray[Any]) -> NDArray[Any]:
    """Scale rows to length 1; rows of zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: NDArray[Any] = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return scaled
