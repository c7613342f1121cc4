"""Low-rank adapters (LoRA) on the attention of every block, beside the experts.

Hallee 2025 (Discussion) offers them so that attention, which all routes share, can adapt too. An adapted
projection computes W x + (alpha / rank) B A x: W stays as it is, A is (rank, in) and starts at random, B is
(out, rank) and starts at zero. What a projection is called in each family stands in `families.FAMILIES`.

A model with an adapter is saved as any other: its config says so, and `load` puts the adapter in again, with
all weights trainable, as ever; `add_lora` and `load_adapter` freeze what they adapt.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_experts.compat.peft import PEFT_PREFIX, forget_adapters, lora_layers
from sentence_experts.compat.sentence_transformers import transformer_of
from sentence_experts.errors import UsageError, require
from sentence_experts.models.architectures.adapter import ADAPTER, insert_adapter, peft_config
from sentence_experts.models.architectures.families import MODEL_TYPES
from sentence_experts.storage import replacing_folder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedModel

WEIGHTS_FILE = "adapter_model.safetensors"
# What peft notes in a config about its origin, not about the adapter.
NOTES = ("base_model_name_or_path", "revision", "inference_mode", "task_type", "peft_version", "auto_mapping")


def add_lora(
    encoder: SentenceTransformer, rank: int, alpha: float | None = None, dropout: float = 0.0
) -> None:
    """Put a new adapter beside the attention of every block, in place; the vectors do not change yet.

    The adapted projections are frozen; everything else is trained or frozen as before.

    Args:
        encoder: a model that `extend` made.
        rank: the adapter's inner width.
        alpha: the adapter's output is multiplied by alpha / rank; by default alpha = rank.
        dropout: on the adapter's input, in training.
    """
    if rank < 1 or not 0 <= dropout < 1 or (alpha is not None and alpha <= 0):
        raise UsageError(
            f"LoRA of rank {rank}, alpha {alpha}, dropout {dropout}: the rank must be at least 1, alpha "
            "above 0, dropout at least 0 and below 1"
        )
    model = _routed_model(encoder)
    if model.config.lora is not None:
        raise UsageError("the model has an adapter already; merge it first (merge_lora)")
    settings = {"rank": rank, "alpha": float(rank if alpha is None else alpha), "dropout": float(dropout)}
    insert_adapter(model, settings)
    model.config.lora = settings


def merge_lora(encoder: SentenceTransformer) -> None:
    """Add the adapter to the weights that it adapts, in place: a plain model again, all of it trainable."""
    model = _with_adapter(encoder)
    for layer in lora_layers(model).values():
        layer.merge(safe_merge=True)
    _take_out(model)


def save_adapter(encoder: SentenceTransformer, folder: str | Path) -> None:
    """Write the adapter alone, as peft does: adapter_config.json and adapter_model.safetensors.

    The experts are not in it. Stock peft reads it too: `PeftModel.from_pretrained(auto_model, folder)`.
    """
    model = _with_adapter(encoder)
    from safetensors.torch import save_file

    weights = require("peft.functional", "lora").get_peft_model_state_dict(model, adapter_name=ADAPTER)
    with replacing_folder(Path(folder)) as temporary:
        peft_config(model, model.config.lora).save_pretrained(str(temporary))
        named = {PEFT_PREFIX + name: weight.contiguous().cpu() for name, weight in weights.items()}
        save_file(named, temporary / WEIGHTS_FILE, metadata={"format": "pt"})


def _take_out(model: PreTrainedModel) -> None:
    """Put the plain projections back in the adapted ones' place."""
    for name, layer in lora_layers(model).items():
        model.set_submodule(name, layer.get_base_layer().requires_grad_(True))
    forget_adapters(model)
    model.config.lora = None


def _routed_model(encoder: SentenceTransformer) -> Any:
    model = transformer_of(encoder)
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    if model_type not in MODEL_TYPES:
        raise UsageError(
            f"LoRA can be added to a model that `extend` made, not to a model of type {model_type!r}; "
            f" `extend` with `layers='none'` prepares a dense one"
        )
    return model


def _with_adapter(encoder: SentenceTransformer) -> Any:
    model = _routed_model(encoder)
    if model.config.lora is None:
        raise UsageError("the model has no adapter (see add_lora)")
    return model
