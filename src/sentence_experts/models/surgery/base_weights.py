"""Weights of the base that a model was made from, for a route that is added later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sentence_experts.compat.sentence_transformers import transformer_of
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.architectures.families import family_of
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.layers.weight_names import base_name, is_expert
from sentence_experts.models.loading import load
from sentence_experts.models.surgery.assemble import Source


def read_base_weights(encoder: ExpertEncoder, base: Source, shared_too: bool = False) -> dict[str, Tensor]:
    """Return the weights of the base that a model was made from, by their names there.

    Args:
        encoder: the model.
        base: its base, or the name or folder of it.
        shared_too: whether the model must still have all weights of the base that its routes share, so that
            a route can give the base's vectors.

    Raises:
        InputError: the base is of another family or size.
        UsageError: the shared weights are others.
    """
    opened = load(base, device="cpu") if isinstance(base, str | Path) else base
    model = transformer_of(opened)
    routed: Any = encoder.routed_model
    weights: dict[str, Tensor] = model.state_dict()
    family = family_of(routed.config.model_type)
    if (model_type := model.config.model_type) != (wanted := family.base_model_type):
        raise InputError(f"the base is of type {model_type!r}; this model was made from a {wanted}")
    for name, value in routed.state_dict().items():
        source = base_name(family, name)
        if is_expert(name) and (source not in weights or weights[source].shape != value.shape):
            raise InputError(
                f"the base does not fit this model: its {source} has another shape than {tuple(value.shape)}"
            )
    if shared_too:
        _check_shared(routed, weights, len(opened.tokenizer))
    return weights


def _check_shared(routed: Any, weights: dict[str, Tensor], known: int) -> None:
    """Check that shared weights equal the base's; of the embeddings, the rows of its `known` tokens count."""
    tokens = routed.get_input_embeddings().weight
    for name, value in routed.named_parameters():
        # Weights of a pooler that the base's file lacks are random.
        if name not in weights or is_expert(name) or name.startswith("pooler."):
            continue
        own, theirs = (
            each[:known].cpu() if value is tokens else each.cpu() for each in (value, weights[name])
        )
        if not torch.equal(own, theirs.to(own.dtype)):
            raise UsageError(
                f"weights that all routes share are not those of the base ({name}): they were trained, or it "
                "is another base, so that no route can give its vectors; `extend` the base itself, or give "
                "`on`, an expert for the route to sit on"
            )
