"""Low-rank adapters (LoRA) on the attention of every block, beside the experts, by peft.

Hallee 2025 (Discussion) offers them so that attention, which all routes share, can adapt too. An adapted
projection computes W x + (alpha / rank) B A x: W stays as it is, A is (rank, in) and starts at random, B is
(out, rank) and starts at zero. The names of the projections in each family stand in `families.FAMILIES`.

A model with an adapter is saved as any other: its config says so, and `load` puts the adapter in again, with
all weights trainable; `add_lora` freezes the projections that it adapts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_experts.compat.peft import PEFT_PREFIX, forget_adapters, lora_layers
from sentence_experts.compat.sentence_transformers import transformer_of
from sentence_experts.errors import UsageError, require
from sentence_experts.models.architectures.families import MODEL_TYPES, family_of
from sentence_experts.storage import replacing_folder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

ADAPTER = "default"  # peft's default name of an adapter
WEIGHTS_FILE = "adapter_model.safetensors"


def insert_adapter(model: Any, settings: Mapping[str, Any]) -> None:
    """Give a transformer with experts a new adapter, as `config.lora` describes it."""
    peft = require("peft.functional", "lora")
    trained = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    peft.inject_adapter_in_model(_peft_config(model, settings), model, ADAPTER)
    adapted = lora_layers(model).values()
    frozen = {id(parameter) for layer in adapted for parameter in layer.get_base_layer().parameters()}
    for parameter in model.parameters():
        if id(parameter) in trained - frozen:  # peft froze everything but the adapter
            parameter.requires_grad_(True)
    model.train(model.training)  # this reaches the new layers, too


def add_lora(encoder: SentenceTransformer, rank: int, alpha: float | None = None) -> None:
    """Put a new adapter beside the attention of every block, in place; the vectors do not change yet.

    The adapted projections are frozen; everything else is trained or frozen as before.

    Args:
        encoder: a model that `extend` made.
        rank: inner width of the adapter.
        alpha: numerator of alpha / rank, the factor of the adapter's output; by default alpha = rank.
    """
    model = transformer_of(encoder)
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    if model_type not in MODEL_TYPES:
        raise UsageError(
            f"LoRA can be added to a model that `extend` made, not to a model of type {model_type!r}; "
            "`extend` with `layers='none'` prepares a dense one"
        )
    if model.config.lora is not None:
        raise UsageError("the model has an adapter already; merge it first (merge_lora)")
    settings = {"rank": rank, "alpha": float(rank if alpha is None else alpha)}
    insert_adapter(model, settings)
    model.config.lora = settings


def merge_lora(encoder: SentenceTransformer) -> None:
    """Add the adapter to the weights that it adapts, in place: a plain model again, all of it trainable."""
    model: Any = transformer_of(encoder)
    for name, layer in lora_layers(model).items():
        layer.merge(safe_merge=True)
        model.set_submodule(name, layer.get_base_layer().requires_grad_(True))
    forget_adapters(model)
    model.config.lora = None


def save_adapter(encoder: SentenceTransformer, folder: str | Path) -> None:
    """Write the adapter alone, as peft does: adapter_config.json and adapter_model.safetensors.

    The experts are not in it. Stock peft reads it too: `PeftModel.from_pretrained(auto_model, folder)`.
    """
    from safetensors.torch import save_file

    model: Any = transformer_of(encoder)
    weights = require("peft.functional", "lora").get_peft_model_state_dict(model, adapter_name=ADAPTER)
    with replacing_folder(Path(folder)) as temporary:
        _peft_config(model, model.config.lora).save_pretrained(str(temporary))
        named = {PEFT_PREFIX + name: weight.contiguous().cpu() for name, weight in weights.items()}
        save_file(named, temporary / WEIGHTS_FILE, metadata={"format": "pt"})


def _peft_config(model: Any, settings: Mapping[str, Any]) -> Any:
    """Return the config with which peft adapts the attention's projections."""
    family = family_of(model.config.model_type)
    projections = "|".join(re.escape(path) for path in family.attention)
    return require("peft", "lora").LoraConfig(
        r=settings["rank"],
        lora_alpha=settings["alpha"],
        # One pattern, not a list of names: peft keeps a list as a set and so writes it in any order.
        target_modules=rf"{re.escape(family.blocks)}\.\d+\.({projections})",
    )
