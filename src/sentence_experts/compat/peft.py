"""Uses of peft that its documentation does not promise."""

from __future__ import annotations

from typing import Any

from sentence_experts.errors import require

# The path under which peft's wrapper holds a model, and so the beginning of the names in its files.
PEFT_PREFIX = "base_model.model."


def lora_layers(model: Any) -> dict[str, Any]:
    """Return the layers that have an adapter, by name; `get_base_layer()` is the layer without it."""
    layer_class = require("peft.tuners.lora", "lora").LoraLayer
    return {name: module for name, module in model.named_modules() if isinstance(module, layer_class)}


def forget_adapters(model: Any) -> None:
    """Make a model whose adapters were taken out look untouched: peft notes them in an attribute."""
    del model.peft_config
