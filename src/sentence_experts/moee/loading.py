"""How a large language model is loaded: precision, placement, quantisation."""

from __future__ import annotations

from typing import Any

from sentence_experts.errors import UsageError, require

BITS = {"4bit": "load_in_4bit", "8bit": "load_in_8bit"}


def loading_options(
    dtype: str | None, device_map: Any, quantise: str | None, trust_remote_code: bool, revision: str | None
) -> dict[str, Any]:
    """Arguments of sentence-transformers' `Transformer` for these choices (`MoeEmbedder`).

    Raises:
        UsageError: an unknown number type or quantisation, or a library that it needs is not installed.
    """
    shared = {"trust_remote_code": trust_remote_code} | ({"revision": revision} if revision else {})
    model: dict[str, Any] = dict(shared)
    if dtype is not None:
        torch = require("torch", "models")
        if not isinstance(getattr(torch, dtype, None), torch.dtype):
            raise UsageError(f"unknown number type {dtype!r}: choose float32, bfloat16 or float16")
        model["dtype"] = getattr(torch, dtype)
    if device_map is not None:
        require("accelerate", "models")
        model["device_map"] = device_map
    if quantise is not None:
        if quantise not in BITS:
            raise UsageError(f"unknown quantisation {quantise!r}: choose {', '.join(BITS)}")
        require("bitsandbytes", "quantise")
        transformers = require("transformers", "models")
        model["quantization_config"] = transformers.BitsAndBytesConfig(**{BITS[quantise]: True})
        model.setdefault("device_map", "auto")
    return {"model_kwargs": model, "processor_kwargs": dict(shared), "config_kwargs": dict(shared)}
