"""Low-rank matrices (LoRA) on the attention of every block, beside the experts, while a model is trained.

Hallee 2025 (Discussion) offers them so that attention, which all routes share, can adapt too. A projection
computes (W + B A) x: W stays as it is, A is (rank, in) and starts at random, B is (out, rank) and starts at
zero. The sum takes the place of W at the end. The names of the projections stand in `families.FAMILIES`.

The config of a checkpoint says that the matrices are there, and `load` puts them in again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization, remove_parametrizations

from sentence_experts.compat.sentence_transformers import transformer_of
from sentence_experts.errors import UsageError
from sentence_experts.models.architectures.families import MODEL_TYPES, family_of
from sentence_experts.models.layers.adapters import LowRank


class AddedLowRank(LowRank):
    """A weight to which a product of two matrices is added."""

    def forward(self, weight: Tensor) -> Tensor:
        """Return the sum, (out, in)."""
        return weight + self.product()


def insert_lora(model: Any, rank: int) -> None:
    """Give the attention of a transformer with experts new matrices, and freeze its weights."""
    for layer in _find_projections(model):
        layer.requires_grad_(False)
        added = AddedLowRank(rank, layer.in_features, layer.out_features).to(layer.weight)
        nn.init.uniform_(added.down, -(layer.in_features**-0.5), layer.in_features**-0.5)  # as peft begins
        register_parametrization(layer, "weight", added)


def add_lora(encoder: SentenceTransformer, rank: int) -> None:
    """Put low-rank matrices beside the attention of every block, in place; the vectors do not change yet.

    The adapted projections are frozen; everything else is trained or frozen as before. `encoder` is a model
    that `extend` made, `rank` the inner width.
    """
    model = transformer_of(encoder)
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    if model_type not in MODEL_TYPES:
        raise UsageError(
            f"LoRA can be added to a model that `extend` made, not to a model of type {model_type!r}; "
            "`extend` with `layers='none'` prepares a dense one"
        )
    if model.config.lora_rank is not None:
        raise UsageError("the model is a checkpoint of a run with `lora_rank`: give the model of the run")
    insert_lora(model, rank)
    model.config.lora_rank = rank


@torch.no_grad()
def merge_lora(encoder: SentenceTransformer) -> None:
    """Add the matrices to the weights that they adapt, in place: a plain model again, all of it trainable."""
    model: Any = transformer_of(encoder)
    for layer in _find_projections(model):
        remove_parametrizations(layer, "weight", leave_parametrized=True)
        layer.requires_grad_(True)
    model.config.lora_rank = None


@contextmanager
def remove_unmerged_lora(encoder: SentenceTransformer) -> Iterator[None]:
    """Take out matrices that the block has put in but not merged, as where training was interrupted."""
    model: Any = transformer_of(encoder)
    config = getattr(model, "config", None)
    had_rank = getattr(config, "lora_rank", None) is not None
    before = [(weight, weight.requires_grad) for weight in encoder.parameters()]
    try:
        yield
    finally:
        if not had_rank and getattr(config, "lora_rank", None) is not None:
            for layer in _find_projections(model):
                remove_parametrizations(layer, "weight", leave_parametrized=False)
            model.config.lora_rank = None
            for weight, was_trained in before:
                weight.requires_grad_(was_trained)


def _find_projections(model: Any) -> Iterator[nn.Linear]:
    family = family_of(model.config.model_type)
    for block in model.get_submodule(family.blocks):
        yield from (block.get_submodule(path) for path in family.attention)
