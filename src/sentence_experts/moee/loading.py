"""How a large language model is loaded: precision, placement, quantization."""

from __future__ import annotations

from typing import Any

from sentence_experts.errors import require
from sentence_experts.moee.config import MoeeConfig


def loading_options(config: MoeeConfig) -> dict[str, Any]:
    """Arguments of sentence-transformers' `Transformer` for these settings.

    Raises:
        SentenceExpertsError: a library that they need is not installed.
    """
    shared: dict[str, Any] = {"trust_remote_code": config.trust_remote_code}
    if config.revision:
        shared["revision"] = config.revision
    model = dict(shared)
    if config.dtype is not None:
        model["dtype"] = getattr(require("torch", "models"), config.dtype)
    if config.device_map is not None:
        require("accelerate", "models")
        model["device_map"] = config.device_map
    if config.quantize is not None:
        require("bitsandbytes", "quantize")
        transformers = require("transformers", "models")
        model["quantization_config"] = transformers.BitsAndBytesConfig(**{f"load_in_{config.quantize}": True})
        model.setdefault("device_map", "auto")
    return {"model_kwargs": model, "processor_kwargs": dict(shared), "config_kwargs": dict(shared)}
