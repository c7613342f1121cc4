"""The layers of a low-rank adapter (LoRA) beside the attention of every block."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sentence_experts.compat.peft import lora_layers
from sentence_experts.errors import require
from sentence_experts.models.architectures.families import family_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# peft's name of an adapter that got none.
ADAPTER = "default"


def insert_adapter(model: PreTrainedModel, settings: Mapping[str, Any]) -> None:
    """Give a model of this package a new adapter, as `config.lora` describes it."""
    peft = require("peft.functional", "lora")
    trained = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    peft.inject_adapter_in_model(peft_config(model, settings), model, ADAPTER)
    adapted = lora_layers(model).values()
    frozen = {id(parameter) for layer in adapted for parameter in layer.get_base_layer().parameters()}
    for parameter in model.parameters():
        # peft froze everything but the adapter.
        if id(parameter) in trained - frozen:
            parameter.requires_grad_(True)
    model.train(model.training)  # the adapter's dropout, too, follows the model's mode


def peft_config(model: PreTrainedModel, settings: Mapping[str, Any]) -> Any:
    """Return the config with which peft adapts the attention's projections."""
    family = family_of(model.config.model_type)
    projections = "|".join(re.escape(path) for path in family.attention)
    return require("peft", "lora").LoraConfig(
        r=settings["rank"],
        lora_alpha=settings["alpha"],
        lora_dropout=settings["dropout"],
        # One pattern, not a list of names: peft keeps a list as a set and so writes it in any order.
        target_modules=rf"{re.escape(family.blocks)}\.\d+\.({projections})",
    )
